"""Models that come with the package: each loads by its name, fits its tasks, and is small."""

import pytest
import torch

import cavia
from cavia.cli import main
from cavia.published.models import FOLDER, published
from cavia.tools.opening import is_policy, open_policy, open_trained

NAMES = list(published())


@pytest.mark.parametrize("name", NAMES)
def test_a_published_model_loads_is_described_and_small(name):
    model = published()[name]
    assert all((model.about, model.score, model.source, model.licence))
    assert sum(path.stat().st_size for path in model.folder.iterdir()) < 2 * 2**20
    learner = cavia.pretrained(name)
    assert not learner.training
    if is_policy(model.folder):
        assert open_policy(model.folder).learner.inner_lr == learner.inner_lr


def test_every_folder_is_listed():
    assert {path.parent.name for path in FOLDER.glob("*/model.cavia")} == set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("sine")])
def test_sine_models_do_as_well_as_they_say(name, tmp_path):
    learner, family, support, query = open_trained(published()[name].folder, tmp_path)
    error = cavia.evaluate(learner, family, 500, support[0], query).scores[-1].mean().item()
    said = float(published()[name].score.split()[1])
    assert abs(error - said) < 0.2 * said


@pytest.mark.slow
def test_the_policy_does_as_well_as_it_says():
    learner, env, episodes, updates = open_policy(published()["navigation"].folder)
    scores = cavia.evaluate(learner, env, 20, episodes, steps=1, updates=updates, metric="return").scores.mean(-1)
    said = float(published()["navigation"].score.split()[1])
    assert scores[0] < 1.8 * said  # without an update
    assert scores[1] == pytest.approx(said, rel=0.2)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(cavia.CaviaError, match="there is no published model 'sin'; did you mean 'sine'"):
        cavia.pretrained("sin")


def test_commands_take_names(capsys):
    assert main(["models"]) == 0
    assert "sine" in capsys.readouterr().out
    assert main(["evaluate", "sine", "--tasks", "8"]) == 0
    assert "8 tasks, 10 support points" in capsys.readouterr().out
    assert main(["evaluate", "sinus"]) == 2
    assert "there is no trained model sinus; published ones are listed by `cavia models`" in capsys.readouterr().err


def test_a_curve_is_adapted_to():
    learner = cavia.pretrained("sine")
    x = torch.linspace(-5, 5, 10).view(1, 10, 1)
    y = 3 * (x - 1).sin()
    before = learner.adapt(x, y, steps=0)
    error = [(learner.predict(x, adapted) - y).square().mean() for adapted in (before, learner.adapt(x, y))]
    assert error[1] < 0.2 * error[0]
