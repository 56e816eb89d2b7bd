"""What objects were built with, and classes that are found because they were defined."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import cavia
from cavia.building import build, find, known, plain
from cavia.models.base import ContextModel


class Steady(cavia.CAVIA):
    """A learner of one's own: its steps shrink."""

    def __init__(self, model, loss, inner_lr=1.0, shrink=0.5):
        super().__init__(model, loss, inner_lr)
        self.shrink = shrink


class Line(cavia.ContextModel):
    def __init__(self, context=2, sizes=(1,)):
        super().__init__()
        self.context, self.sizes = context, sizes
        self.slope = torch.nn.Parameter(torch.ones(1))

    def stem(self, x):
        return self.slope * x

    def head(self, h, context):
        return h + context[:, None, :1]


class Forgetful(Line):
    def __init__(self, depth):
        super().__init__()


def points():
    return torch.rand(2, 5, 1), torch.rand(2, 5, 1)


def test_a_learner_and_a_network_of_ones_own_are_saved_and_loaded(tmp_path):
    learner = Steady(Line(3), "mse", inner_lr=np.float64(0.25), shrink=np.float32(0.5))
    learner.save(tmp_path / "own.cavia")
    loaded = cavia.load(tmp_path / "own.cavia")
    assert type(loaded) is Steady
    assert type(loaded.model) is Line
    assert loaded.arguments == {"inner_lr": 0.25, "shrink": 0.5}
    assert loaded.version == learner.version
    x, y = points()
    assert torch.equal(loaded.predict(x, loaded.adapt(x, y)), learner.predict(x, learner.adapt(x, y)))
    assert isinstance(cavia.load(tmp_path / "own.cavia", learner=Steady), Steady)


def test_a_class_that_is_not_imported_is_asked_for(tmp_path):
    def make():
        class Passing(cavia.CAVIA):
            pass

        return Passing

    make()(cavia.MLP(1, 1), "mse").save(tmp_path / "own.cavia")
    from cavia import building

    removed = building._families[cavia.Learner].pop("Passing")
    with pytest.raises(cavia.CaviaError, match="needs Passing, which is not imported"):
        cavia.load(tmp_path / "own.cavia")
    assert isinstance(cavia.load(tmp_path / "own.cavia", learner=removed[0]), removed[0])


def test_two_classes_of_one_name_are_told_apart(tmp_path):
    _, theirs = (type("Twin", (cavia.CAVIA,), {"__module__": module}) for module in ("one", "other"))
    theirs(cavia.MLP(1, 1), "mse").save(tmp_path / "twin.cavia")
    assert type(cavia.load(tmp_path / "twin.cavia")) is theirs
    with pytest.raises(cavia.CaviaError, match="several, in one and other; say which"):
        find(cavia.Learner, "Twin", "the file")
    type("MAML", (cavia.CAVIA,), {"__module__": "one"})
    assert find(cavia.Learner, "MAML", "the file") is cavia.MAML


def test_a_network_that_does_not_say_what_it_was_built_with_is_asked_for(tmp_path):
    cavia.CAVIA(Forgetful(depth=3), "mse").save(tmp_path / "own.cavia")
    with pytest.raises(cavia.CaviaError, match=r"cavia.load\(path, model=Forgetful\(…\)\)"):
        cavia.load(tmp_path / "own.cavia")
    assert cavia.load(tmp_path / "own.cavia", model=Forgetful(3)).inner_lr == 1.0


def test_the_registry_knows_all_that_can_be_built():
    learners = known(cavia.Learner)
    assert {"CAVIA", "MAML", "CNP", "ProtoNets", "MatchingNets", "Steady"} <= set(learners)
    assert not {"Learner", "GradientLearner", "MetricLearner", "CompiledLearner"} & set(learners)
    assert {"MLP", "ConvNet", "WaveBasis", "GaussianPolicy", "Line"} <= set(known(ContextModel))


@pytest.mark.parametrize("name", sorted(known(ContextModel)))
def test_our_networks_are_built_again(name):
    kind = known(ContextModel)[name]
    if kind.__module__.split(".")[0] != "cavia" or kind is cavia.Conditioned:
        return
    needed = {"states": 2, "inputs": 2, "outputs": 3, "observations": 2, "actions": 2}
    from cavia.building import argument_names

    model = kind(**{key: value for key, value in needed.items() if key in argument_names(kind)})
    again = build(kind, json.loads(json.dumps(model.arguments)), "the test")
    assert again.arguments == model.arguments
    assert {key: value.shape for key, value in again.state_dict().items()} == {
        key: value.shape for key, value in model.state_dict().items()
    }


def test_values_become_json(tmp_path):
    given = {"a": np.int64(3), "b": (1, np.float32(0.5)), "c": tmp_path, "d": {"x": np.arange(2)}, "e": {3, 1}}
    assert plain(given, "it") == {"a": 3, "b": [1, 0.5], "c": str(tmp_path), "d": {"x": [0, 1]}, "e": [1, 3]}
    with pytest.raises(cavia.CaviaError, match="it is a function, which a file cannot hold"):
        plain(points, "it")


def test_the_recipe_in_the_documentation_is_a_learner():
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    (recipe,) = re.findall(r"### A method: one file.*?```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(recipe, "architecture.md", "exec"), names := {"__name__": "recipe"})
    assert known(cavia.Learner)["LearnedRate"] is names["LearnedRate"]


def test_the_reference_has_every_public_name():
    text = (Path(__file__).parents[1] / "docs" / "reference.md").read_text()
    names = set(cavia.__all__) - {"__version__", "envs"}
    assert not [name for name in names if f"::: cavia.{name}\n" not in text]
