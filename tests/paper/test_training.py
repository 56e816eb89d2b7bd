"""One cell: what it leaves, what it is trained with, and what it takes over from a neighbour."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import cavia
from cavia.errors import CaviaError
from cavia.paper.catalogue import CATALOGUE, find
from cavia.paper.experiment import Cell, Place
from cavia.paper.methods import METHODS
from cavia.paper.schema import CELL_FORMAT, CellResult
from cavia.paper.training import adopt, fit_arguments, fit_settings, run_cell
from cavia.tensor_file import read_json
from cavia.training.step import MetaStep
from tests.paper.cells import folder_of, train

SINE = {"iterations": 2, "tasks_per_batch": 2, "validation_tasks": 4, "validation_query": 5, "test_tasks": 6}
SINE |= {"test_points": 5, "hidden": (4,)}
CELL = Cell({"method": "CAVIA", "context": 5, "inner_lr": 1.0, "seed": 0})
POLICY = {
    "iterations": 1, "tasks_per_batch": 2, "rollouts": 2, "horizon": 5, "test_tasks": 2, "test_rollouts": 2,
    "updates": 1, "every": 1, "validation_tasks": 2, "hidden": (4,), "context": 2, "hvp_every": 1,
}  # fmt: skip
FACES = {
    "iterations": 2, "tasks_per_batch": 4, "query": 8, "hidden": (6,), "context": 4, "inner_steps": 2,
    "validation_tasks": 3,
}  # fmt: skip
FACE = Cell({"method": "CAVIA", "order": "random", "known": 5, "seed": 0})


@pytest.fixture
def no_training(monkeypatch):
    """From here on nothing may be trained."""

    def switch_off() -> None:
        def no_step(self, batch):
            raise AssertionError("it trains again")

        monkeypatch.setattr(MetaStep, "__call__", no_step)

    return switch_off


# What a cell leaves


def test_a_cell_leaves_its_model_and_all_that_was_measured(tmp_path):
    result = train("fig3a", tmp_path, CELL, **SINE)
    folder = folder_of(tmp_path, "fig3a", CELL)
    assert cavia.load(folder / "model.cavia").inner_lr == 1.0
    assert result.choices == CELL.choices
    assert result.settings["test_tasks"] == 6
    assert "maml_lrs" not in result.settings  # which says what other cells there are
    assert result.commits == read_json(folder / "config.json")["commits"]
    assert (result.iterations, result.best_iteration, result.diverged) == (2, 2, "")
    assert [point[:2] for point in result.curve] == [[2, result.validation]]
    assert [len(step) for step in result.scores["mse"]] == [6] * 11  # after 0 … 10 steps


def test_a_result_is_the_same_after_reading():
    result = CellResult({"method": "CAVIA"}, {"lr": 0.1}, validation=0.2, scores={"mse": [[1.0, 2.0]]})
    values = json.loads(json.dumps(result.as_json()))
    assert values["format"] == CELL_FORMAT
    again = CellResult.of(values)
    assert again
    assert again.as_json() == values
    assert (again["method"], again.scores) == ("CAVIA", result.scores)


@pytest.mark.parametrize(
    "values", [None, [], {"method": "CAVIA", "mse": [0.2]}, {"format": 1}, {"format": 2}, {"format": 2, "wrong": 1}]
)
def test_what_an_older_version_wrote_is_no_result(values):
    assert CellResult.of(values) is None


def test_a_cell_that_diverges_is_a_result(tmp_path):
    result = train("fig3a", tmp_path, Cell({**CELL.choices, "method": "MAML", "inner_lr": 1e30}), **SINE)
    assert "MAML with inner_lr 1e+30" in result.diverged
    assert result.scores == {}
    assert CellResult.of(json.loads(json.dumps(result.as_json()))).diverged == result.diverged


def test_a_cell_of_another_seed_starts_elsewhere(tmp_path):
    other = Cell({**CELL.choices, "seed": 1})
    assert train("fig4", tmp_path, CELL, **SINE).scores != train("fig4", tmp_path, other, **SINE).scores


# What a cell is trained with


@pytest.mark.parametrize("name", CATALOGUE)
def test_settings_that_bear_the_name_of_an_argument_go_there(name):
    experiment = find(name)
    settings = experiment.sets["full"]
    cell = experiment.cells(settings, 1)[0]
    arguments = fit_arguments(fit_settings(experiment, settings, cell))
    assert type(arguments["outer"]) is (cavia.TRPO if name.startswith(("fig6", "fig7", "exploration")) else cavia.Adam)
    own = experiment.fit(settings, cell)  # of a kind of cells, where the experiment has several
    assert arguments["iterations"] == own.get("iterations", settings.iterations)
    assert arguments["seed"] == 0
    assert arguments["minutes"] == (settings.minutes or None)
    longer = fit_settings(experiment, replace(settings, minutes=5.0), cell)
    assert fit_arguments(longer)["minutes"] == 5.0


def test_arguments_of_policies_have_a_trust_region():
    settings = replace(find("fig7a").sets["full"], damping=1e-9, max_kl=0.5)
    arguments = fit_arguments(fit_settings(find("fig7a"), settings, CELL))
    assert (arguments["outer"].damping, arguments["outer"].max_kl) == (1e-9, 0.5)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_its_constructor_has_of_what_is_offered(name):
    method = METHODS[name]
    is_policy = name in ("CAVIA, sampled context", "MAESN")
    model = cavia.GaussianPolicy(1, 2, context=2) if is_policy else cavia.MLP(1, 2, hidden=(4,), context=2)
    offered = {"inner_lr": 0.3, "weights_lr": 0.2, "inner_steps": 3, "ways": 2, "inputs": 1, "outputs": 2}
    arguments = method(model, model.loss if is_policy else "mse", **offered, nothing=1).arguments
    assert all(arguments[key] == value for key, value in offered.items() if key in arguments)
    assert arguments.keys() & offered.keys()
    assert all(arguments[key] == value for key, value in method.arguments.items())


# What is trained already is not trained again


def test_measuring_again_trains_nothing(tmp_path, no_training):
    before = train("fig3a", tmp_path, CELL, **SINE)
    no_training()
    after = train("fig3a", tmp_path, CELL, **SINE | {"test_tasks": 3, "steps": 2})
    assert [len(step) for step in after.scores["mse"]] == [3] * 3
    assert (after.validation, after.seconds, after.curve) == (before.validation, before.seconds, before.curve)


def test_more_iterations_go_on_and_fewer_are_refused(tmp_path):
    whole = train("fig3a", tmp_path / "whole", CELL, **SINE | {"iterations": 5})
    train("fig3a", tmp_path / "parts", CELL, **SINE)
    result = train("fig3a", tmp_path / "parts", CELL, **SINE | {"iterations": 5})
    assert result.iterations == 5
    assert [point[0] for point in result.curve] == [2, 5]
    assert result.scores == whole.scores  # as if never stopped
    with pytest.raises(CaviaError, match="another configuration: iterations is 5 there and 4 here"):
        train("fig3a", tmp_path / "parts", CELL, **SINE | {"iterations": 4})


def test_another_training_in_the_same_folder_is_refused(tmp_path):
    train("fig3a", tmp_path, CELL, **SINE)
    with pytest.raises(CaviaError, match=r"another configuration: lr is 0.001 there and 0.01 here"):
        train("fig3a", tmp_path, CELL, **SINE | {"lr": 0.01})


def test_a_neighbour_of_the_same_training_is_taken_over(tmp_path, no_training):
    theirs = train("fig3a", tmp_path, CELL, **SINE)
    no_training()
    ours = train("fig3b", tmp_path, CELL, **SINE | {"test_tasks": 3})
    assert ours.validation == theirs.validation
    assert ours.scores["mse"][1] != theirs.scores["mse"][1]
    assert len(ours.scores["mse"]) == 2
    assert not list(tmp_path.glob("*/cells/.*"))


def test_a_training_is_taken_over_by_a_run_in_the_folder_that_one_is_in(tmp_path, no_training, monkeypatch):
    train("fig3a", tmp_path, CELL, **SINE)
    (tmp_path / "fig3b").mkdir()
    monkeypatch.chdir(tmp_path / "fig3b")
    no_training()
    settings = replace(find("fig3b").sets["quick"], **SINE)
    place = Place(folder_of(tmp_path, "fig3b", CELL).relative_to(tmp_path / "fig3b"), "cpu", lambda progress: None)
    assert run_cell(find("fig3b"), settings, CELL, place).iterations == 2


def test_faces_are_drawn_by_the_models_of_the_table(tmp_path, no_training):
    theirs = train("table2", tmp_path, FACE, **FACES)
    no_training()
    ours = train("fig5", tmp_path, FACE, **FACES)
    assert ours.validation == theirs.validation
    assert len(ours.probes["truth"]) == find("fig5").sets["quick"].faces


def adopted(theirs, ours, cell, tmp_path, theirs_changes, ours_changes):
    """Whether the second experiment takes over the cell that the first has trained."""
    first = train(theirs, tmp_path, cell, **theirs_changes)
    second = train(ours, tmp_path, cell, **ours_changes)
    return first.seconds == second.seconds and first.curve == second.curve


@pytest.mark.parametrize(
    "change", [{"iterations": 3}, {"hidden": (5,)}, {"lr": 0.01}, {"query": 9}, {"validation_tasks": 5}, {"clip": 1.0}]
)
def test_a_training_with_other_settings_is_not_taken_over(tmp_path, change):
    assert not adopted("fig3a", "fig3b", CELL, tmp_path, SINE, SINE | change)


def test_a_training_of_another_method_or_start_is_not_taken_over(tmp_path):
    train("fig3a", tmp_path, CELL, **SINE)
    learned = Cell({**CELL.choices, "method": "CAVIA, learned start"})
    theirs, ours = (folder_of(tmp_path, name, learned) for name in ("fig3a", "fig3b"))
    shutil.copytree(folder_of(tmp_path, "fig3a", CELL), theirs)  # under a name that it does not deserve
    train("fig3b", tmp_path, learned, **SINE)
    assert read_json(ours / "config.json")["learner"] != read_json(theirs / "config.json")["learner"]


def test_a_training_in_another_environment_is_not_taken_over(tmp_path):
    cell = Cell({"method": "CAVIA", "context": 2, "inner_lr": 1.0, "seed": 0})
    assert adopted("fig7a", "fig7b", cell, tmp_path / "same", POLICY, POLICY)
    assert not adopted("fig7a", "fig7b", cell, tmp_path / "longer", POLICY, POLICY | {"horizon": 6})
    assert not adopted("fig7a", "fig7b", cell, tmp_path / "region", POLICY, POLICY | {"damping": 1e-9})
    assert not adopted("fig4", "fig7c", cell, tmp_path / "sine", SINE, POLICY)  # a cell of the same name


def test_a_training_on_other_data_is_not_taken_over(tmp_path):
    train("table2", tmp_path, FACE, **FACES)
    config_file = folder_of(tmp_path, "table2", FACE) / "config.json"
    config = read_json(config_file)
    config["family"]["settings"]["images"]["source"] = "CelebA"
    config_file.write_text(json.dumps(config))
    train("fig5", tmp_path, FACE, **FACES)
    ours = read_json(folder_of(tmp_path, "fig5", FACE) / "config.json")
    assert ours["family"]["settings"]["images"]["source"].startswith("synthetic")


def test_an_unfinished_or_damaged_training_is_not_taken_over(tmp_path):
    train("fig3a", tmp_path, CELL, **SINE)
    theirs = folder_of(tmp_path, "fig3a", CELL)
    (theirs / "model.cavia").rename(theirs / "elsewhere")
    (theirs / "metrics.jsonl").write_text("")  # shows if it is taken over
    assert len(train("fig3b", tmp_path, CELL, **SINE).curve) == 1
    shutil.rmtree(tmp_path / "fig3b")
    (theirs / "elsewhere").rename(theirs / "model.cavia")
    (theirs / "config.json").write_text("{")
    assert len(train("fig3b", tmp_path, CELL, **SINE).curve) == 1
    (theirs / "config.json").write_text("[]")
    assert len(train("fig3c", tmp_path, CELL, **SINE).curve) == 1


def test_a_training_under_way_is_left_alone(tmp_path):
    train("fig3a", tmp_path, CELL, **SINE)
    mine = folder_of(tmp_path, "fig3b", CELL)
    mine.mkdir(parents=True)
    (mine / "note").write_text("mine")
    train("fig3b", tmp_path, CELL, **SINE)
    assert (mine / "note").read_text() == "mine"
    assert len((mine / "metrics.jsonl").read_text().splitlines()) == 1


def test_nothing_is_beside_the_root():
    mine = Path("/cells/of-an-experiment-in-the-root")
    adopt(mine, {})
    assert not mine.exists()
