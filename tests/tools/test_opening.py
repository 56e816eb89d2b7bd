"""A trained model with the tasks of its run."""

import json

import pytest
import torch

import cavia
from cavia.cli import main
from cavia.errors import CaviaError
from cavia.pictures.faces import synthetic_faces
from cavia.pictures.glyphs import synthetic_glyphs
from cavia.tools.opening import is_policy, load_model, open_trained
from tests.training.runs import fit

FACES = synthetic_faces(train=6, val=4, test=4)
GLYPHS = synthetic_glyphs(train=4, val=4, test=4, drawings=6)


@pytest.fixture(autouse=True)
def little_data(monkeypatch):
    monkeypatch.setattr("cavia.pictures.faces.synthetic_faces", lambda size: FACES)
    monkeypatch.setattr("cavia.pictures.glyphs.synthetic_glyphs", lambda size: GLYPHS)


def trained(folder, model, family, loss="mse", **sizes):
    """The folder of a run of one step."""
    torch.manual_seed(0)
    learner = cavia.CAVIA(model, loss)
    fit(learner, family, 1, folder, tasks_per_batch=2, validation_tasks=0, progress=False, **sizes)
    return folder


@pytest.fixture
def sine(tmp_path):
    model = cavia.MLP(1, 1, hidden=(4,), context=2)
    return trained(tmp_path / "sine", model, cavia.Sine(), support=[7, 5, 7], query=6, validation_query=8)


def test_a_model_is_opened_by_its_folder_or_its_file(sine, tmp_path):
    for path in (sine, sine / "model.cavia"):
        opened = open_trained(path, tmp_path)
        assert type(opened.family) is cavia.Sine
        assert (opened.support, opened.query) == ([5, 7], 8)
        assert torch.equal(
            opened.learner.model.state_dict()["layers.0.weight"], load_model(path).model.layers[0].weight
        )
        assert not is_policy(path)


@pytest.mark.parametrize("kind", ["Completion", "Episodes"])
def test_pictures_are_found_again(kind, tmp_path):
    if kind == "Completion":
        family, model, loss = cavia.Completion(FACES, 32, "ordered"), cavia.MLP(2, 3, hidden=(4,), context=2), "mse"
        sizes = {"support": 5, "query": 6}
    else:
        family = cavia.Episodes(GLYPHS, 2, 1, 2, channels=1, rotations=True, invert=True)
        model, loss, sizes = cavia.ConvNet(ways=2, filters=2, image=28, channels=1, context=2), "cross_entropy", {}
    opened = open_trained(trained(tmp_path / "run", model, family, loss, **sizes), tmp_path)
    assert opened.family.settings == family.settings
    assert type(opened.family).__name__ == kind


def test_tasks_of_no_known_kind_are_one_line(sine, tmp_path):
    config = json.loads((sine / "config.json").read_text())
    for change, message in (
        ({"family": {"class": "Cosine", "settings": {}}}, "needs Cosine, which is not imported; did you mean 'Sine'?"),
        ({"family": {}}, "is not the configuration of a training run"),
        ({"family": {"class": "Sine", "settings": {"colour": 1}}}, "config.json: Sine has no argument 'colour'"),
        ({"family": {"class": "Completion", "settings": {}}}, "is not the configuration of a training run"),
    ):
        (sine / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(CaviaError, match=message.replace("?", r"\?")) as error:
            open_trained(sine, tmp_path)
        assert "\n" not in str(error.value)


def test_a_model_without_its_run_cannot_be_scored(sine, tmp_path, capsys):
    (sine / "config.json").unlink()
    assert main(["evaluate", str(sine)]) == 2
    error = capsys.readouterr().err
    assert "config.json" in error
    assert error.count("\n") == 1


def test_models_of_an_experiment_are_pointed_to(tmp_path):
    (tmp_path / "run" / "cells").mkdir(parents=True)
    with pytest.raises(CaviaError, match=r"an experiment's models are in .*cells/\*"):
        load_model(tmp_path / "run")
