"""Our environments in Gymnasium, and Gymnasium's environments with tasks."""

import numpy as np
import pytest
import torch

import cavia
from cavia.envs import GymTasks, collect, register

gymnasium = pytest.importorskip("gymnasium", reason='needs pip install "cavia-torch[rl]"')
pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')

from gymnasium.utils.env_checker import check_env  # noqa: E402

NAMES = ["Navigation", "CheetahDirection", "CheetahVelocity"]
Box, Discrete = gymnasium.spaces.Box, gymnasium.spaces.Discrete


class Line(gymnasium.Env):
    """Walk along a line to a target; of any spaces, and broken on demand."""

    observation_space = Box(-10.0, 10.0, (1,), np.float32)

    def __init__(self, action_space=None, fails_at=None, gives=None):
        self.action_space = action_space or Box(-1.0, 1.0, (1,), np.float32)
        self.fails_at, self.gives, self.target, self.closed = fails_at, gives, 0.0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.x = 0, self.np_random.uniform(-0.1, 0.1)
        return self.seen(), {}

    def step(self, action):
        if self.time == self.fails_at:
            raise OSError("the simulator went away")
        self.time += 1
        self.x += float(action - 1 if isinstance(self.action_space, Discrete) else action[0])
        away = abs(self.x - self.target)
        return self.seen(), -away, away < 0.5, self.time >= 6, {}

    def seen(self):
        return np.array([self.x if self.gives is None else self.gives], dtype=np.float32)

    def close(self):
        self.closed = True


def set_target(env, target):
    env.target = target


def line(tasks=(1.0, -2.0, 3.0), **settings):
    return GymTasks(lambda: Line(**settings), tasks, set_target, horizon=8)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:.*Box observation space (minimum|maximum) value is:UserWarning")
def test_gymnasiums_own_check(name):
    register()
    check_env(gymnasium.make(f"cavia/{name}-v0").unwrapped)


@pytest.mark.parametrize(("name", "task"), [("Navigation", [0.1, -0.2]), ("CheetahVelocity", 1.5)])
def test_a_task_is_fixed_or_drawn(name, task):
    env = gymnasium.make(f"cavia.envs.single_task:cavia/{name}-v0")
    drawn = [env.reset(seed=seed)[1]["task"] for seed in (1, 1, 2)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert env.reset(options={"task": task})[1]["task"] == pytest.approx(task)
    fixed = gymnasium.make(f"cavia/{name}-v0", task=task)
    assert fixed.reset(seed=3)[1]["task"] == pytest.approx(task)
    with pytest.raises(cavia.CaviaError, match="a task must have shape"):
        gymnasium.make(f"cavia/{name}-v0", task=[1.0, 2.0, 3.0])


def test_a_single_task_earns_what_the_batch_earns():
    register()
    env = gymnasium.make("cavia/Navigation-v0", task=[0.1, -0.2])
    env.reset(seed=0)
    observation, reward, terminated, truncated, _ = env.step(np.array([0.1, -0.1], dtype=np.float32))
    assert observation == pytest.approx([0.1, -0.1])
    assert reward == pytest.approx(-0.1)
    assert (terminated, truncated) == (False, False)
    assert env.step(np.array([0.0, -0.1], dtype=np.float32))[2]
    with pytest.raises(cavia.CaviaError, match=r"action must have shape \[2\], got \[3\]"):
        env.unwrapped.step(np.zeros(3))


def test_ours_through_gymnasium_and_back():
    register()
    tasks = [[0.1, 0.2], [-0.3, 0.4]]
    env = GymTasks(
        lambda: gymnasium.make("cavia/Navigation-v0"),
        tasks,
        lambda env, goal: setattr(env.unwrapped, "task", torch.tensor([goal])),
    )
    assert (env.horizon, env.observations, env.actions, env.discrete) == (100, 2, 2, False)
    env.horizon = 3
    rollouts = collect(env, torch.tensor([0, 1]), lambda seen: torch.full((2, 2, 2), 0.05), 2, random())
    ours = cavia.envs.Navigation(horizon=3)
    same = collect(ours, torch.tensor(tasks), lambda seen: torch.full((2, 2, 2), 0.05), 2, random())
    torch.testing.assert_close(rollouts.rewards, same.rewards)
    torch.testing.assert_close(rollouts.observations, same.observations)


def test_anyones_environment_with_tasks():
    env = line()
    tasks = env.sample_tasks(3, random(), "test")
    assert tasks.tolist() == [0, 1, 2]
    rollouts = collect(env, tasks, lambda seen: torch.ones(3, 2, 1), 2, random())
    assert rollouts.mask.sum(-1).tolist() == [[1, 1], [6, 6], [3, 3]]  # reached, cut short by the environment, reached
    again = collect(line(), tasks, lambda seen: torch.ones(3, 2, 1), 2, random())
    assert torch.equal(rollouts.rewards, again.rewards)
    assert env.state()["done"].all()
    env.reset(tasks, 2, random())
    with pytest.raises(cavia.CaviaError, match="cannot be saved in the middle of an episode"):
        env.state()
    copies = list(env._copies)
    env.close()
    assert all(copy.closed for copy in copies)


def test_discrete_actions():
    env = line(action_space=Discrete(3))
    assert (env.discrete, env.actions) == (True, 3)
    rollouts = collect(env, torch.tensor([0, 2]), lambda seen: torch.full((2, 2), 2), 2, random())
    assert rollouts.actions.shape == (2, 2, 3)
    assert rollouts.mask.sum(-1).tolist() == [[1, 1], [3, 3]]
    env.reset(torch.tensor([0]), 1, random())
    with pytest.raises(cavia.CaviaError, match=r"action of task 0, rollout 0 at step 0 is 3; choose from 0 … 2"):
        env.step(torch.tensor([[3]]))
    with pytest.raises(cavia.CaviaError, match=r"whole numbers below 3, got torch.float32; use action.long\(\)"):
        env.step(torch.tensor([[1.0]]))


def test_splits_of_tasks():
    env = line({"train": [1.0, 2.0], "test": [3.0, 4.0, 5.0]})
    assert set(env.sample_tasks(50, random()).tolist()) == {0, 1}
    assert env.sample_tasks(6, random(), "test").tolist() == [2, 3, 4, 2, 3, 4]
    with pytest.raises(cavia.CaviaError, match="no tasks for 'val'"):
        env.sample_tasks(1, random(), "val")
    with pytest.raises(cavia.CaviaError, match="tasks are for train, val, test, got 'tset'"):
        line({"tset": [1.0]})
    with pytest.raises(cavia.CaviaError, match="at least 1 task, got none"):
        line([])
    with pytest.raises(cavia.CaviaError, match=r"indices below 5, got \[9\]"):
        env.reset(torch.tensor([9]), 1, random())


def test_spaces_that_do_not_fit_are_named():
    class Named(Line):
        observation_space = gymnasium.spaces.Dict({"x": Line.observation_space})

    with pytest.raises(cavia.CaviaError, match=r"observation space Dict\('x': Box.*only Box is; .*FlattenObservation"):
        GymTasks(Named, [1.0], set_target, horizon=8)
    with pytest.raises(cavia.CaviaError, match=r"action space MultiDiscrete\(\[2 2\]\) is not supported"):
        line(action_space=gymnasium.spaces.MultiDiscrete([2, 2]))
    with pytest.raises(cavia.CaviaError, match="no limit of steps of its own; give GymTasks a horizon"):
        GymTasks(Line, [1.0], set_target)


def test_an_environment_that_fails_is_named():
    tasks = torch.tensor([0, 1])
    with pytest.raises(cavia.CaviaError, match="task 0, rollout 0 at step 2 failed in step: OSError: the simulator"):
        collect(line(fails_at=2, tasks=(9.0, 9.0)), tasks, lambda seen: torch.ones(2, 1, 1), 1, random())
    with pytest.raises(cavia.CaviaError, match="task 0, rollout 0 at step 0 gave the observation nan"):
        line(gives=float("nan")).reset(tasks, 1, random())
    with pytest.raises(cavia.CaviaError, match="failed in set_task: KeyError"):
        GymTasks(Line, [1.0], lambda env, task: {}["mass"], horizon=8).reset(torch.tensor([0]), 1, random())


def test_tasks_that_are_kept_go_on_as_they_do_among_all():
    tasks = torch.tensor([0, 1, 2])
    whole, part = line(), line()
    whole.reset(tasks, 2, random())
    part.reset(tasks, 2, random())
    part.keep(1, 3)
    for _ in range(3):
        expected, actual = whole.step(torch.ones(3, 2, 1)), part.step(torch.ones(2, 2, 1))
        for name in ("observation", "reward", "done"):
            assert torch.equal(getattr(actual, name), getattr(expected, name)[1:])
    with pytest.raises(cavia.CaviaError, match="keep must name at least 1 of the 2 tasks, got start=1 and stop=3"):
        part.keep(1, 3)
