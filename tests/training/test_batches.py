"""Batches drawn many at a time: the same ones however a run is cut, and only where the family says so."""

import json

import pytest
import torch

import cavia
from cavia.training import batches as batching, run as running
from cavia.training.batches import TaskFeed, batches_ahead
from cavia.training.feed import Sizes
from cavia.training.several import Steps
from cavia.training.step import MetaStep
from tests.training.runs import assert_same, lines, make, train, weights


def settings(tasks=3, support=4, query=5):
    return Sizes(tasks, support, query)


def drawn(batches, count):
    """The next so many batches."""
    parts = []
    for _ in range(count):
        block, place = batches.following()
        parts.append(block[place])
        batches.used += 1
    return parts


def same(a, b):
    assert_same({"x": a.support_x, "y": a.query_y, **a.attributes}, {"x": b.support_x, "y": b.query_y, **b.attributes})


def new(ahead, seed=0):
    feed = TaskFeed(make(), cavia.Sine(), 3, 4, 5)
    feed.generator = torch.Generator().manual_seed(seed)
    feed.ahead = feed.used = ahead
    return feed


def test_batches_are_the_parts_of_what_is_drawn_at_once():
    generator = torch.Generator().manual_seed(0)
    for start in (0, 4):
        whole = cavia.Sine().sample(4 * 3, 4, 5, generator)
        expected = list(whole.split(3))
        actual = drawn(new(4), 8)[start : start + 4]
        for a, b in zip(actual, expected, strict=True):
            same(a, b)


def test_drawn_alone_they_are_what_the_family_samples():
    generator = torch.Generator().manual_seed(0)
    for batch in drawn(new(1), 3):
        same(batch, cavia.Sine().sample(3, 4, 5, generator))


@pytest.mark.parametrize("used", range(9))
@pytest.mark.parametrize("ahead", [1, 4])
def test_they_go_on_from_any_place(ahead, used):
    whole = drawn(new(ahead), 12)
    begun = new(ahead)
    drawn(begun, used)
    resumed = new(ahead, seed=1)
    resumed.load_state(*begun.state())
    for batches in (begun, resumed):
        for a, b in zip(drawn(batches, 12 - used), whole[used:], strict=True):
            same(a, b)
        batches.load_state(*begun.state())


class Own(cavia.Sine):
    """With a `sample` of its own, for which it does not speak."""

    def sample(self, *arguments, **named):
        return super().sample(*arguments, **named)


class Ahead(Own):
    draws_ahead = True


@pytest.mark.parametrize(
    ("family", "changes", "expected"),
    [
        (cavia.Sine(), {}, 100),
        (cavia.Sine(), {"tasks": 100, "support": 100, "query": 100}, 2),
        (cavia.Sine(), {"tasks": 1000, "support": 100}, 1),
        (cavia.Sine(), {"support": (4, 5)}, 1),
        (Own(), {}, 1),
        (Ahead(), {}, 100),
        (cavia.Completion(cavia.synthetic_faces(train=2, val=1, test=1)), {}, 1),
    ],
    ids=["sine", "large", "too large", "several counts", "own", "own, says so", "pictures"],
)
def test_how_many(family, changes, expected):
    assert batches_ahead(family, settings(**changes)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 7, 100, 101, 130])
def test_a_lengthened_run_goes_on_to_the_bit(tmp_path, length):
    whole, part = make(), make()
    train(whole, 140, tmp_path / "whole", every=70)
    train(part, length, tmp_path / "part", every=70)
    train(part, 140, tmp_path / "part", every=70)
    assert_same(weights(whole), weights(part))
    assert json.loads((tmp_path / "part" / "config.json").read_text())["batches_ahead"] == 100


def test_a_run_of_an_earlier_version_goes_on_with_batches_drawn_alone(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(batching, "batches_ahead", lambda *_: 1)
        train(make(), 10, tmp_path / "part")
        whole = make()
        train(whole, 20, tmp_path / "whole")
    assert "batches_ahead" not in json.loads((tmp_path / "part" / "config.json").read_text())
    resumed = make()
    train(resumed, 20, tmp_path / "part")
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "part")


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_steps_of_a_slow_loop_are_taken_one_by_one(monkeypatch):
    monkeypatch.setattr(running, "MOMENT", 0.0)
    taken = []
    steps = Steps.__call__

    def noted(self, block, start, rates):
        taken.append(len(rates))
        return steps(self, block, start, rates)

    monkeypatch.setattr(Steps, "__call__", noted)
    train(make(), 6, compile=True)
    assert taken == [1] * 6


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_a_compiled_run_takes_many_steps_at_once_and_goes_on_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "MOMENT", 60.0)
    taken = []
    steps = Steps.__call__

    def noted(self, block, start, rates):
        taken.append(len(rates))
        return steps(self, block, start, rates)

    monkeypatch.setattr(Steps, "__call__", noted)
    rates = {"lr_decay": 0.5, "lr_decay_every": 8, "cooldown": 0.5, "compile": True, "every": 25}
    whole, plain = make(), make()
    train(whole, 120, tmp_path / "whole", **rates)
    assert taken == [1, 2, 4, 8, 10, 25, 10, 15, 25, 20]  # up to lines of metrics, and to the cooldown
    train(plain, 120, tmp_path / "plain", **rates | {"compile": False})
    for a, b in zip(lines(tmp_path / "whole"), lines(tmp_path / "plain"), strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    for name, value in weights(whole).items():
        torch.testing.assert_close(value, weights(plain)[name], rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(MetaStep, "__call__", None)  # all steps are in the loop
    steady = rates | {"cooldown": 0.0}
    whole, part = make(), make()
    train(whole, 120, tmp_path / "steady", **steady)
    train(part, 33, tmp_path / "cut", **steady)
    train(part, 120, tmp_path / "cut", **steady)
    assert_same(weights(whole), weights(part))
