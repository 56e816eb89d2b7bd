"""`check_env`."""

import torch
from torch import Tensor

from cavia.conformance.promise import keeps, require_equal
from cavia.envs.base import Step, TaskEnv
from cavia.kinds import checked
from cavia.tasks.batch import SPLITS, shape

TASKS, ROLLOUTS, STEPS = 3, 2, 3


@checked
def check_env(env: TaskEnv) -> None:
    """Check an environment; raise a `CaviaError` that names the promise of `TaskEnv` that it breaks.

    The environment is reset and stepped, which ends any running episodes.

    >>> from cavia.envs import Navigation
    >>> check_env(Navigation())
    """
    for name in ("observations", "actions", "horizon"):
        value = getattr(env, name, None)
        keeps(env, f"`{name}` is a whole number of at least 1", isinstance(value, int) and value >= 1, f"it is {value}")
    for split in SPLITS:
        first, again = (env.sample_tasks(TASKS, _generator(), split) for _ in range(2))
        keeps(env, "tasks are [T, *task_shape]", first.shape == (TASKS, *env.task_shape), f"got {shape(first)}")
        require_equal(env, f"the same generator state gives the same tasks, in {split!r}", again, first)
    first_steps, second_steps = _play(env), _play(env)
    _check_steps(env, first_steps)
    for one, other in zip(first_steps, second_steps, strict=True):
        for name in Step._fields:
            promise = f"the same generator state and actions give the same {name}"
            require_equal(env, promise, getattr(one, name), getattr(other, name))
    _check_state(env)
    _check_keep(env, first_steps)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _action(env: TaskEnv, time: int) -> Tensor:
    random = torch.Generator().manual_seed(time)
    if env.discrete:
        return torch.randint(env.actions, (TASKS, ROLLOUTS), generator=random)
    return 0.1 * torch.randn(TASKS, ROLLOUTS, env.actions, generator=random)


def _start(env: TaskEnv) -> Tensor:
    random = _generator()
    return env.reset(env.sample_tasks(TASKS, random), ROLLOUTS, random)


def _play(env: TaskEnv) -> list[Step]:
    observation = _start(env)
    expected = (TASKS, ROLLOUTS, env.observations)
    keeps(env, "first observations are [T, R, observations]", observation.shape == expected, shape(observation))
    return [env.step(_action(env, time)) for time in range(min(STEPS, env.horizon))]


def _check_steps(env: TaskEnv, steps: list[Step]) -> None:
    each = (TASKS, ROLLOUTS)
    ended = torch.zeros(each, dtype=torch.bool)
    for observation, reward, done in steps:
        kept = observation.shape == (*each, env.observations)
        keeps(env, "observations are [T, R, observations]", kept, f"got {shape(observation)}")
        keeps(env, "rewards are [T, R]", reward.shape == each, f"got {shape(reward)}")
        keeps(env, "done is bool [T, R]", done.shape == each and done.dtype == torch.bool, f"{done.dtype}")
        finite = bool(observation.isfinite().all() and reward.isfinite().all())
        keeps(env, "observations and rewards are finite", finite)
        keeps(env, "an episode that has ended stays ended", bool((done | ~ended).all()))
        keeps(env, "an episode that has ended earns nothing more", bool((reward[ended] == 0).all()))
        ended = done


def _check_state(env: TaskEnv) -> None:
    _start(env)
    env.step(_action(env, 0))
    kept = {name: value.clone() for name, value in env.state().items()}
    if env.horizon < 2:
        return
    expected = env.step(_action(env, 1))
    env.load_state(kept)
    again = env.step(_action(env, 1))
    for name in Step._fields:
        promise = f"load_state resumes to the bit where `state` was taken ({name})"
        require_equal(env, promise, getattr(again, name), getattr(expected, name))


def _check_keep(env: TaskEnv, steps: list[Step]) -> None:
    """`fit` on several processes gives each of them some of the tasks."""
    _start(env)
    env.keep(1, TASKS)
    for time, expected in enumerate(steps):
        kept = env.step(_action(env, time)[1:])
        for name in Step._fields:
            promise = f"tasks that are kept go on as they do among all ({name}; write `_keep` if they do not)"
            require_equal(env, promise, getattr(kept, name), getattr(expected, name)[1:])
