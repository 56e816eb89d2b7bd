"""E-MAML: its outer gradient against plain autograd, task by task, and where the returns come from."""

import pytest
import torch

import cavia
from cavia.envs import Navigation
from cavia.learners.acting import MetaBatch
from cavia.training.policy_jacobian import PolicyJacobian
from cavia.training.simulated import EpisodeFeed
from cavia.training.trpo import TRPOStep
from tests.reference_rl import TaskByTask, adapted, distribution
from tests.training.test_trpo import points


def make(updates=1, context=0, **arguments):
    torch.manual_seed(0)
    policy = cavia.GaussianPolicy(3, 2, hidden=(7, 6), context=context, std=0.7)
    learner = cavia.EMAML(policy, policy.loss, inner_lr=0.1, **arguments).double()
    gain = torch.tensor([1.2, -0.7, -0.5], dtype=torch.float64)
    return learner, MetaBatch([points(seed=i) for i in range(updates)], points(seed=9), gain)


def explored(learner, batch, weights):
    """−credit·J·log π of the steps before each update, a task at a time."""
    total = 0
    for task, gain in enumerate(batch.gain):
        support = [(p.x[task][p.mask[task]], p.y[task][p.mask[task]]) for p in batch.support]
        for number, (x, y) in enumerate(support):
            own, context = adapted(support[:number], weights, torch.zeros(0), list(weights), 0.1, learner.first_order)
            logs = distribution(x, own, context.double()).log_prob(y[:, :-1]).sum(-1)
            total = total - learner.credit * gain * logs.mean() / len(batch)
    return total


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("closed_form", [True, False])
def test_the_outer_gradient_is_that_of_autograd_task_by_task(closed_form, updates, first_order):
    learner, batch = make(updates, credit=0.4, first_order=first_order)
    reference = TaskByTask(learner, batch)

    def whole(weights):
        return reference.surrogate(weights) + explored(learner, batch, weights)

    step = TRPOStep(learner, closed_form=closed_form)
    gradient, loss, old = step.gradient([batch])
    assert loss == pytest.approx(whole(reference.weights).item(), rel=1e-10)
    assert torch.allclose(gradient, reference.gradient(whole), rtol=1e-8, atol=1e-12)
    assert step.judge([batch], old)[0] == pytest.approx(loss, rel=1e-10)
    chunks, same, _ = step.gradient(list(batch.split(2)))
    assert same == pytest.approx(loss, rel=1e-10)
    assert torch.allclose(chunks, gradient, rtol=1e-8, atol=1e-12)


def test_its_other_derivatives_are_written_out_as_those_of_maml():
    learner, batch = make()
    assert PolicyJacobian.applies_to(learner)
    plain = MetaBatch(batch.support, batch.query)
    maml = cavia.MAML(learner.model, learner.loss, inner_lr=0.1)
    assert torch.equal(TRPOStep(learner).gradient([plain])[0], TRPOStep(maml).gradient([plain])[0])


def test_the_feed_tells_each_tasks_return_beside_the_others():
    learner = cavia.EMAML(cavia.GaussianPolicy(2, 2, (8,), context=0), cavia.GaussianPolicy.loss, 0.1)
    feed = EpisodeFeed(learner, Navigation(6), tasks_per_batch=5, support=3)
    gain = feed.draw().batch.gain
    torch.testing.assert_close(gain.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(gain.square().mean(), torch.tensor(1.0), atol=1e-4, rtol=0)


def test_it_trains_and_saves(tmp_path):
    torch.manual_seed(0)
    learner = cavia.EMAML(cavia.GaussianPolicy(2, 2, (8,), context=0), cavia.GaussianPolicy.loss, 0.1, credit=0.5)
    how = {"tasks_per_batch": 3, "support": 3, "progress": False, "validation": cavia.Validation(2, 1)}
    for outer in (cavia.TRPO(), cavia.PPO()):
        cavia.fit(learner, Navigation(5), 2, outer=outer, **how)
    learner.save(tmp_path / "model.cavia")
    again = cavia.load(tmp_path / "model.cavia")
    assert (again.credit, again.version) == (0.5, learner.version)


def test_a_credit_that_is_not_above_zero_is_named():
    with pytest.raises(cavia.CaviaError, match="credit must be above 0 and finite, got -1"):
        cavia.EMAML(cavia.GaussianPolicy(2, 2), cavia.GaussianPolicy.loss, credit=-1.0)
