"""Trained cells become models of the package: the seed that validated best, with its score and its commit."""

import pytest

import cavia
from cavia.cli import main
from cavia.paper.publishing import publish_models
from cavia.paper.schema import CellResult
from cavia.tensor_file import read_json, write_json
from tests.cli.test_main import TINY

LISTED = """
[curves]
experiment = "table1"
set = "quick"
cell = {{ method = "CAVIA", context = 2 }}
about = "curves"
licence = "none"

[later]
experiment = "table3"
set = "tuned"
cell = {{ method = "{method}" }}
about = "not trained yet"
licence = "none"
"""


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(LISTED.format(method="CAVIA"))
    return path


@pytest.mark.slow
def test_the_best_seed_of_a_finished_cell_is_published(listed, tmp_path):
    runs, out = tmp_path / "runs", tmp_path / "published"
    order = ["run", "table1", "--seeds", "2", "--set", "contexts=2", "--set", "maml_lrs=0.01", "--jobs", "1", *TINY]
    assert main([*order, "--out", str(runs / "quick" / "table1")]) == 0
    out.mkdir()
    assert publish_models(listed, runs, out) == ["curves"]
    described = read_json(out / "models.json")["curves"]
    results = {path.parent: read_json(path) for path in runs.glob("quick/table1/cells/CAVIA*/result.json")}
    best = min(results, key=lambda folder: results[folder]["validation"])
    assert best.name in described["source"]
    assert described["score"].startswith("MSE ")
    assert (out / "curves" / "model.cavia").read_bytes() == (best / "model.cavia").read_bytes()
    assert isinstance(cavia.load(out / "curves" / "model.cavia"), cavia.CAVIA)


def test_a_policy_is_published_with_its_return(listed, tmp_path):
    listed.write_text(listed.read_text().replace("table1", "fig7a").replace(", context = 2", ""))
    cell, out = tmp_path / "quick" / "fig7a" / "cells" / "one", tmp_path / "published"
    cell.mkdir(parents=True)
    out.mkdir()
    env = cavia.envs.Navigation()
    policy = cavia.GaussianPolicy(env.observations, env.actions, (4,), 2)
    cavia.CAVIA(policy, policy.loss).save(cell / "model.cavia")
    scores = {"sampled 1": [[-40.0, -30.0], [-20.0, -10.0]], "mean 1": [[-1.0, -1.0]] * 2}
    write_json(cell / "result.json", CellResult({"method": "CAVIA"}, validation=-15.0, scores=scores).as_json())
    write_json(cell / "config.json", {"learner": {"arguments": {"inner_steps": 1}}})
    assert publish_models(listed, tmp_path, out) == ["curves"]
    described = read_json(out / "models.json")["curves"]
    assert described["score"] == "return -15 after 1 update, 2 tasks"
    assert described["command"] == "cavia evaluate curves --seed 0 --tasks 2"


def test_a_score_after_the_last_step_alone_names_the_steps(listed, tmp_path):
    listed.write_text(listed.read_text().replace(", context = 2", ""))
    cell, out = tmp_path / "quick" / "table1" / "cells" / "one", tmp_path / "published"
    cell.mkdir(parents=True)
    out.mkdir()
    cavia.CAVIA(cavia.MLP(1, 1, (4,), 2), "mse", inner_steps=5).save(cell / "model.cavia")
    write_json(cell / "result.json", CellResult({"method": "CAVIA"}, scores={"mse": [[0.25] * 1000]}).as_json())
    write_json(cell / "config.json", {"learner": {"arguments": {"inner_steps": 5}}})
    publish_models(listed, tmp_path, out)
    described = read_json(out / "models.json")["curves"]
    assert described["score"] == "MSE 0.25 after 5 steps, 1000 tasks"
    assert described["command"] == "cavia evaluate curves --seed 0"


def test_a_list_with_a_misspelt_key_is_one_line(listed, tmp_path):
    listed.write_text(listed.read_text().replace("licence", "license"))
    with pytest.raises(cavia.CaviaError, match=r"curves must have about, cell, .*licence, set, got .*license"):
        publish_models(listed, tmp_path, tmp_path)
