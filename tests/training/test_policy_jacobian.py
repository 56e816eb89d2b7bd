"""The closed form of the adapted policies' derivatives against autograd, in float64."""

from functools import partial
from types import SimpleNamespace as Taken

import pytest
import torch

import cavia
from cavia.kernels.choice import using
from cavia.kernels.curvature import product
from cavia.learners.acting import MetaBatch, Points
from cavia.models.policy import Policy
from cavia.training.jacobian import AutogradJacobian
from cavia.training.policy_jacobian import PolicyJacobian
from cavia.training.trpo import TRPO, TRPOStep

GAUSSIAN = partial(cavia.GaussianPolicy, 3, 2, std=0.7)
CATEGORICAL = partial(cavia.CategoricalPolicy, 3, 4)
METHODS = {
    "CAVIA": partial(cavia.CAVIA, inner_lr=0.7),
    "CAVIA, learned start": partial(cavia.CAVIA, inner_lr=0.7, learn_init=True),
    "CAVIA, first order": partial(cavia.CAVIA, inner_lr=0.7, first_order=True),
    "MAML": partial(cavia.MAML, inner_lr=0.1),
    "MAML, first order": partial(cavia.MAML, inner_lr=0.1, first_order=True),
}


def make(method="CAVIA", kind=GAUSSIAN, hidden=(7, 6), **changes):
    torch.manual_seed(0)
    policy = kind(hidden=hidden, context=4 if "CAVIA" in method else 0)
    learner = METHODS[method](policy, policy.loss).double()
    if getattr(learner, "learn_init", False):
        torch.nn.init.normal_(learner.initial_context)
    return learner


def points(policy: Policy, seed: int, tasks=3, count=20):
    random = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(size, generator=random, dtype=torch.float64)

    action = normal(tasks, count, policy.actions)
    if policy.discrete:
        action = torch.randint(policy.actions, (tasks, count, 1), generator=random).double()
    mask = torch.rand(tasks, count, generator=random) < 0.8
    return Points(normal(tasks, count, 3), torch.cat([action, normal(tasks, count, 1)], -1), mask)


def episodes(policy, updates=1, **size):
    return MetaBatch([points(policy, i, **size) for i in range(updates)], points(policy, 9, **size))


def assert_same(learner, batch, products=0):
    ours, expected = PolicyJacobian(learner, batch, products), AutogradJacobian(learner, batch)
    close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
    close(ours.prediction, expected.prediction)
    vector = torch.randn(sum(p.numel() for p in learner.parameters()), dtype=torch.float64)
    close(ours.push(vector), expected.push(vector))
    weights = torch.randn_like(expected.prediction)
    close(ours.pull(weights), expected.pull(weights))
    close(ours.fisher(vector), expected.fisher(vector))
    # As a matrix it is one and the same for both ways.
    assert (ours.push(vector) * weights).sum().item() == pytest.approx((ours.pull(weights) @ vector).item(), rel=1e-9)


@pytest.mark.parametrize("products", [0, 10])
@pytest.mark.parametrize("updates", [1, 3])
@pytest.mark.parametrize("kind", [GAUSSIAN, CATEGORICAL])
@pytest.mark.parametrize("method", METHODS)
def test_products_equal_those_by_autograd(method, kind, updates, products):
    learner = make(method, kind)
    assert PolicyJacobian.applies_to(learner)
    assert_same(learner, episodes(learner.model, updates), products)


@pytest.mark.parametrize("products", [0, 10])
@pytest.mark.parametrize("hidden", [(), (2,), (5,), (6, 5, 4, 3)])
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_any_number_of_layers(method, hidden, products):
    learner = make(method, hidden=hidden)
    assert_same(learner, episodes(learner.model, 2), products)


@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_a_standard_deviation_at_its_limit_stays_there(method):
    learner = make(method)
    learner.model.log_std.data[1] = -20.0
    batch = episodes(learner.model)
    for part in (*batch.support, batch.query):
        part.y[..., 1] *= 1e-6  # actions as far from the mean as such a policy takes them
    learner.model.mlp.layers[-1].weight.data[1] *= 1e-6
    learner.model.mlp.layers[-1].bias.data[1] *= 1e-6
    learner.fixed_rates = dict.fromkeys(learner.fixed_rates, 1e-8)
    assert_same(learner, batch)


@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_what_stands_after_the_end_of_an_episode_does_not_matter(method):
    learner = make(method)
    batch = episodes(learner.model)
    before = PolicyJacobian(learner, batch).pull(torch.ones(3, 20, 4, dtype=torch.float64))
    batch.support[0].y[~batch.support[0].mask] = torch.nan
    assert torch.equal(before, PolicyJacobian(learner, batch).pull(torch.ones(3, 20, 4, dtype=torch.float64)))
    batch.support[0].mask[1] = False  # nothing to adapt on
    assert_same(learner, batch)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("products", [0, 10])
@pytest.mark.parametrize("hidden", [(), (5,), (100, 33), (6, 20, 4, 3)])
@pytest.mark.parametrize("kind", [GAUSSIAN, CATEGORICAL])
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_the_kernel_equals_autograd_up_to_rounding(method, kind, hidden, products, threads, monkeypatch):
    learner, calls = make(method, kind, hidden), []
    monkeypatch.setattr("cavia.training.network_pass.product", lambda *a: calls.append(a) or product(*a))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    batch = episodes(learner.model, 2, count=200)
    expected = AutogradJacobian(learner, batch)
    vector = torch.randn(sum(p.numel() for p in learner.parameters()), dtype=torch.float64)
    truth = (expected.fisher(vector), expected.push(vector), expected.pull(expected.prediction))
    learner.float()
    batch = MetaBatch([single(part) for part in batch.support], single(batch.query))
    errors = []
    for kernel in ("fused", "plain"):
        with using(kernel):
            ours = PolicyJacobian(learner, batch, products)
            actual = (ours.fisher(vector.float()), ours.push(vector.float()), ours.pull(ours.prediction))
        errors.append([((one - true).norm() / true.norm()).item() for one, true in zip(actual, truth, strict=True)])
        assert bool(calls) == (kernel == "fused" or errors[0] is not errors[-1])
    assert max(errors[0]) < 1e-5
    assert errors[0][0] < 3 * errors[1][0] + 1e-7


def single(part: Points) -> Points:
    return Points(part.x.float(), part.y.float(), part.mask)


class Own(cavia.GaussianPolicy):
    """A policy with code of its own."""

    def head(self, h, context):
        return super().head(h, context).tanh()


def others():
    """Learners whose derivatives are not written out."""
    own, frozen = Own(3, 2), cavia.GaussianPolicy(3, 2)
    frozen.log_std.requires_grad_(False)
    policy = cavia.GaussianPolicy(3, 2)
    return {
        "a policy's own code": cavia.CAVIA(own, own.loss),
        "a frozen parameter": cavia.CAVIA(frozen, frozen.loss),
        "a loss of one's own": cavia.CAVIA(policy, lambda prediction, target: prediction.sum(-1)),
        "MAML with a context": cavia.MAML(policy, policy.loss),
        "Meta-SGD": cavia.MetaSGD(policy, policy.loss),
        "ANIL": cavia.ANIL(policy, policy.loss),
    }


@pytest.mark.parametrize("name", others())
def test_other_learners_are_left_to_autograd(name):
    learner = others()[name].double()
    assert not PolicyJacobian.applies_to(learner)
    assert TRPOStep(learner).jacobian is AutogradJacobian
    if name != "a loss of one's own":
        assert TRPOStep(learner)(episodes(learner.model))["kl"] > 0


@pytest.mark.parametrize("hvp_every", [1, 3])
@pytest.mark.parametrize("kind", [GAUSSIAN, CATEGORICAL])
@pytest.mark.parametrize("method", METHODS)
def test_a_whole_step_equals_that_by_autograd(method, kind, hvp_every):
    results = []
    for closed_form in (True, False):
        learner = make(method, kind)
        trpo = TRPOStep(learner, TRPO(hvp_every=hvp_every, cg_iterations=5, chunk=2), closed_form)
        assert trpo.jacobian is (PolicyJacobian if closed_form else AutogradJacobian)
        taken = Taken(**trpo(episodes(learner.model, 2, count=30)))
        results.append((taken, torch.cat([value.detach().flatten() for value in learner.parameters()])))
    (ours, parameters), (expected, others) = results
    assert vars(ours) == pytest.approx(vars(expected), rel=1e-6)
    assert ours.share > 0
    torch.testing.assert_close(parameters, others, rtol=1e-7, atol=1e-8)
