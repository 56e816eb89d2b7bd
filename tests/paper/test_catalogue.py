"""Every experiment runs two steps from end to end, and every one of its settings is read."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from cavia.paper import fewshot, policies
from cavia.paper.catalogue import CATALOGUE
from cavia.paper.checking import first_problem
from cavia.paper.schema import CellResult
from cavia.tensor_file import finite, read_tensors
from tests.paper.cells import train
from tests.paper.report.results import result as whole_result

TINY = {
    "iterations": 2, "tasks_per_batch": 2, "validation_tasks": 4, "test_tasks": 12, "test_points": 5, "contexts": (5,),
    "rates": (1.0,), "query": 8, "validation_query": 8, "hidden": (6,), "context": 4, "inner_steps": 2, "shots": (5,),
    "test_pictures": 3, "faces": 2, "orders": ("random",), "waves": 3, "wave_hidden": (4,), "first_pictures": 9,
}  # fmt: skip
CHANGES = {
    "iterations": 3, "tasks_per_batch": 3, "support": 7, "query": 6, "hidden": (5,), "lr": 0.01, "clip": 0.001,
    "validation_tasks": 5, "validation_query": 9, "test_tasks": 13, "test_points": 6, "contexts": (2,), "context": 3,
    "precision": "bf16", "maml_lrs": (0.2,), "rates": (0.5,), "steps": 3, "inner_steps": 1, "cavia_lr": 0.5,
    "maml_lr": 0.5, "init": "xavier", "waves": 4, "wave_hidden": (5,), "wave_tasks_per_batch": 2, "wave_lr": 0.01,
    "first_pictures": 8,
    "cooldown": 0.9, "minutes": 1e-9, "every": 1, "methods": ("CNP",), "orders": ("ordered",), "shots": (6,),
    "test_pictures": 4, "faces": 3,
}  # fmt: skip
FEW_SHOT = {
    "methods": ("CAVIA", "MAML", "Reptile"), "filters": (3,), "ways": (2,), "shots": (1,), "queries": 2, "image": 28,
    "test_tasks": 3, "validation_tasks": 3, "lr_decay_every": 1, "tasks_per_batch": 2, "reptile_steps": 2, "context": 4,
}  # fmt: skip
FEW_SHOT_CHANGES = {
    "methods": ("ProtoNets",), "filters": (4,), "ways": (3,), "shots": (2,), "queries": 3, "film": (2,), "image": 30,
    "norm": "support", "shrink": "stride", "reptile_steps": 1, "lr_decay": 0.5, "lr_decay_every": 7,
}  # fmt: skip
POLICY = {
    "rollouts": 2, "horizon": 6, "hvp_every": 2, "max_kl": 5.0, "test_tasks": 3, "test_rollouts": 2, "updates": 2,
    "every": 2, "validation_tasks": 2, "context": 2, "init": "torch", "later_rates": (0.5,),
}  # fmt: skip
POLICY_CHANGES = {
    "rollouts": 3, "horizon": 7, "std": 0.5, "discount": 0.5, "trace": 0.5, "max_kl": 0.01, "cg_iterations": 1,
    "damping": 1.0, "backtracks": 1, "shrink": 0.5, "hvp_every": 1, "test_tasks": 4, "test_rollouts": 3, "updates": 1,
    "later_rates": (0.25,), "cavia_lrs": (0.5,), "validation_tasks": 3,
    "methods": ("CAVIA (first order)", "MAML (first order)"),
}  # fmt: skip
OWN = {  # experiment → settings, and how they change
    "sine_methods": (
        {"methods": ("CAVIA", "iMAML", "CNP"), "code": 3, "walked_steps": 2, "every": 2, "steps": 2, "minutes": 10.0},
        {"methods": ("MT-net",), "code": 4, "walked_steps": 1, "steps": 1},
    ),
    "fig3b": ({}, {"methods": ("MT-net",)}),
    "sine_steps": ({"methods": ("CAVIA", "CAVIA, Adam"), "steps": 4}, {"methods": ("MAML",)}),
    "omniglot_methods": ({"lr_decay": 0.9}, {}),
    "embeddings": (
        {"methods": ("CAVIA", "LEO"), "shots": (1,), "ways": 2, "queries": 2, "image": 28, "features": 3, "every": 2},
        {"methods": ("VERSA",), "shots": (2,), "ways": 3, "queries": 3, "image": 30, "features": 4},
    ),
    "dynamics": (
        {
            "iterations": 2, "every": 2, "validation_tasks": 2, "validation_query": 2, "test_trajectories": 2,
            "probes": 20, "newton_steps": 1, "gradient_steps": 2,
        },
        {
            "systems": ("glycolysis",), "methods": ("CAVIA",), "newton_steps": 2, "gradient_steps": 1, "later_lr": 0.01,
            "test_trajectories": 3, "probes": 21,
        },
    ),
    "exploration": (
        POLICY | {"methods": ("CAVIA", "CAVIA, sampled context", "E-MAML"), "disk": 1.99, "horizon": 6, "hidden": (6,)},
        POLICY_CHANGES | {"methods": ("MAESN", "MAML"), "disk": 2.5, "sampled_lrs": (0.5,), "maml_lrs": (0.2,)},
    ),
    "modes": (
        {"inner_steps": (1,), "probes": 20},
        {"inner_steps": (2,), "cavia_lrs": (0.5,), "methods": ("MAML",), "probes": 21},
    ),
}  # fmt: skip
A_FILE = {"network"}  # what it changes: test_fewshot.py
ONLY_MEMORY = {"chunk"}  # changes how many pictures are held at a time and must change nothing else: test_completion.py


def tiny(experiment):
    known = {entry.name for entry in fields(experiment.sets["quick"])}
    values = TINY | (FEW_SHOT if is_few_shot(experiment) else POLICY if is_policy(experiment) else {})
    values |= OWN.get(experiment.id, ({}, {}))[0]
    return {name: value for name, value in values.items() if name in known}


def is_few_shot(experiment):
    return experiment in fewshot.EXPERIMENTS and experiment.id != "embeddings"


def is_policy(experiment):
    return experiment in policies.EXPERIMENTS


def needs(experiment):
    """Skip the test if the experiment simulates a cheetah and there is no simulator."""
    if experiment.id in ("fig6a", "fig6b"):
        pytest.importorskip("mujoco", reason='needs pip install "cavia-torch[rl]"')
        pytest.importorskip("gymnasium", reason='needs pip install "cavia-torch[rl]"')


def train_all(experiment, changes, runs: Path) -> list[CellResult]:
    """The results of all cells, as read from their files."""
    cells = experiment.cells(replace(experiment.sets["quick"], **changes), 1)
    results = [train(experiment.id, runs, cell, **changes) for cell in cells]
    return [CellResult.of(finite(result.as_json())) for result in results]


def outcome(experiment, changes, runs: Path):
    """What was trained and measured: nothing that only says how, and no times."""
    results = []
    for result in train_all(experiment, changes, runs):
        assert not result.diverged
        values = {name: value for name, value in result.as_json().items() if name not in ("settings", "seconds")}
        results.append(values | {"curve": [point[:2] for point in result.curve]})
    # Accuracies on a few tasks are coarse; the models show every change.
    models = [read_tensors(path)[0] for path in sorted(runs.glob(f"{experiment.id}/cells/*/model.cavia"))]
    return results, [{name: value.tolist() for name, value in model.items()} for model in models]


LONG = ("dynamics", "omniglot_methods", "omniglot")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.check if name in LONG else pytest.mark.slow) for name in CATALOGUE],
)
def test_every_experiment_runs_and_reads_all_its_settings(name, tmp_path):
    experiment = CATALOGUE[name]
    needs(experiment)
    small = tiny(experiment)
    before = outcome(experiment, small, tmp_path / "before")
    assert outcome(experiment, small, tmp_path / "again") == before
    if name in ("table3", "fig6a", "fig6b"):
        return  # the same functions as those of omniglot, on larger pictures, and of fig7a, in other environments
    more = FEW_SHOT_CHANGES if is_few_shot(experiment) else POLICY_CHANGES if is_policy(experiment) else {}
    changes = CHANGES | more | OWN.get(name, ({}, {}))[1]
    as_fig7a = name in ("fig7b", "fig7c", "exploration")
    tested = {entry.name for entry in fields(CATALOGUE["fig7a"].sets["quick"])} if as_fig7a else set()
    for entry in fields(experiment.sets["quick"]):
        if entry.name not in ONLY_MEMORY | A_FILE | tested:
            after = outcome(experiment, small | {entry.name: changes[entry.name]}, tmp_path / entry.name)
            assert after != before, f"{entry.name} changes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_summary_can_be_reported(name, tmp_path):
    experiment = CATALOGUE[name]
    needs(experiment)
    small = tiny(experiment)
    results = train_all(experiment, small, tmp_path)
    summary = experiment.summarise(replace(experiment.sets["quick"], **small), results)
    assert summary.get("tables") or summary.get("figures")
    assert first_problem(whole_result(name, **finite(summary))) is None
