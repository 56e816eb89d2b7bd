"""Intervals over tasks and seeds, which are crossed, and paired differences, against simulation and by hand."""

import math

import numpy as np
import pytest

from cavia.paper.schema import CellResult
from cavia.paper.showing import cell
from cavia.paper.statistics import above, below, best, difference, estimate, finite, grouped, scores, spread, text
from tests.paper.cells import lost, result


def crossed(rng, seeds, tasks, of_seeds, of_tasks, rest=0.0, tasks_effect=None):
    """Scores with an effect of each seed, one of each task and one of both: [seeds, tasks]."""
    task = rng.normal(size=(1, tasks)) if tasks_effect is None else tasks_effect
    return of_seeds * rng.normal(size=(seeds, 1)) + of_tasks * task + rest * rng.normal(size=(seeds, tasks))


@pytest.mark.parametrize(("of_seeds", "of_tasks"), [(1.0, 1.0), (0.2, 2.0), (1.0, 0.1)])
def test_the_interval_is_as_wide_as_the_means_of_new_seeds_and_tasks_are_apart(of_seeds, of_tasks):
    rng = np.random.default_rng(0)
    drawn = [crossed(rng, 12, 60, of_seeds, of_tasks, rest=0.3) for _ in range(1500)]
    apart = np.std([sample.mean() for sample in drawn])
    widths = np.sqrt(np.mean([estimate(sample)["interval"] ** 2 for sample in drawn])) / 1.96
    assert widths == pytest.approx(apart, rel=0.06)


def test_the_interval_of_a_difference_is_paired_by_task():
    rng = np.random.default_rng(1)
    differences, widths = [], []
    for _ in range(1500):
        task = rng.normal(size=(1, 60))
        ours, theirs = (crossed(rng, 10, 60, 0.3, 5.0, 0.2, task) for _ in range(2))
        one = difference(ours, theirs)
        differences.append(one["mean"])
        widths.append(one["interval"] / 1.96)
    assert np.sqrt(np.mean(np.square(widths))) == pytest.approx(np.std(differences), rel=0.06)
    assert np.std(differences) < 0.3  # the tasks, which are 5 apart, cancel


def test_by_hand():
    by_seed = np.array([[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]])
    of_tasks, of_seeds = np.var([2.0, 3.0, 7.0], ddof=1) / 3, np.var([3.0, 5.0], ddof=1) / 2
    assert estimate(by_seed) == {"mean": 4.0, "interval": pytest.approx(1.96 * math.sqrt(of_tasks + of_seeds))}
    other = np.array([[0.0, 1.0, 2.0]])  # another number of seeds
    of_differences = np.var([2.0, 2.0, 5.0], ddof=1) / 3
    expected = 1.96 * math.sqrt(of_differences + of_seeds)
    assert difference(by_seed, other) == {"mean": 3.0, "interval": pytest.approx(expected)}


def test_one_seed_leaves_the_tasks_and_one_task_the_seeds():
    one_seed, one_task = np.array([[1.0, 2.0, 6.0]]), np.array([[1.0], [2.0], [6.0]])
    expected = 1.96 * np.std([1, 2, 6], ddof=1) / math.sqrt(3)
    assert estimate(one_seed) == estimate(one_task) == {"mean": 3.0, "interval": pytest.approx(expected)}
    assert estimate(np.array([[3.0]])) == {"mean": 3.0, "interval": None}
    assert text(estimate(np.array([[3.0]])), 2) == "3.00"


def test_the_whole_interval_must_be_on_one_side():
    assert below({"mean": -1.0, "interval": 0.9})
    assert not below({"mean": -1.0, "interval": 1.0})
    assert above({"mean": 1.0, "interval": 0.9})
    assert not above({"mean": 1.0, "interval": 1.1})
    assert below({"mean": -1.0, "interval": None})


def test_scores_that_are_not_finite_are_the_worst():
    group = [result({}, {"mse": [[1.0, 2.0], [None, 2.0]]}), result({"seed": 1}, {"mse": [[1.0, 4.0], [1.0, 3.0]]})]
    assert scores(group, "mse", 0).tolist() == [[1.0, 2.0], [1.0, 4.0]]
    assert scores(group, "mse").tolist() == [[math.inf, 2.0], [1.0, 3.0]]
    assert scores(group, "mse", worst=-math.inf)[0, 0] == -math.inf
    assert estimate(scores(group, "mse")) == {"mean": math.inf, "interval": None}


def test_infinite_errors_are_compared_without_a_warning():
    good, bad = np.array([[1.0, 2.0]]), np.array([[math.inf, 2.0]])
    assert below(difference(good, bad))
    assert above(difference(bad, good))
    for both in (difference(bad, bad), difference(bad, np.array([[2.0, math.inf]]))):
        assert math.isnan(both["mean"])
        assert not below(both)
        assert not above(both)
    assert finite(estimate(bad)) is None


def test_groups_are_of_one_kind_and_without_those_that_diverged():
    results = [
        result({"method": "MAML", "rate": 1}, {}), result({"method": "MAML", "rate": 1, "seed": 1}, {}),
        result({"method": "MAML", "rate": 2}, {}), lost({"method": "MAML", "rate": 2, "seed": 1}),
        result({"method": "CAVIA", "rate": 1}, {}),
    ]  # fmt: skip
    groups = grouped(results, lambda one: one["rate"], method="MAML")
    assert {rate: [one["seed"] for one in group] for rate, group in groups.items()} == {1: [0, 1]}


def test_the_best_group_is_that_of_the_best_mean_validation_score():
    def group(*values: float | None) -> list[CellResult]:
        return [CellResult({"seed": seed}, validation=value) for seed, value in enumerate(values)]

    groups = [group(1.0, 3.0), group(2.5, 2.5), group(0.0, None)]
    assert best(groups) is groups[0]
    assert best(groups, higher_is_better=True) is groups[1]
    assert best([]) == []


def test_a_cell_shows_the_spread_of_its_seeds_and_no_number_that_is_none():
    two = np.array([[0.20, 0.22], [0.24, 0.26]])
    shown = cell(two, (0.21, 0.02), 2, "inner rate 1")
    assert shown["ours"]["mean"] == pytest.approx(0.23)
    assert shown["paper"] == {"mean": 0.21, "interval": 0.02}
    assert (shown["verdict"], shown["note"]) == ("within", "inner rate 1; seeds 0.210 to 0.250")
    assert spread(two[:1], 3) == ""
    broken = cell(np.array([[math.inf, 0.2]]), (0.21, 0.02), 2)
    assert (broken["ours"], broken["verdict"]) == (None, "short")
    assert cell(None, (0.21, 0.02), 2) is None
    assert cell(np.array([]), (0.21, 0.02), 2) is None
    percent = cell(np.array([[0.5, 0.52]]), (47.0, None), 2, higher_is_better=True, unit=100)
    assert (percent["ours"]["mean"], percent["verdict"]) == (pytest.approx(51.0), "better")
