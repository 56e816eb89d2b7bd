"""One run on several ranks is the run of one process, up to rounding."""

import os
import signal
import time

import pytest
import torch
from torch.nn.utils import parameters_to_vector

import cavia
from cavia.envs.base import Step
from cavia.tensor_file import read_json, read_tensors, write_json
from cavia.training.batches import TaskFeed
from cavia.training.outer import Length
from cavia.training.ranks import joined
from cavia.training.simulated import EpisodeFeed
from cavia.training.step import MetaStep
from tests.graphs import as_traced
from tests.training.runs import fit, lines, make
from tests.training.together import answers, on_ranks, started

TASKS = 6


class Double(cavia.TaskFamily):
    """Sine curves in float64."""

    draws_ahead = True

    def sample(self, tasks, support, query, generator, split="train"):
        batch = cavia.Sine().sample(tasks, support, query, generator, split)
        parts = (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
        return cavia.TaskBatch(*(part.double() for part in parts))


def trained(method, iterations, run_dir=None, changes=(), double=True):
    """A run on sine curves: the weights and what `fit` returns."""
    learner = make(method)
    learner, family = (learner.double(), Double()) if double else (learner, cavia.Sine())
    settings = {"every": 50, "tasks_per_batch": TASKS, "validation_tasks": 8, "progress": False, "compile": False}
    ended = fit(learner, family, iterations, run_dir, **settings | dict(changes))
    return parameters_to_vector(learner.parameters()).detach().tolist(), ended.loss, ended.best_score


def assert_alike(one, several, tolerance):
    """All ranks end with the weights of the process alone, and with the same to the bit."""
    weights, *numbers = one
    assert all(actual == several[0] for actual in several)
    torch.testing.assert_close(*map(torch.DoubleTensor, (several[0][0], weights)), rtol=0, atol=tolerance)
    assert several[0][1:] == pytest.approx(numbers, abs=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_200_steps_of_adam_are_those_of_one_process(method, ranks):
    assert_alike(trained(method, 200), on_ranks(ranks, trained, method, 200), 1e-8)


class Plane(cavia.envs.Navigation):
    """Navigation in float64, whose episodes end at different times."""

    def _start(self, tasks, rollouts, generator):
        self._goal = tasks.double()[:, None]
        self._position = 0.1 * torch.randn(len(tasks), rollouts, 2, generator=generator, dtype=torch.float64)
        return self._position.clone()

    def _advance(self, action):
        observation, reward, _ = super()._advance(action)
        return Step(observation, reward, reward > -0.1)


def acted(method, outer, iterations, tasks=TASKS, run_dir=None):
    """A run in an environment: the weights, and what `fit` returns."""
    torch.manual_seed(0)
    policy = cavia.GaussianPolicy(2, 2, (8,), context=3 if method == "CAVIA" else 0)
    learner = getattr(cavia, method)(policy, policy.loss, inner_lr=0.1).double()
    ended = cavia.fit(
        learner,
        Plane(horizon=6),
        iterations,
        outer=outer,
        tasks_per_batch=tasks,
        support=3,
        validation=cavia.Validation(tasks=4, every=50),
        run_dir=run_dir and cavia.RunFolder(run_dir, events=False),
        progress=False,
    )
    return parameters_to_vector(learner.parameters()).detach().tolist(), ended.best_score


# Ten conjugate gradients with the usual damping turn rounding of 1e-17 into a difference of 1e-5, and episodes into
# others, so steps are short here. The gradient of one step is compared below as it is.
TRPO = cavia.TRPO(max_kl=1e-4, cg_iterations=4, hvp_every=2, chunk=2)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("outer", [TRPO, cavia.PPO(epochs=3)], ids=["TRPO", "PPO"])
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_200_steps_on_policies_are_those_of_one_process(method, outer, ranks):
    assert_alike(acted(method, outer, 200), on_ranks(ranks, acted, method, outer, 200), 1e-8)


def gradients(kind, tasks):
    """The meta-gradient of one step in float32, on our share of a batch."""
    torch.manual_seed(0)
    with joined(torch.device("cpu")) as ranks:
        if kind == "Adam":
            feed, step = adam_parts(ranks, tasks)
            step(feed.draw()[0])
            return (10 * step.step.first_moment).tolist()  # after one step, a tenth of the gradient
        env = cavia.envs.Navigation(horizon=10)
        policy = cavia.GaussianPolicy(2, 2, (20,), context=3)
        learner = cavia.CAVIA(policy, policy.loss, inner_lr=0.1)
        feed, step = EpisodeFeed(learner, env, tasks, support=4), cavia.TRPO().step(learner, Length(1, None))
        assert step.spread(ranks)
        feed.spread(ranks)
        return step.gradient(step.parts(feed.draw()[0], None))[0].tolist()


def adam_parts(ranks, tasks):
    learner = make(hidden=(40, 40))
    feed, step = TaskFeed(learner, cavia.Sine(), tasks), cavia.Adam(clip=None).step(learner, Length(1, None))
    assert step.spread(ranks)
    feed.begin(None)
    feed.spread(ranks)
    return feed, step


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "tasks"), [(2, 6), (4, 7)])
@pytest.mark.parametrize("kind", ["Adam", "TRPO"])
def test_gradients_of_one_step_agree_to_rounding_also_when_shares_are_uneven(kind, ranks, tasks):
    alone, several = torch.tensor(gradients(kind, tasks)), on_ranks(ranks, gradients, kind, tasks)
    for one in several:
        assert one == several[0]
    difference = (torch.tensor(several[0]) - alone).abs().max() / alone.abs().max()
    assert difference < 2e-6
    assert alone.abs().max() > 0.1


WAYS = {
    "compiled": {"compile": True},
    "in chunks": {"chunk": 2},
    "bf16": {"precision": "bf16"},
    "uneven": {"tasks_per_batch": 5},
}


def trained_so(way):
    with as_traced():
        return trained("CAVIA", 30, changes=WAYS[way], double=way != "bf16")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_take_a_step_is_that_of_one_process(way):
    """Compiled, one process takes many steps in a call; the ranks take them one by one."""
    assert_alike(trained_so(way), on_ranks(2, trained_so, way), 1e-2 if way == "bf16" else 1e-8)


def normed(iterations):
    """A network with running statistics, which are part of what is trained."""
    torch.manual_seed(0)
    glyphs = cavia.Episodes(cavia.synthetic_glyphs(8, 6), ways=2, shots=1, queries=2, channels=1)
    network = cavia.ConvNet(ways=2, filters=3, image=28, channels=1, context=2, norm="running")
    learner = cavia.CAVIA(network, "cross_entropy", inner_lr=0.1)
    fit(learner, glyphs, iterations, tasks_per_batch=3, validation_tasks=0, progress=False, compile=False)
    return learner.model.running.flatten().tolist()


@pytest.mark.slow
def test_running_statistics_are_those_of_all_tasks():
    alone, (one, other) = normed(2), on_ranks(2, normed, 2)
    assert one == other
    assert one == pytest.approx(alone, abs=1e-5)


def stopped(at, folder):
    """A run whose rank 1 is asked to stop at an iteration."""
    take = MetaStep.__call__

    def step(self, batch):
        if self.ranks.number == self.ranks.count - 1 and self.count == at:
            os.kill(os.getpid(), signal.SIGTERM)
            if self.ranks.count > 1:  # as torchrun repeats it
                os.kill(os.getpid(), signal.SIGTERM)
        return take(self, batch)

    MetaStep.__call__ = step
    return trained("CAVIA", 60, folder)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2), (2, 3)])
def test_a_stopped_run_goes_on_with_another_number_of_ranks(tmp_path, first, second):
    whole = trained("CAVIA", 60, tmp_path / "whole")
    with started(first, stopped, 20, tmp_path / "part") as (_, receivers):
        ended = answers(receivers)
    assert [one.args[0] for one in ended] == ["Interrupted"] * first
    assert all("of 60; run the same again to resume" in one.args[1] for one in ended)
    at = read_tensors(tmp_path / "part" / "checkpoint.safetensors")[1]["iteration"]
    assert 20 < at < 60
    assert_alike(whole, on_ranks(second, trained, "CAVIA", 60, tmp_path / "part"), 1e-9)
    paths = [tmp_path / name for name in ("whole", "part")]
    assert [line["iteration"] for line in lines(paths[1])] == [line["iteration"] for line in lines(paths[0])]


class Broken(Double):
    """Curves of which one has a hole from the third batch on; the rank that has it is the last."""

    draws_ahead = False

    def sample(self, tasks, support, query, generator, split="train"):
        batch = super().sample(tasks, support, query, generator, split)
        self.drawn = getattr(self, "drawn", 0) + 1
        if self.drawn == 3:
            batch.query_y[-1, 2] = float("nan")
        return batch


def trained_on_holes():
    fit(make().double(), Broken(), 5, tasks_per_batch=4, validation_tasks=0, progress=False)


@pytest.mark.slow
def test_ranks_end_alike_where_a_loss_is_not_finite():
    with started(2, trained_on_holes) as (_, receivers):
        one, other = answers(receivers)
    assert one.args == other.args
    assert one.args[0] == "Diverged"
    assert "at iteration 3; query_y of task 3, point 2 of the batch is nan: fix the data" in one.args[1]


def trained_without_end(folder):
    trained("CAVIA", 10**6, folder, {"every": 10**5})


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_rank_ends_the_others_within_seconds(tmp_path, killed):
    with started(3, trained_without_end, tmp_path) as (processes, receivers):
        while not (tmp_path / "config.json").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        processes[killed].kill()
        begin = time.monotonic()
        answered = answers(receivers)
        assert time.monotonic() - begin < 10
    assert answered.pop(killed) is None
    for one in answered:
        assert one.args == (
            "CaviaError",
            "another of the 3 ranks has ended (killed, or out of memory?); run the same again to resume",
        )


def failing(where):
    """A run that only the rank `where` cannot go on with."""

    def loss(prediction, target):
        if int(os.environ["RANK"]) == where:
            raise RuntimeError("no such luck")
        return (prediction - target).square().mean(-1)

    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), loss)
    fit(learner, cavia.Sine(), 50, tasks_per_batch=4, progress=False)


@pytest.mark.slow
def test_the_error_of_one_rank_is_told_by_all():
    with started(2, failing, 1) as (_, receivers):
        first, second = answers(receivers)
    assert first.args == ("CaviaError", "rank 1: no such luck")
    assert second.args[0] == "RuntimeError"


def trained_with_seed_of_rank():
    trained("CAVIA", 2, changes={"seed": int(os.environ["RANK"])})


@pytest.mark.slow
def test_ranks_that_were_given_different_runs_are_refused():
    with started(2, trained_with_seed_of_rank) as (_, receivers):
        texts = [one.args[1] for one in answers(receivers)]
    assert "the ranks must train the same run: seed is 0 on rank 0 and 1 on rank 1" in texts[1]


@pytest.mark.slow
def test_each_rank_needs_a_task():
    with started(3, trained, "CAVIA", 2, None, {"tasks_per_batch": 2}) as (_, receivers):
        answered = answers(receivers)
    assert all("tasks_per_batch must be at least the number of ranks, 3, got 2" in one.args[1] for one in answered)


@pytest.mark.slow
def test_ranks_go_on_with_the_kernel_of_the_run(tmp_path):
    """Its config.json, which only the first rank reads, names none if the run is older than kernels."""
    acted("CAVIA", TRPO, 2, run_dir=tmp_path)
    config = read_json(tmp_path / "config.json")
    assert config.pop("kernel")
    write_json(tmp_path / "config.json", config)
    one, other = on_ranks(2, acted, "CAVIA", TRPO, 4, TASKS, tmp_path)
    assert one == other
    assert "kernel" not in read_json(tmp_path / "config.json")
