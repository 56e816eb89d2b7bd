"""Outer algorithms: an own one in a run, which suits what, and what a run leaves."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import cavia
from cavia.building import _families, known
from cavia.cli import main
from cavia.tensor_file import read_tensors, write_tensors
from tests.training import policies
from tests.training.runs import assert_same, make, train, weights


@dataclass(frozen=True)
class Descent(cavia.Outer):
    """Plain gradient descent, in a few lines of a user's own."""

    lr: float = 0.01

    def step(self, learner, length):
        return DescentStep(learner, self.lr)


class DescentStep(cavia.OuterStep):
    def __init__(self, learner, lr):
        self.learner, self.lr, self.count = learner, lr, torch.zeros(())

    def __call__(self, batch):
        loss = self.learner(batch).mean()
        gradients = torch.autograd.grad(loss, list(self.learner.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(self.learner.parameters(), gradients, strict=True):
                parameter.sub_(self.lr / (1 + self.count) * gradient)
        self.count += 1
        return {"loss": loss.item(), "steps": self.count.item()}

    def state(self):
        return {"count": self.count}

    def load_state(self, state):
        self.count.copy_(state["count"])


def test_outer_algorithms_register_themselves():
    assert {"Adam", "TRPO", "PPO", "Descent"} <= known(cavia.Outer).keys()
    assert known(cavia.Outer)["Descent"] is Descent


def test_an_own_outer_step_trains_and_goes_on_to_the_bit(tmp_path):
    def run(iterations, folder, lr=0.01):
        learner = make()
        validation = cavia.Validation(5, every=4)
        cavia.fit(
            learner, cavia.Sine(), iterations, outer=Descent(lr), validation=validation, run_dir=tmp_path / folder,
            progress=False,
        )  # fmt: skip
        return weights(learner)

    whole = run(10, "whole")
    run(6, "part")
    assert_same(whole, run(10, "part"))
    metrics = [json.loads(line) for line in (tmp_path / "part" / "metrics.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in metrics] == [2.5, 5.5, 7.5, 9.5]  # means over the intervals
    config = json.loads((tmp_path / "part" / "config.json").read_text())
    assert (config["outer"], config["outer_settings"]) == ("Descent", {"lr": 0.01})
    with pytest.raises(cavia.CaviaError, match=r"lr is 0.01 there and 0.1 here"):
        run(10, "part", 0.1)
    with pytest.raises(cavia.CaviaError, match="outer is 'Descent' there and 'Adam' here"):
        train(make(), 10, tmp_path / "part")


@pytest.mark.parametrize("kind", [train, policies.train])
def test_a_run_of_before_outer_algorithms_had_names_goes_on(tmp_path, kind):
    own = policies.make if kind is policies.train else make
    whole, resumed = own(), own()
    kind(whole, 6, every=3)
    kind(own(), 3, tmp_path, every=3)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("outer") == ("TRPO" if kind is policies.train else "Adam")
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = tmp_path / "checkpoint.safetensors"
    tensors, description = read_tensors(checkpoint)
    assert description.pop("interval") == {}
    write_tensors(checkpoint, tensors, description | {"interval_loss": 0.0})
    kind(resumed, 6, tmp_path, every=3)
    assert_same(weights(whole), weights(resumed))


@pytest.mark.parametrize(
    ("source", "outer", "message"),
    [
        (cavia.Sine(), cavia.TRPO(), r"TRPO trains on episodes in an environment, which Sine does not.*cavia.Adam\(\)"),
        (cavia.Sine(), cavia.PPO(), "PPO trains on episodes"),
        (cavia.envs.Navigation(), cavia.Adam(), r"Adam trains on points, which Navigation does not.*cavia.TRPO\(\)"),
        (cavia.Sine(), "Adam", r"outer must be a cavia.Outer or None, got 'Adam'; for instance cavia.Adam\("),
    ],
)
def test_an_outer_step_that_does_not_suit_the_source_is_refused(source, outer, message):
    learner = policies.make() if isinstance(source, cavia.envs.TaskEnv) else make()
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.fit(learner, source, 1, outer=outer, progress=False)


def test_updates_in_training_have_one_rate():
    outer = cavia.TRPO(updates=cavia.Updates(later_rate=0.5))
    with pytest.raises(cavia.CaviaError, match=r"later_rate is for evaluate: .* got 0.5"):
        policies.train(policies.make(), 1, outer=outer)


# What a run leaves


def test_a_run_folder_has_the_best_model_and_can_be_evaluated(tmp_path, capsys):
    learner = make()
    train(learner, 20, tmp_path, lr=0.3)
    assert_same(weights(cavia.load(tmp_path / "model.cavia")), weights(learner))
    assert main(["evaluate", str(tmp_path), "--tasks", "4"]) == 0
    assert "mse after 1 step" in capsys.readouterr().out


def test_the_run_folder_of_a_policy_has_the_best_one_and_can_be_evaluated(tmp_path, capsys):
    learner = policies.make()
    policies.train(learner, 3, tmp_path)
    assert_same(weights(cavia.load(tmp_path / "model.cavia")), weights(learner))
    assert main(["evaluate", str(tmp_path), "--tasks", "3", "--steps", "1"]) == 0
    assert "return after 1 step" in capsys.readouterr().out


def dropping():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    return cavia.CAVIA(cavia.condition(network, at="0", context=2, example=torch.zeros(1, 1)), "mse", inner_lr=0.1)


def test_a_learner_trains_in_training_mode_and_ends_in_evaluation_mode():
    results = []
    for mode in (True, False):
        learner = dropping().train(mode)
        train(learner, 5)
        assert not learner.training
        assert not any(module.training for module in learner.modules())
        results.append(weights(learner))
    assert_same(*results)  # dropout was on in both


def test_after_a_run_that_fails_the_learner_is_in_evaluation_mode():
    learner = make("MAML", inner_lr=1e30)
    with pytest.raises(cavia.Diverged):
        train(learner, 5)
    assert not learner.training


def test_the_recipe_in_the_documentation_trains():
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    (recipe,) = re.findall(r"### An outer algorithm: one file\n.*?```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(recipe, "architecture.md", "exec"), names := {})
    assert _families[cavia.Outer].pop("SGD") == [names["SGD"]]
    assert not names["learner"].training
