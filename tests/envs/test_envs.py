"""What every environment with a task axis keeps to, and rollouts."""

import pytest
import torch

import cavia
from cavia.envs import CheetahDirection, CheetahVelocity, Navigation, collect

TASKS, ROLLOUTS = 4, 2
ENVS = {
    "navigation": Navigation,
    "navigation, sparse": lambda: Navigation(goals="semicircle", disk=1.95),
    "direction": lambda: CheetahDirection(horizon=5),
    "velocity, 17 numbers": lambda: CheetahVelocity(horizon=5, observation="gymnasium", threads=1),
    "velocity, list": lambda: CheetahVelocity(horizon=5, backend="list"),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=ENVS)
def env(request):
    if "navigation" not in request.param:
        pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')
        pytest.importorskip("gymnasium", reason='needs pip install "cavia-torch[rl]"')
    return ENVS[request.param]()


def started(env, seed=0):
    random = generator(seed)
    env.reset(env.sample_tasks(TASKS, random), ROLLOUTS, random)
    return env


def some_action(env, seed=0):
    return torch.randn(TASKS, ROLLOUTS, env.actions, generator=generator(seed)) * env.bound


def test_shapes_and_types(env):
    random = generator()
    tasks = env.sample_tasks(TASKS, random)
    assert tasks.shape == (TASKS, *env.task_shape)
    assert env.reset(tasks, ROLLOUTS, random).shape == (TASKS, ROLLOUTS, env.observations)
    observation, reward, done = env.step(some_action(env))
    assert observation.shape == (TASKS, ROLLOUTS, env.observations)
    assert reward.shape == done.shape == (TASKS, ROLLOUTS)
    assert observation.dtype == reward.dtype == torch.float32
    assert done.dtype == torch.bool
    assert not env.discrete


def test_the_generator_decides_and_nothing_else(env):
    def run(seed):
        return started(env, seed).step(some_action(env, seed))

    first, other, again = run(1), run(2), run(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.reward, other.reward)


def test_a_saved_state_goes_on_to_the_bit(env):
    started(env).step(some_action(env))
    saved = {name: value.clone() for name, value in env.state().items()}
    first = [env.step(some_action(env, seed)) for seed in (1, 2)]
    started(env, seed=9)
    env.load_state(saved)
    again = [env.step(some_action(env, seed)) for seed in (1, 2)]
    for a, b in zip(first, again, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_wrong_use_is_named(env):
    with pytest.raises(cavia.CaviaError, match="call reset first"):
        env.step(some_action(env))
    assert env.state() == {}
    started(env)
    with pytest.raises(cavia.CaviaError, match=rf"action must have shape \[4, 2, {env.actions}\].*got \[4, 2, 9\]"):
        env.step(torch.zeros(TASKS, ROLLOUTS, 9))
    with pytest.raises(cavia.CaviaError, match="action of task 2, rollout 1 at step 0 is nan; the policy diverged"):
        env.step(some_action(env).index_put((torch.tensor(2), torch.tensor(1)), torch.tensor(float("nan"))))
    with pytest.raises(cavia.CaviaError, match=r"tasks must have shape \[T.*got \[3, 7\]"):
        env.reset(torch.zeros(3, 7), ROLLOUTS, generator())
    with pytest.raises(cavia.CaviaError, match="tasks must be finite, got nan"):
        env.reset(torch.full((3, *env.task_shape), float("nan")), ROLLOUTS, generator())
    with pytest.raises(cavia.CaviaError, match="rollouts must be at least 1, got 0"):
        env.reset(env.sample_tasks(1, generator()), 0, generator())
    with pytest.raises(cavia.CaviaError, match="did you mean 'train'"):
        env.sample_tasks(1, generator(), "training")
    with pytest.raises(cavia.CaviaError, match="count must be at least 1, got 0"):
        env.sample_tasks(0, generator())
    with pytest.raises(cavia.CaviaError, match="lacks done, time"):
        env.load_state({"goal": torch.zeros(1)})


def test_episodes_are_over_at_the_horizon(env):
    env.horizon = 2
    started(env)
    env.step(some_action(env))
    env.step(some_action(env))
    with pytest.raises(cavia.CaviaError, match="over after 2 steps; call reset"):
        env.step(some_action(env))


def test_test_tasks_are_fixed_and_validation_tasks_are_not(env):
    fixed = env.sample_tasks(40, generator(1), "test")
    assert torch.equal(fixed, env.sample_tasks(40, generator(2), "test"))
    if not isinstance(env, CheetahDirection):
        assert not torch.equal(env.sample_tasks(40, generator(1), "val"), env.sample_tasks(40, generator(2), "val"))


@pytest.mark.parametrize("split", ["val", "test"])
def test_goals_are_spread_evenly(split):
    goals = Navigation().sample_tasks(40, generator(), split)
    assert goals.abs().max() <= 0.5
    assert goals.mean(0).abs().max() < 0.03
    for axis in (0, 1):
        assert torch.histc(goals[:, axis], 4, -0.5, 0.5).min() >= 9
    quarters = (goals > 0).long() @ torch.tensor([1, 2])
    assert torch.bincount(quarters, minlength=4).min() >= 8


def test_rollouts_of_a_policy_that_arrives():
    env, random = Navigation(), generator()
    goals = torch.tensor([[0.3, 0.0], [-0.25, 0.45]])
    rollouts = collect(env, goals, lambda seen: goals[:, None] - seen, 3, random)
    steps = 5  # the farthest coordinate is 0.45 away
    assert rollouts.observations.shape == rollouts.actions.shape == (2, 3, steps, 2)
    assert rollouts.rewards.shape == rollouts.mask.shape == (2, 3, steps)
    assert rollouts.mask.sum(-1).tolist() == [[3] * 3, [5] * 3]
    assert rollouts.rewards[0, :, 3:].abs().max() == 0
    torch.testing.assert_close(rollouts.returns[0], torch.tensor(-0.3), atol=1e-6, rtol=0)
    assert torch.equal(rollouts.observations[0, 0, 3], rollouts.observations[0, 0, 4])  # it stays where it arrived


def test_rollouts_end_at_the_horizon(env):
    env.horizon, random = 3, generator()
    rollouts = collect(env, env.sample_tasks(TASKS, random), lambda seen: some_action(env), ROLLOUTS, random)
    assert rollouts.observations.shape == (TASKS, ROLLOUTS, 3, env.observations)
    assert rollouts.mask.all()
    torch.testing.assert_close(rollouts.returns, rollouts.rewards.sum(2).mean(1))
    assert not torch.equal(rollouts.observations[:, :, 0], rollouts.observations[:, :, 1])


def test_navigation_equals_a_plain_loop():
    env, random = Navigation(), generator(3)
    goals = env.sample_tasks(3, random)
    env.reset(goals, 2, random)
    where = [[[0.0, 0.0] for _ in range(2)] for _ in range(3)]
    for _ in range(30):
        action = 0.2 * torch.randn(3, 2, 2, generator=random)
        observation, reward, done = env.step(action)
        for task in range(3):
            for rollout in range(2):
                place, goal = where[task][rollout], goals[task].tolist()
                if not done[task, rollout]:
                    for axis in (0, 1):
                        place[axis] += min(max(action[task, rollout, axis].item(), -0.1), 0.1)
                    away = sum((a - b) ** 2 for a, b in zip(place, goal, strict=True)) ** 0.5
                    assert reward[task, rollout].item() == pytest.approx(-away, abs=1e-5)
                assert observation[task, rollout].tolist() == pytest.approx(place, abs=1e-5)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_goals_on_the_semicircle_are_two_away_and_never_below(split):
    goals = Navigation(goals="semicircle").sample_tasks(40, generator(), split)
    torch.testing.assert_close(goals.norm(dim=1), torch.full((40,), 2.0))
    assert goals[:, 1].min() >= 0
    assert goals[:, 0].min() < -1 < 1 < goals[:, 0].max()


def test_reward_is_zero_outside_the_disk_and_episodes_go_on():
    env, goals = Navigation(30, goals="semicircle", disk=0.8), torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    rollouts = collect(env, goals, lambda seen: torch.tensor([0.0, 0.1]).expand_as(seen), 1, generator())
    away = [abs(2.0 - 0.1 * (step + 1)) for step in range(30)]
    torch.testing.assert_close(rollouts.rewards[0, 0], torch.tensor([2 - d if d <= 0.8 + 1e-6 else 0.0 for d in away]))
    assert (rollouts.rewards[1] == 0).all()
    assert rollouts.mask.all()
    dense = collect(Navigation(30, goals="semicircle"), goals, lambda seen: goals[:, None] - seen, 1, generator())
    assert dense.mask.sum().item() == 40  # both arrive after 20 steps


def test_settings_of_navigation_name_what_is_new_only():
    assert Navigation(7).settings == {"horizon": 7}
    assert Navigation(7, goals="semicircle", disk=0.8).settings == {"horizon": 7, "goals": "semicircle", "disk": 0.8}
    for wrong, message in (({"goals": "circle"}, "did you mean 'semicircle'"), ({"disk": 0.0}, "disk must be above 0")):
        with pytest.raises(cavia.CaviaError, match=message):
            Navigation(**wrong)
