"""Training of policies: what is written, going on to the bit, learning, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import cavia
from cavia.envs import CheetahDirection, Navigation
from cavia.envs.simulator import RolloutSimulator
from tests.training.policies import Bandit, make, train
from tests.training.runs import assert_same, lines, weights

LOSS = cavia.GaussianPolicy.loss


@pytest.fixture
def hears_ctrl_c():
    """Tests started in the background of a script inherit that SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_metrics_tell_returns_kl_step_and_entropy(tmp_path):
    shown = []
    ended = train(make(), 4, tmp_path, progress=shown.append)
    records = lines(tmp_path)
    assert [line["iteration"] for line in records] == [1, 2, 3, 4]
    for line in records:
        assert {"return_before", "return_after", "kl", "share", "entropy", "gain"} <= line.keys()
    assert [line["iteration"] for line in records if "validation" in line] == [3, 4]
    assert ended.best_score == max(line["validation"] for line in records if "validation" in line)
    assert "return " in str(shown[-1])
    assert "entropy" in str(shown[-1])
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["environment"] == {"class": "Navigation", "settings": {"horizon": 10}}


def test_the_best_policy_is_kept(tmp_path):
    learner = make()
    ended = train(learner, 7, tmp_path, every=1)
    again = make()
    train(again, ended.best_iteration, tmp_path / "short", every=1)
    assert_same(weights(learner), weights(again))


@pytest.mark.slow
@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("stop_at", [2, 3])
def test_a_stopped_run_goes_on_to_the_bit(tmp_path, stop_at, monkeypatch):
    whole = make("MAML")
    train(whole, 6, tmp_path / "whole")
    drawn, sample = [], Navigation.sample_tasks

    def interrupt(self, count, generator, split="train"):
        drawn.append(split)
        if split == "train" and drawn.count("train") == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        return sample(self, count, generator, split)

    with monkeypatch.context() as patch:
        patch.setattr(Navigation, "sample_tasks", interrupt)
        with pytest.raises(cavia.Interrupted, match=f"stopped at iteration {stop_at} of 6; run the same again"):
            train(make("MAML"), 6, tmp_path / "part")
    resumed = make("MAML")
    train(resumed, 6, tmp_path / "part")
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "part")


KILLED = """
import os, sys, torch
torch.set_num_threads(int(sys.argv[2]))  # other threads round otherwise
from cavia.envs import CheetahDirection
from tests.training.policies import make, train
env, real, count = CheetahDirection(horizon=4, threads=2), CheetahDirection.reset, 0
def die(self, *arguments):
    global count
    count += 1
    if count == 8:      # in iteration 4, after the checkpoint of iteration 2
        os.kill(os.getpid(), 9)
    return real(self, *arguments)
CheetahDirection.reset = die
train(make(env=env), 6, sys.argv[1], env, every=2, validation_tasks=0)
"""


@pytest.mark.slow
def test_a_killed_run_of_cheetahs_goes_on_to_the_bit(tmp_path):
    pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')

    def run(folder):
        env = CheetahDirection(horizon=4, threads=2)
        learner = make(env=env)
        train(learner, 6, folder, env, every=2, validation_tasks=0)
        return learner

    whole = run(tmp_path / "whole")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(torch.get_num_threads())]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}  # for `tests`
    assert subprocess.run(command, env=environment, timeout=600, check=False).returncode == -signal.SIGKILL
    resumed = run(tmp_path / "killed")
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")


def test_a_folder_of_another_environment_is_refused(tmp_path):
    train(make(), 3, tmp_path)
    with pytest.raises(cavia.CaviaError, match="horizon is 10 there and 9 here"):
        train(make(), 3, tmp_path, Navigation(horizon=9))
    with pytest.raises(cavia.CaviaError, match=r"max_kl is 0\.01 there and 0\.1 here"):
        train(make(), 3, tmp_path, outer=cavia.TRPO(max_kl=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
@pytest.mark.parametrize("first_order", [False, True])
def test_a_discrete_environment_is_learned(method, first_order):
    learner, env = make(method, Bandit(), inner_lr=2.0, first_order=first_order), Bandit()
    train(learner, 25, env=env, tasks_per_batch=6, support=10, outer=cavia.TRPO(max_kl=0.05))
    sampled, likeliest = cavia.evaluate(
        learner, env, tasks=6, support=30, steps=1, metric=["return", "likeliest return"]
    )
    before, after = sampled.mean.tolist()
    assert after > before + 0.2
    assert likeliest.scores.shape == (2, 6)


@pytest.mark.slow
def test_navigation_is_learned():
    learner, env = make(hidden=(32,), inner_lr=1.0), Navigation(horizon=30)
    start = cavia.evaluate(learner, env, tasks=16, support=10, steps=1).mean
    train(learner, 15, env=env, tasks_per_batch=10, support=10, outer=cavia.TRPO(hvp_every=5))
    end = cavia.evaluate(learner, env, tasks=16, support=10, steps=1).mean
    assert end[1] > start[1] + 2
    assert end[1] > end[0]


def test_the_same_seed_gives_the_same_run_and_settings_matter():
    first, again, other = make(), make(), make()
    train(first, 2)
    train(again, 2)
    assert_same(weights(first), weights(again))
    for changes in ({"seed": 1}, {"discount": 0.5}, {"trace": 0.5}, {"support": 4}, {"query": 2}):
        other = make()
        train(other, 2, **changes)
        assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)), changes


def test_several_inner_steps_collect_episodes_before_each(tmp_path, monkeypatch):
    resets, real = [], Navigation.reset
    monkeypatch.setattr(Navigation, "reset", lambda self, *given: (resets.append(1), real(self, *given))[1])
    train(make(inner_steps=2), 1, tmp_path, validation_tasks=0)
    assert len(resets) == 3


def test_a_later_rate_scales_the_updates_after_the_first():
    learner, env = make("MAML", inner_lr=0.5), Navigation(horizon=10)
    whole, halved = (
        cavia.evaluate(learner, env, 4, 3, steps=3, updates=cavia.Updates(later_rate=rate)) for rate in (1.0, 0.5)
    )
    assert torch.equal(whole.scores[:2], halved.scores[:2])
    assert not torch.equal(whole.scores[2], halved.scores[2])


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (lambda: make(env=Bandit()), "Navigation needs a GaussianPolicy, got a CategoricalPolicy"),
        (lambda: cavia.CAVIA(cavia.MLP(2, 2), "mse"), "must be a policy .* got MLP"),
        (
            lambda: cavia.CAVIA(cavia.GaussianPolicy(3, 2), LOSS),
            "has 2 observations, the policy 3",
        ),
        (lambda: cavia.CAVIA(cavia.GaussianPolicy(2, 6), LOSS), "has 2 actions, the policy 6"),
        (lambda: cavia.CAVIA(cavia.GaussianPolicy(2, 2), "mse"), "the loss of a GaussianPolicy is"),
        (lambda: cavia.CNP(cavia.MLP(2, 2), "mse", 2, 2), "CNP does not adapt by gradient"),
        (lambda: make("Reptile"), "Reptile has an outer loss of its own"),
    ],
)
def test_what_does_not_fit_the_environment_is_refused(learner, message):
    with pytest.raises(cavia.CaviaError, match=message):
        train(learner(), 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"support": 0}, "support must be at least 1, got 0"),
        ({"discount": 1.5}, "discount must be from 0 to 1, got 1.5"),
        ({"minutes": -1}, "minutes must be above 0"),
        ({"every": 0}, "every must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(cavia.CaviaError, match=message):
        train(make(), 1, **changes)


def test_a_simulation_that_breaks_down_is_one_clear_error_and_the_run_can_go_on(tmp_path, monkeypatch):
    pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')
    env = CheetahDirection(horizon=4, threads=1)
    train(make(env=env), 2, tmp_path, env, every=1, validation_tasks=0)
    simulate = RolloutSimulator._simulate

    def broken(self, control):
        physics = simulate(self, control)
        physics[3, 2] = float("nan")
        return physics

    with monkeypatch.context() as patch:
        patch.setattr(RolloutSimulator, "_simulate", broken)
        with pytest.raises(cavia.CaviaError, match=r"task 1, rollout 0 broke down at step 0: qpos\[1\] is nan"):
            train(make(env=env), 4, tmp_path, env, every=1, validation_tasks=0)
    assert train(make(env=env), 4, tmp_path, env, every=1, validation_tasks=0).iterations == 4


@pytest.mark.parametrize("rate", [1e3, 1e30])  # the actions overflow, or the predictions already
def test_a_policy_that_diverges_is_named(rate):
    with pytest.raises(cavia.Diverged, match="MAML: the policy diverged; try a smaller inner_lr"):
        train(make("MAML", inner_lr=rate), 3)


def test_a_gymnasium_environment_is_trained_and_goes_on(tmp_path):
    gymnasium = pytest.importorskip("gymnasium", reason='needs pip install "cavia-torch[rl]"')

    def run(iterations, name="CartPole-v1", tasks=(5.0, 15.0)):
        env = cavia.envs.GymTasks(
            lambda: gymnasium.make(name),
            tasks,
            lambda env, gravity: setattr(env.unwrapped, "gravity", gravity),
            horizon=12,
        )
        learner = make(env=env)
        train(learner, iterations, tmp_path, env, every=1)
        env.close()
        return learner

    run(2)
    assert all(value.isfinite().all() for value in run(3).parameters())
    assert [line["iteration"] for line in lines(tmp_path)] == [1, 2, 3]
    for others in ({"name": "MountainCar-v0"}, {"tasks": (5.0, 10.0)}):
        with pytest.raises(cavia.CaviaError, match="environment"):
            run(4, **others)
