"""PPO through the inner steps: its gradient, its limits, going on to the bit, and that it learns."""

import pytest
import torch

import cavia
from cavia.training.ppo import PPOStep
from cavia.training.surrogate import flat
from cavia.training.trpo import TRPOStep
from tests.training import policies
from tests.training.runs import assert_same, lines, weights
from tests.training.test_trpo import METHODS, make


def moved(step, vector):
    """The parameters a little further on."""
    with torch.no_grad():
        for parameter, part in zip(step.parameters, vector.split(step.adam.sizes), strict=True):
            parameter.add_(part.view_as(parameter))


@pytest.mark.parametrize("closed_form", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_the_first_gradient_is_that_of_trpos_surrogate(method, closed_form):
    learner, batch = make(method, updates=2)
    expected, before, _ = TRPOStep(learner).gradient([batch])
    gradient, loss, _ = PPOStep(learner, closed_form=closed_form).gradient([batch])
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-12)
    assert loss == pytest.approx(before)


@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_a_later_gradient_equals_finite_differences_of_the_clipped_surrogate(method):
    learner, batch = make(method)
    step = PPOStep(learner, cavia.PPO(clip=0.05))
    gradient, _, old = step.gradient([batch])
    generator = torch.Generator().manual_seed(0)
    moved(step, 0.05 * torch.randn(len(gradient), generator=generator, dtype=torch.float64))
    ratio = step.ratio(step.gradient([batch])[2][0], old[0], batch.query)
    assert ((ratio - 1).abs() > 0.05).any()  # some are clipped
    gradient, _, _ = step.gradient([batch], old=old)
    vector, size = torch.randn(len(gradient), generator=generator, dtype=torch.float64), 1e-6
    moved(step, size * vector)
    above, _ = step.judge([batch], old)
    moved(step, -2 * size * vector)
    below, _ = step.judge([batch], old)
    assert (gradient @ vector).item() == pytest.approx((above - below) / (2 * size), rel=1e-4)


def test_what_is_outside_the_clip_on_the_good_side_counts_no_more():
    learner, batch = make("CAVIA")
    step = PPOStep(learner, cavia.PPO(clip=0.2))
    old = step.gradient([batch])[2][0]
    batch.query.y[..., -1] = 1.0
    far = old.clone()
    far[..., :2] = batch.query.y[..., :2]  # the actions that were taken are the likeliest
    ratio = step.ratio(far, old, batch.query)
    actual = step.surrogate(far, old, batch.query)
    clipped = torch.where(batch.query.mask, ratio.clamp(max=1.2), 0.0).sum(1) / batch.query.mask.sum(1)
    torch.testing.assert_close(actual, -clipped)
    batch.query.y[..., -1] = -1.0  # what got worse counts in full
    whole = torch.where(batch.query.mask, ratio.clamp(min=0.8), 0.0).sum(1) / batch.query.mask.sum(1)
    torch.testing.assert_close(step.surrogate(far, old, batch.query), whole)


def test_chunks_change_nothing():
    results = []
    for chunk in (None, 1, 2):
        learner, batch = make("CAVIA")
        taken = PPOStep(learner, cavia.PPO(chunk=chunk, epochs=3))(batch)
        results.append((taken, flat(learner.parameters()).detach()))
    for taken, parameters in results[1:]:
        assert taken == pytest.approx(results[0][0], rel=1e-6)
        torch.testing.assert_close(parameters, results[0][1])


def test_epochs_gain_and_end_where_the_policies_have_moved_far_enough():
    learner, batch = make("CAVIA")
    taken = PPOStep(learner, cavia.PPO(epochs=4, max_kl=100.0, lr=1e-3))(batch)
    assert taken["epochs"] == 4
    assert taken["gain"] > 0
    learner, batch = make("CAVIA")
    short = PPOStep(learner, cavia.PPO(epochs=4, max_kl=taken["kl"] / 4, lr=1e-3))(batch)
    assert 1 <= short["epochs"] < 4
    assert taken["kl"] / 4 < short["kl"] < taken["kl"]


@pytest.mark.slow
def test_a_run_goes_on_to_the_bit(tmp_path):
    ppo = cavia.PPO(epochs=3, chunk=2)
    whole, part = policies.make(), policies.make()
    policies.train(whole, 6, tmp_path / "whole", outer=ppo)
    policies.train(part, 3, tmp_path / "part", outer=ppo)
    resumed = policies.make()
    policies.train(resumed, 6, tmp_path / "part", outer=ppo)
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "part")
    with pytest.raises(cavia.CaviaError, match="outer is 'PPO' there and 'TRPO' here"):
        policies.train(policies.make(), 6, tmp_path / "part")
    with pytest.raises(cavia.CaviaError, match="epochs is 3 there and 4 here"):
        policies.train(policies.make(), 6, tmp_path / "part", outer=cavia.PPO(epochs=4, chunk=2))


@pytest.mark.slow
def test_navigation_is_learned():
    learner, env = policies.make(hidden=(32,), inner_lr=1.0), cavia.envs.Navigation(horizon=30)
    start = cavia.evaluate(learner, env, tasks=16, support=10, steps=1).mean
    policies.train(learner, 20, env=env, tasks_per_batch=10, support=10, outer=cavia.PPO())
    end = cavia.evaluate(learner, env, tasks=16, support=10, steps=1).mean
    assert end[1] > start[1] + 2
    assert end[1] > end[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0}, "lr must be above 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"clip": 1.5}, "clip must be between 0 and 1, got 1.5"),
        ({"max_kl": -1}, "max_kl must be above 0"),
        ({"chunk": 0}, "chunk must be at least 1"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.PPO(**changes)
