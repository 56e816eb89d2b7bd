"""What cavia 0.1 wrote, at commit 3587be9, is read by every later version (tests/fixtures/v0_1/make.py made it)."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import cavia
from cavia.cli import main
from cavia.tensor_file import read_json, read_tensors

OLD = Path(__file__).parent / "fixtures" / "v0_1"
TOGETHER = ("protonets", "matching-nets")  # normalise support and query points together since then
MODELS = sorted(json.loads((OLD / "versions.json").read_text()))


def check_predictions(learner, name):
    expected = load_file(OLD / f"{name}.expected.safetensors")
    learner.eval()
    adapted = learner.adapt(expected["support_x"], expected["support_y"])
    prediction = learner.predict(expected["query_x"], adapted)
    torch.testing.assert_close(prediction, expected["prediction"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted({*MODELS} - {*TOGETHER}))
def test_a_model_of_every_learner_predicts_as_it_did(name):
    check_predictions(cavia.load(OLD / f"{name}.cavia"), name)


@pytest.mark.parametrize("name", TOGETHER)
def test_a_metric_learner_is_read_and_embeds_as_it_did(name):
    learner = cavia.load(OLD / f"{name}.cavia")
    expected = load_file(OLD / f"{name}.expected.safetensors")
    kept = learner._kept(learner.embed(expected["support_x"]), torch.eye(2)[expected["support_y"]])
    apart = learner._compare(learner.embed(expected["query_x"]), kept)
    torch.testing.assert_close(apart, expected["prediction"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_models_version_is_the_same_so_that_its_stores_stay_good(name):
    assert cavia.load(OLD / f"{name}.cavia").version == read_json(OLD / "versions.json")[name]


def test_a_conditioned_network_predicts_as_it_did():
    net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    check_predictions(cavia.load(OLD / "conditioned.cavia", module=net), "conditioned")


def test_a_begun_run_goes_on_as_if_never_interrupted(tmp_path):
    shutil.copytree(OLD / "sine-begun", tmp_path / "run")
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=3), "mse")
    cavia.fit(
        learner, cavia.Sine(), 6, tasks_per_batch=4, validation=cavia.Validation(5, every=2),
        run_dir=cavia.RunFolder(tmp_path / "run", events=False), progress=False,
    )  # fmt: skip
    whole, _ = read_tensors(OLD / "sine-whole" / "checkpoint.safetensors")
    ours, _ = read_tensors(tmp_path / "run" / "checkpoint.safetensors")
    for name, value in whole.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6)


def test_a_cells_folder_can_be_scored(capsys):
    (cell,) = (OLD / "table1" / "cells").glob("CAVIA-*")
    assert main(["evaluate", str(cell), "--tasks", "5"]) == 0
    assert "after 1 step" in capsys.readouterr().out


def test_a_result_can_be_reported(tmp_path):
    assert main(["report", str(OLD / "table1"), "--out", str(tmp_path)]) == 0
    assert "Table 1" in (tmp_path / "index.html").read_text()


def test_a_tables_model_and_its_contexts_predict_as_they_did(tmp_path):
    store = shutil.copy(OLD / "table.store", tmp_path)
    out = tmp_path / "predictions.csv"
    order = ["predict", str(OLD / "table.cavia"), str(OLD / "table.csv"), "--contexts", store, "--out", str(out)]
    assert main(order) == 0
    ours, theirs = (path.read_text().splitlines() for path in (out, OLD / "table.predictions.csv"))
    assert ours[0] == theirs[0]
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        assert a.split(",")[:-1] == b.split(",")[:-1]
        assert float(a.split(",")[-1]) == pytest.approx(float(b.split(",")[-1]), rel=1e-4)
