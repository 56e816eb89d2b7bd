"""Returns, baseline and advantages against a loop over episodes."""

from dataclasses import replace

import pytest
import torch

from cavia.envs.advantages import advantages, baseline_values, discounted_returns, generalised_advantages
from cavia.envs.rollouts import Rollouts
from tests import reference_rl


def some(tasks=3, rollouts=4, horizon=12, seed=0):
    """Random episodes, of which all but the first of each task end early."""
    random = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(size, generator=random, dtype=torch.float64)

    lengths = torch.randint(2, horizon + 1, (tasks, rollouts), generator=random)
    lengths[:, 0] = horizon
    mask = torch.arange(horizon) < lengths.unsqueeze(-1)
    shape = (tasks, rollouts, horizon)
    return Rollouts(normal(*shape, 3), normal(*shape, 2), normal(*shape) * mask, mask)


def episodes(rollouts):
    for task, rollout in torch.cartesian_prod(*map(torch.arange, rollouts.mask.shape[:2])):
        yield (task, rollout, slice(0, int(rollouts.mask[task, rollout].sum())))


@pytest.mark.parametrize("discount", [0.0, 0.95, 1.0])
def test_returns_equal_their_definition(discount):
    rollouts = some()
    returns = discounted_returns(rollouts.rewards, discount)
    for place in episodes(rollouts):
        expected = reference_rl.returns(rollouts.rewards[place].tolist(), discount)
        assert returns[place].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("discount", "trace"), [(0.95, 1.0), (0.9, 0.7), (1.0, 0.0)])
def test_advantages_equal_their_definition(discount, trace):
    rollouts = some()
    values = torch.randn(rollouts.rewards.shape, dtype=torch.float64)
    actual = generalised_advantages(rollouts.rewards, values, rollouts.mask, discount, trace)
    for place in episodes(rollouts):
        expected = reference_rl.gae(rollouts.rewards[place].tolist(), values[place].tolist(), discount, trace)
        assert actual[place].tolist() == pytest.approx(expected, abs=1e-12)
    assert (actual[~rollouts.mask] == 0).all()


def test_the_baseline_is_each_tasks_own_ridge_regression():
    rollouts = some(horizon=30)
    returns = discounted_returns(rollouts.rewards, 0.95)
    baseline = baseline_values(rollouts, returns)
    for task in range(3):
        rows, targets = [], []
        for r in range(4):
            for t in range(int(rollouts.mask[task, r].sum())):
                x = rollouts.observations[task, r, t]
                time = torch.tensor([t / 100, (t / 100) ** 2, (t / 100) ** 3, 1.0], dtype=torch.float64)
                rows.append(torch.cat([x, x**2, time]))
                targets.append(returns[task, r, t])
        x, y = torch.stack(rows), torch.stack(targets)
        weights = torch.linalg.lstsq(
            torch.cat([x, 1e-5**0.5 * torch.eye(10, dtype=x.dtype)]), torch.cat([y, torch.zeros(10, dtype=y.dtype)])
        ).solution
        assert torch.allclose(baseline[task][rollouts.mask[task]], x @ weights, atol=1e-6)


def test_advantages_are_normalised_over_the_running_steps_of_each_task():
    rollouts = some()
    normalised = advantages(rollouts)
    for task in range(3):
        steps = normalised[task][rollouts.mask[task]]
        assert steps.mean().item() == pytest.approx(0, abs=1e-9)
        assert steps.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert (normalised[~rollouts.mask] == 0).all()


def test_a_task_without_differences_or_steps_gets_zeros_and_no_nan():
    rollouts = some()
    nothing = Rollouts(rollouts.observations * 0, rollouts.actions, rollouts.rewards * 0, rollouts.mask.clone())
    nothing.mask[1] = False
    assert (advantages(nothing) == 0).all()


def test_what_comes_after_the_end_of_an_episode_changes_nothing():
    rollouts = some()
    changed = Rollouts(*(value.clone() for value in vars(rollouts).values()))
    changed.observations[~rollouts.mask] = 1e6
    changed.rewards[~rollouts.mask] = 7.0
    assert torch.allclose(advantages(changed), advantages(rollouts), atol=1e-9)


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
def test_observations_that_say_the_same_twice_have_a_baseline(size):
    rollouts = some(rollouts=20, horizon=100)
    twice = torch.cat([rollouts.observations * size] * 2 + [torch.full_like(rollouts.observations, 16384.0)], -1)
    actual = advantages(replace(rollouts, observations=twice))
    assert actual.isfinite().all()
    torch.testing.assert_close(actual, advantages(rollouts), rtol=0.01, atol=0.01)
