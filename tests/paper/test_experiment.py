"""Settings from text and from values, names that are not known, cells."""

from dataclasses import asdict

import pytest

from cavia.errors import CaviaError
from cavia.paper.catalogue import CATALOGUE, find
from cavia.paper.experiment import Cell


@pytest.mark.parametrize(
    ("name", "text", "typed"),
    [
        ("iterations", "2000", 2000),
        ("lr", "0.01", 0.01),
        ("lr", "1", 1),  # a whole number where any is meant
        ("contexts", "2,5", [2, 5]),
        ("contexts", "2", 2),
        ("maml_lrs", "0.01, 0.02", (0.01, 0.02)),
    ],
)
def test_text_and_values_give_the_same_settings(name, text, typed):
    table1 = find("table1")
    settings = table1.settings("quick", {name: text})
    assert settings == table1.settings("quick", {name: typed})
    now = getattr(table1.sets["quick"], name)
    assert type(getattr(settings, name)) is type(now)
    assert asdict(settings) | {name: now} == asdict(table1.sets["quick"])


def test_names_may_have_commas_around_them():
    assert find("omniglot").settings("quick", {"methods": "CAVIA, MAML (first order)"}).methods == (
        "CAVIA",
        "MAML (first order)",
    )
    assert find("table2").settings("quick", {"orders": ["ordered"]}).orders == ("ordered",)
    assert find("table2").settings("tuned", {"init": "xavier"}).init == "xavier"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": "many"}, "iterations must be a whole number, got 'many'"),
        ({"iterations": 2.5}, "iterations must be a whole number, got 2.5"),
        ({"iterations": True}, "iterations must be a whole number, got True"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"iterations": [5]}, "iterations must be a whole number, got [5]"),
        ({"lr": "fast"}, "lr must be a number, got 'fast'"),
        ({"lr": -1}, "lr must be above 0 and finite, got -1.0"),
        ({"lr": "nan"}, "lr must be above 0 and finite, got nan"),
        ({"contexts": ["2", "x"]}, "contexts must be a whole number, got 'x'"),
        ({"contexts": []}, "contexts must have at least one value, got none"),
        ({"contexts": "-1"}, "contexts must be at least 0, got -1"),
        ({"iteration": 5}, "table1 has no setting 'iteration'; did you mean 'iterations'?"),
        ({"quite_another": 5}, "table1 has no setting 'quite_another'; choose from clip, contexts, "),
    ],
)
def test_bad_settings_are_one_line(changes, message):
    with pytest.raises(CaviaError) as error:
        find("table1").settings("quick", changes)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_what_may_be_zero():
    assert find("table1").settings("quick", {"minutes": 0, "contexts": [0]}).contexts == (0,)
    assert find("table2").settings("quick", {"cooldown": 0}).cooldown == 0.0


def test_unknown_sets_and_experiments_are_one_line_with_those_that_there_are():
    with pytest.raises(CaviaError, match=r"^table1 has no set of settings 'tuned'; it has quick, full, first$"):
        find("table1").settings("tuned")
    with pytest.raises(CaviaError, match=r"^unknown experiment 'fig3bb'; did you mean 'fig3b'"):
        find("fig3bb")


@pytest.mark.parametrize("name", CATALOGUE)
def test_sets_and_cells(name):
    experiment = find(name)
    assert {"quick", "full"} <= experiment.sets.keys() <= {"quick", "full", "tuned", "first"}
    assert experiment.minutes.keys() == experiment.sets.keys()
    assert bool(experiment.differs) or "tuned" not in experiment.sets
    for settings in experiment.sets.values():
        cells = experiment.cells(settings, 2)
        assert len({cell.name for cell in cells}) == len(cells)
        assert {cell["seed"] for cell in cells} == {0, 1}
        assert set(experiment.chooses) & {"iterations", "lr", "hidden"} == set()
    quick, full = experiment.sets["quick"], experiment.sets["full"]
    if getattr(quick, "minutes", None):  # the same time for each method
        assert quick.minutes < full.minutes
    else:
        assert quick.iterations < 10_000
        assert quick.iterations < full.iterations


def test_settings_of_a_cell_are_without_those_that_choose_cells():
    table1 = find("table1")
    one, other = (table1.of_a_cell(table1.settings("quick", {"contexts": sizes})) for sizes in ([2], [2, 50]))
    assert one == other
    assert one["hidden"] == [40, 40]
    assert table1.of_a_cell(table1.settings("quick", {"test_tasks": 3})) != one


def test_names_of_cells_are_names_of_folders():
    cell = Cell({"method": "CAVIA, learned start", "context": 5, "inner_lr": 1e-6, "seed": 0})
    assert cell.name == "CAVIA_learned_start-context=5-inner_lr=1e-06-seed=0"


@pytest.mark.parametrize("name", ["table1", "fig3a", "fig3b", "fig3c", "fig4"])
def test_the_full_budget_of_sine_curves_is_the_papers(name):
    assert find(name).sets["full"].iterations == 50_000
