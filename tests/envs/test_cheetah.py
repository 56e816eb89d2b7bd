"""The cheetah against Gymnasium's, its two backends against each other, and simulations that blow up."""

import subprocess
import sys
import types

import numpy as np
import pytest
import torch

import cavia
from cavia.envs import CheetahDirection, CheetahVelocity

mujoco = pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')
gymnasium = pytest.importorskip("gymnasium", reason='needs pip install "cavia-torch[rl]"')

from cavia.envs.simulator import warnings_of_mujoco  # noqa: E402

STEPS = 8


def run(env, scale=1.0, tasks=2, rollouts=2):
    """Observations and rewards of STEPS steps, [STEPS, T, R, …]."""
    random = torch.Generator().manual_seed(0)
    env.reset(env.sample_tasks(tasks, random), rollouts, random)
    steps = [env.step(scale * torch.randn(tasks, rollouts, 6, generator=random)) for _ in range(STEPS)]
    return torch.stack([s.observation for s in steps]), torch.stack([s.reward for s in steps])


@pytest.mark.parametrize("observation", ["paper", "gymnasium"])
def test_the_list_steps_as_gymnasium_does(observation, monkeypatch):
    # Gymnasium's HalfCheetah imports imageio, which is not among the packages of the extra `rl`, for its videos only.
    monkeypatch.setitem(sys.modules, "imageio", types.ModuleType("imageio"))
    env = CheetahDirection(backend="list", observation=observation)
    random = torch.Generator().manual_seed(5)
    tasks = torch.tensor([1.0, -1.0])
    env.reset(tasks, 1, random)
    with warnings_of_mujoco():
        theirs = [gymnasium.make("HalfCheetah-v5", ctrl_cost_weight=0.05).unwrapped for _ in tasks]
    for copy, other in enumerate(theirs):
        other.reset(seed=0)
        mujoco.mj_resetData(other.model, other.data)
        other.set_state(env.simulator.positions[copy], env.simulator.velocities[copy])
    for _ in range(40):
        action = torch.rand(2, 1, 6, generator=random) * 2 - 1
        mine = env.step(action)
        for copy, other in enumerate(theirs):
            seen, _, _, _, info = other.step(action[copy, 0].double().numpy())
            state = np.concatenate((env.simulator.positions[copy, 1:], env.simulator.velocities[copy]))
            np.testing.assert_allclose(state, seen, rtol=0, atol=1e-12)
            np.testing.assert_allclose(mine.observation[copy, 0, :17], seen.astype(np.float32), rtol=1e-6)
            reward = tasks[copy].item() * info["x_velocity"] + info["reward_ctrl"]
            assert mine.reward[copy, 0].item() == pytest.approx(reward, abs=1e-5)
            if observation == "paper":
                mujoco.mj_kinematics(other.model, other.data)
                torso = other.data.body("torso").xpos
                np.testing.assert_allclose(mine.observation[copy, 0, 17:], torso, rtol=0, atol=1e-6)


def test_rollout_equals_the_list_to_the_bit_without_warm_starts():
    envs = [CheetahVelocity(backend=backend, warmstart=False, threads=2) for backend in ("rollout", "list")]
    ours, reference = (run(env) for env in envs)
    assert np.array_equal(envs[0].simulator.physics, envs[1].simulator.physics)
    assert all(torch.equal(a, b) for a, b in zip(ours, reference, strict=True))


def test_rollout_is_close_to_the_list_with_warm_starts():
    envs = [CheetahVelocity(backend=backend) for backend in ("rollout", "list")]
    ours, reference = (run(env) for env in envs)
    assert not np.array_equal(envs[0].simulator.physics, envs[1].simulator.physics)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=1e-3)


def test_the_number_of_threads_changes_nothing():
    one, two = (run(CheetahDirection(threads=threads), tasks=3) for threads in (1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_actions_are_clipped_and_cost():
    env = CheetahVelocity(backend="list")
    rewards = []
    for size in (1.0, 50.0):
        env.reset(torch.tensor([1.0]), 1, torch.Generator().manual_seed(0))
        before = env.simulator.positions[0, 0].item()
        rewards.append(env.step(torch.full((1, 1, 6), size)).reward.item())
        speed = (env.simulator.positions[0, 0].item() - before) / 0.05
        assert rewards[-1] == pytest.approx(-abs(speed - 1.0) - 0.05 * 6, abs=1e-6)
    assert rewards[0] == rewards[1]


def test_reset_noise_is_gymnasiums():
    env = CheetahDirection(threads=1)
    env.reset(torch.tensor([1.0]), 2000, torch.Generator().manual_seed(0))
    positions, velocities = env.simulator.positions, env.simulator.velocities
    assert np.abs(positions).max() <= 0.1
    assert positions.std() == pytest.approx(0.2 / 12**0.5, rel=0.03)
    assert velocities.std() == pytest.approx(0.1, rel=0.03)
    assert abs(velocities.mean()) < 0.005


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_directions_come_equally_often_and_velocities_evenly(split):
    random = torch.Generator().manual_seed(1)
    directions = CheetahDirection(threads=1).sample_tasks(10, random, split)
    assert directions.abs().eq(1).all()
    assert directions.sum() == 0
    velocities = CheetahVelocity(threads=1).sample_tasks(40, random, split)
    assert velocities.min() >= 0
    assert velocities.max() <= 2
    if split != "train":
        assert torch.equal(torch.histc(velocities, 40, 0, 2), torch.ones(40))


@pytest.mark.parametrize("backend", ["rollout", "list"])
@pytest.mark.parametrize(("entry", "value", "shown"), [(3, float("nan"), "nan"), (14, 1e11, r".*e\+")])
def test_a_simulation_that_blows_up_is_named(backend, entry, value, shown, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    env = CheetahVelocity(backend=backend, threads=2)
    run(env)
    for _ in range(2):
        state = env.state()
        state["physics"][3, entry] = value
        env.load_state(state)
        with pytest.raises(
            cavia.CaviaError, match=rf"task 1, rollout 1 broke .* step \d+: qpos\[0\] is {shown}.*smaller"
        ):
            env.step(torch.zeros(2, 2, 6))
        with pytest.raises(cavia.CaviaError, match="call reset first"):
            env.step(torch.zeros(2, 2, 6))
        assert run(env)[0].isfinite().all()  # it is as good as new after a reset
    assert list(tmp_path.iterdir()) == []  # MuJoCo's log is not left behind
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("backend", ["rollout", "list"])
def test_any_warning_of_mujoco_is_an_error(backend):
    env = CheetahVelocity(backend=backend, threads=1)
    env.reset(torch.ones(1), 1, torch.Generator().manual_seed(0))
    control = np.zeros((1, 6))
    control[0, 2] = np.nan  # MuJoCo would warn, put zeros in its place and go on
    with pytest.raises(Exception, match="CTRL") as caught:
        env.simulator.step(control)
    assert caught.value.index == 0


def test_wrong_options_are_named():
    with pytest.raises(cavia.CaviaError, match="unknown observation 'papr'; did you mean 'paper'"):
        CheetahDirection(observation="papr")
    with pytest.raises(cavia.CaviaError, match="unknown backend 'mjx'; choose from list, rollout"):
        CheetahDirection(backend="mjx")
    with pytest.raises(cavia.CaviaError, match="threads must be at least 1, got 0"):
        CheetahDirection(threads=0)
    with pytest.raises(cavia.CaviaError, match=r"a direction is 1 or -1, got 0\.5"):
        CheetahDirection(threads=1).reset(torch.tensor([1.0, 0.5]), 1, torch.Generator())


def test_missing_mujoco_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(cavia.CaviaError, match=r"needs mujoco .*: pip install 'cavia-torch\[rl\]'"):
        CheetahDirection()


@pytest.mark.slow
def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have():
    code = """
import os, torch
from cavia.envs import CheetahDirection
env = CheetahDirection(threads=2)
def run():
    env.reset(torch.tensor([1.0, -1.0]), 2, torch.Generator().manual_seed(0))
    return env.step(torch.ones(2, 2, 6)).reward
before = run()
child = os.fork()
same = torch.equal(run(), before)
if child:
    same = same and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
raise SystemExit(0 if same else 1)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=600, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
