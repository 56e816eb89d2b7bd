"""Every experiment runs two steps from end to end, and every one of its settings is read."""

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from cavia.errors import CaviaError
from cavia.experiments import fewshot, reinforcement, sine
from cavia.paper.experiment import Cell, Data, Place
from cavia.paper.catalogue import CATALOGUE, find
from cavia.experiments.sine_summary import rates_summary, table1_summary
from cavia.paper.checking import first_problem
from cavia.tensor_file import read_tensors
from tests.paper.report.results import result as whole_result

TINY = {
    "iterations": 2, "tasks_per_batch": 2, "validation_tasks": 4, "test_tasks": 12, "test_points": 5, "contexts": (5,),
    "rates": (1.0,), "query": 8, "hidden": (6,), "context": 4, "inner_steps": 2, "shots": (5,),
    "validation_pictures": 3, "test_pictures": 3, "faces": 2, "orders": ("random",), "waves": 3, "wave_hidden": (4,),
    "first_pictures": 9,
}  # fmt: skip
CHANGES = {
    "iterations": 3, "tasks_per_batch": 3, "support": 7, "query": 6, "hidden": (5,), "lr": 0.01, "clip": 0.001,
    "validation_tasks": 5, "test_tasks": 13, "test_points": 6, "contexts": (2,), "context": 3, "maml_lrs": (0.2,),
    "rates": (0.5,), "steps": 3, "inner_steps": 1, "cavia_lr": 0.5, "maml_lr": 0.5,
    "init": "xavier", "waves": 4, "wave_hidden": (5,), "wave_tasks_per_batch": 2, "wave_lr": 0.01, "first_pictures": 8,
    "cooldown": 0.9, "minutes": 1e-9, "every": 1, "validation_pictures": 4,
    "methods": ("CNP",),
    "orders": ("ordered",), "shots": (6,), "test_pictures": 4, "faces": 3,
}  # fmt: skip
FEW_SHOT = {
    "methods": ("CAVIA", "MAML", "Reptile"), "filters": (3,), "ways": (2,), "shots": (1,), "queries": 2,
    "test_tasks": 3, "validation_tasks": 3, "lr_decay_every": 1, "tasks_per_batch": 2, "reptile_steps": 2, "context": 4,
}  # fmt: skip
FEW_SHOT_CHANGES = {
    "methods": ("ProtoNets",), "filters": (4,), "ways": (3,), "shots": (2,), "queries": 3, "film": (2,),
    "norm": "support", "shrink": "stride", "reptile_steps": 1, "lr_decay": 0.5, "lr_decay_every": 7,
}  # fmt: skip
POLICY = {
    "rollouts": 2, "horizon": 6, "hvp_every": 2, "max_kl": 5.0, "test_tasks": 3, "test_rollouts": 2, "updates": 2,
    "every": 2, "validation_tasks": 2, "context": 2, "init": "torch",
}  # fmt: skip
POLICY_CHANGES = {
    "rollouts": 3, "horizon": 7, "std": 0.5, "discount": 0.5, "trace": 0.5, "max_kl": 0.01, "cg_iterations": 1,
    "damping": 1.0, "backtracks": 1, "shrink": 0.5, "hvp_every": 1, "test_tasks": 4, "test_rollouts": 3, "updates": 1,
    "maml_later_rate": 0.25, "cavia_lrs": (0.5,), "validation_tasks": 3,
    "methods": ("CAVIA (first order)", "MAML (first order)"),
}  # fmt: skip
ONLY_MEMORY = {"chunk"}  # changes how many pictures are held at a time and must change nothing else: test_completion.py


def tiny(experiment):
    known = {entry.name for entry in fields(experiment.quick)}
    values = TINY | (FEW_SHOT if is_few_shot(experiment) else POLICY if is_policy(experiment) else {})
    return replace(experiment.quick, **{name: value for name, value in values.items() if name in known})


def is_few_shot(experiment):
    return experiment in fewshot.EXPERIMENTS


def is_policy(experiment):
    return experiment in reinforcement.EXPERIMENTS


def needs(experiment):
    """Skip the test if the experiment simulates a cheetah and there is no simulator."""
    if experiment.id in ("fig6a", "fig6b"):
        pytest.importorskip("mujoco", reason='needs pip install "cavia[rl]"')
        pytest.importorskip("gymnasium", reason='needs pip install "cavia[rl]"')


def train_all(experiment, settings, folder: Path):
    """The results of all cells, without processes."""
    results = []
    for cell in experiment.cells(settings, 1):
        place = Place(folder / cell.name, "cpu", lambda progress: None, Data(synthetic=True))
        found = experiment.train(cell, settings, place)
        # Accuracies on a few tasks are coarse; the model shows every change.
        tensors, _ = read_tensors(place.folder / "model.cavia")
        weights = {name: value.tolist() for name, value in tensors.items()}
        results.append({**cell.choices, **found, "weights": weights})
    return results


def without_times(results):
    curves = [[point[:2] for point in found["curve"]] for found in results]
    return [
        {name: value for name, value in found.items() if name != "seconds"} | {"curve": curve}
        for found, curve in zip(results, curves, strict=True)
    ]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_experiment_runs_and_reads_all_its_settings(name, tmp_path):
    experiment = CATALOGUE[name]
    needs(experiment)
    small = tiny(experiment)
    trained = train_all(experiment, small, tmp_path / "before")
    assert not any("diverged" in found for found in trained)
    before = without_times(trained)
    assert without_times(train_all(experiment, small, tmp_path / "again")) == before
    if name in ("table3", "fig6a", "fig6b"):
        return  # the same functions as those of omniglot, on larger pictures, and of fig7a, in other environments
    more = FEW_SHOT_CHANGES if is_few_shot(experiment) else POLICY_CHANGES if is_policy(experiment) else {}
    changes = CHANGES | more
    tested = {entry.name for entry in fields(CATALOGUE["fig7a"].quick)} if name in ("fig7b", "fig7c") else set()
    for entry in fields(small):
        if entry.name not in ONLY_MEMORY | tested:
            changed = replace(small, **{entry.name: changes[entry.name]})
            after = without_times(train_all(experiment, changed, tmp_path / entry.name))
            assert after != before, f"{entry.name} changes nothing"


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_summary_can_be_reported(name, tmp_path):
    experiment = CATALOGUE[name]
    needs(experiment)
    small = tiny(experiment)
    summary = experiment.summarise(small, train_all(experiment, small, tmp_path))
    assert summary.get("tables") or summary.get("figures")
    assert first_problem(whole_result(name, **summary)) is None


@pytest.mark.parametrize("name", CATALOGUE)
def test_budgets_and_cells(name):
    experiment = find(name)
    for budget in ("quick", "full"):
        cells = experiment.cells(experiment.settings(budget), 2)
        assert len({cell.name for cell in cells}) == len(cells)
    assert experiment.quick.iterations < 10_000
    assert experiment.quick.iterations < experiment.full.iterations


@pytest.mark.parametrize("experiment", sine.EXPERIMENTS, ids=lambda experiment: experiment.id)
def test_the_full_budget_of_sine_curves_is_the_papers(experiment):
    assert experiment.full.iterations == 50_000


def test_unknown_names_get_the_closest():
    with pytest.raises(CaviaError, match="did you mean 'fig3b'"):
        find("fig3bb")


def test_names_of_cells_are_names_of_folders():
    cell = Cell({"method": "CAVIA, learned start", "context": 5, "inner_lr": 1e-6, "seed": 0})
    assert cell.name == "CAVIA_learned_start-context=5-inner_lr=1e-06-seed=0"


def result(method, rate, mse, validation, context=5, seed=0):
    return {
        "method": method, "context": context, "inner_lr": rate, "seed": seed, "validation": validation,
        "mse": [3.0, mse], "interval": [0.2, 0.02],
    }  # fmt: skip


def test_table1_reports_the_rate_that_validates_best_not_the_one_that_tests_best():
    settings = replace(find("table1").quick, contexts=(5,), maml_lrs=(0.01, 0.02))
    results = [
        result("CAVIA", 1.0, 0.19, 0.2),
        result("MAML", 0.01, 0.24, 0.21),
        result("MAML", 0.02, 0.20, 0.22),
    ]
    row = table1_summary(settings, results)["tables"][0]["rows"][1]["cells"][0]
    assert row["ours"]["mean"] == pytest.approx(0.24)
    assert row["verdict"] == "within"
    assert "0.01" in row["note"]


def test_a_rate_that_diverged_is_a_gap():
    settings = replace(find("fig3b").quick, rates=(0.1, 10.0))
    lost = {"method": "MAML", "context": 5, "inner_lr": 10.0, "seed": 0, "diverged": "…"}
    results = [
        result("CAVIA", 0.1, 0.2, 0.2), result("CAVIA", 10.0, 0.2, 0.2), result("MAML", 0.1, 0.5, 0.5), lost,
    ]  # fmt: skip
    series = rates_summary(settings, results)["figures"][0]["series"]
    assert series[1]["y"][1] is None
    assert not any(math.isnan(y) for one in series for y in one["y"] if y is not None)
