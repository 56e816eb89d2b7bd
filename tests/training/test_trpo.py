"""TRPO through the inner steps against a computation task by task, in float64."""

from types import SimpleNamespace as Taken

import pytest
import torch

import cavia
from cavia.learners.acting import MetaBatch, Points
from cavia.training.jacobian import adapted_predictions
from cavia.training.surrogate import flat
from cavia.training.trpo import TRPO, TRPOStep, conjugate_gradients
from tests.reference_rl import TaskByTask

METHODS = {
    "CAVIA": lambda policy: cavia.CAVIA(policy, policy.loss, inner_lr=0.7),
    "CAVIA, first order": lambda policy: cavia.CAVIA(policy, policy.loss, inner_lr=0.7, first_order=True),
    "MAML": lambda policy: cavia.MAML(policy, policy.loss, inner_lr=0.1),
    "MAML, first order": lambda policy: cavia.MAML(policy, policy.loss, inner_lr=0.1, first_order=True),
}


def points(tasks=3, count=20, seed=0):
    """Random steps, of which some come after the end of an episode."""
    random = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(size, generator=random, dtype=torch.float64)

    mask = torch.rand(tasks, count, generator=random) < 0.8
    return Points(normal(tasks, count, 3), normal(tasks, count, 3), mask)


def make(method, updates=1):
    torch.manual_seed(0)
    policy = cavia.GaussianPolicy(3, 2, hidden=(7, 6), context=4 if "CAVIA" in method else 0, std=0.7)
    learner = METHODS[method](policy).double()
    return learner, MetaBatch([points(seed=i) for i in range(updates)], points(seed=9))


def shifted(trpo, vector):
    trpo._assign(flat(trpo.parameters).detach() + vector)


def product(trpo, batch, vector):
    return trpo.jacobian(trpo.learner, batch).fisher(vector) / len(batch)


@pytest.mark.parametrize("closed_form", [True, False])
@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_gradient_kl_and_products_equal_those_task_by_task(method, updates, closed_form):
    learner, batch = make(method, updates)
    trpo, reference = TRPOStep(learner, closed_form=closed_form), TaskByTask(learner, batch)
    gradient, loss, old = trpo.gradient([batch])
    assert loss == pytest.approx(reference.surrogate(reference.weights).item(), rel=1e-10)
    assert torch.allclose(gradient, reference.gradient(reference.surrogate), rtol=1e-8, atol=1e-12)
    vector = torch.randn_like(gradient)
    assert torch.allclose(product(trpo, batch, vector), reference.product(vector), rtol=1e-7, atol=1e-10)
    shifted(trpo, 0.02 * vector)
    moved = {name: value.detach() for name, value in learner.model.named_parameters()}
    moved = {name: value.requires_grad_() for name, value in moved.items()}
    actual = trpo.judge([batch], old)
    expected = (reference.surrogate(moved).item(), reference.kl(moved).item())
    assert actual == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_product_equals_finite_differences_of_the_kl_gradient(method):
    learner, batch = make(method)
    trpo = TRPOStep(learner)
    old = adapted_predictions(learner, batch).detach()

    def kl_gradient():
        new = adapted_predictions(learner, batch)
        weight = batch.query.mask / batch.query.mask.sum(1, keepdim=True) / len(batch)
        gradients = torch.autograd.grad((trpo.policy.kl(old, new) * weight).sum(), trpo.parameters)
        return torch.cat([value.flatten() for value in gradients])

    vector = torch.randn(sum(p.numel() for p in trpo.parameters), dtype=torch.float64)
    actual = product(trpo, batch, vector)
    step = 1e-5
    shifted(trpo, step * vector)
    above = kl_gradient()
    shifted(trpo, -2 * step * vector)
    below = kl_gradient()
    expected = (above - below) / (2 * step)
    if "first order" not in method:  # a first-order inner step has no true derivative to compare with
        assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-6 * expected.abs().max())


def test_the_meta_gradient_equals_finite_differences():
    learner, batch = make("CAVIA")
    trpo = TRPOStep(learner)
    gradient, _, old = trpo.gradient([batch])
    vector, step = torch.randn_like(gradient), 1e-6
    shifted(trpo, step * vector)
    above, _ = trpo.judge([batch], old)
    shifted(trpo, -2 * step * vector)
    below, _ = trpo.judge([batch], old)
    assert (gradient @ vector).item() == pytest.approx((above - below) / (2 * step), rel=1e-5)


def test_conjugate_gradients_solve():
    root = torch.randn(8, 8, dtype=torch.float64)
    matrix, target = root @ root.T + torch.eye(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    x, image = conjugate_gradients(lambda v: matrix @ v, target, 30)
    assert torch.allclose(x, torch.linalg.solve(matrix, target), atol=1e-6)
    assert torch.allclose(image, matrix @ x)
    x, _ = conjugate_gradients(lambda v: matrix @ v, torch.zeros_like(target), 5)
    assert (x == 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_chunks_change_nothing(method):
    results = []
    for chunk in (None, 1, 2):
        learner, batch = make(method)
        # more iterations would amplify rounding
        taken = Taken(**TRPOStep(learner, TRPO(chunk=chunk, cg_iterations=4))(batch))
        results.append((taken.kl, taken.gain, torch.cat([p.flatten() for p in learner.parameters()])))
    for kl, gain, parameters in results[1:]:
        assert kl == pytest.approx(results[0][0], rel=1e-5)
        assert gain == pytest.approx(results[0][1], rel=1e-5)
        assert torch.allclose(parameters, results[0][2], atol=1e-6)


@pytest.mark.parametrize("hvp_every", [1, 3])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_gains_and_stays_in_the_region(method, hvp_every):
    learner, batch = make(method)
    before = torch.cat([p.flatten() for p in learner.parameters()]).detach()
    trpo = TRPOStep(learner, TRPO(hvp_every=hvp_every))
    _, _, old = trpo.gradient([batch])
    taken = Taken(**trpo(batch))
    assert taken.gain > 0
    assert 0 < taken.kl <= 0.01
    assert 0 < taken.share <= 1
    assert trpo.judge([batch], old)[1] == pytest.approx(taken.kl)
    assert not torch.equal(before, torch.cat([p.flatten() for p in learner.parameters()]))


def test_without_a_better_step_the_parameters_stay():
    learner, batch = make("CAVIA")
    batch.query.y[..., -1] = 0.0  # no advantage anywhere: nothing to gain
    before = [p.clone() for p in learner.parameters()]
    taken = Taken(**TRPOStep(learner)(batch))
    assert (taken.gain, taken.kl, taken.share) == (0.0, 0.0, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.parameters(), strict=True))


def test_a_task_whose_episodes_are_all_over_does_no_harm():
    learner, batch = make("CAVIA")
    batch.support[0].mask[1] = False
    batch.query.mask[2] = False
    assert TRPOStep(learner)(batch)["kl"] > 0
    assert all(p.isfinite().all() for p in learner.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_kl": 0.0}, "max_kl must be above 0"),
        ({"shrink": 1.0}, "shrink must be between 0 and 1, got 1.0"),
        ({"hvp_every": 0}, "hvp_every must be at least 1, got 0"),
        ({"chunk": 0}, "chunk must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(cavia.CaviaError, match=message):
        TRPO(**changes)
