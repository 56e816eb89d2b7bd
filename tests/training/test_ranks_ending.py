"""Runs on several ranks that stop, fail or are refused: all ranks end alike."""

import os
import signal
import time

import pytest

import cavia
from cavia.tensor_file import read_tensors
from cavia.training.step import MetaStep
from tests.training.ranked import Double, assert_alike, trained
from tests.training.runs import fit, lines, make
from tests.training.together import answers, on_ranks, started


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
def test_a_killed_rank_ends_the_others_soon(tmp_path, killed):
    with started(3, trained_without_end, tmp_path) as (processes, receivers):
        while not (tmp_path / "config.json").exists():
            assert all(process.is_alive() for process in processes)
            time.sleep(0.05)
        time.sleep(0.5)
        processes[killed].kill()
        begin = time.monotonic()
        answered = answers(receivers)
        assert time.monotonic() - begin < 60  # about one; for another's message, ranks would wait a year
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
