"""Networks that need care when they are compiled, and those that run uncompiled."""

import warnings

import pytest
import torch

import cavia
from cavia.learners import compiled as compiled_module, graphs
from cavia.models.base import NormedModel
from tests.learners.compiling import assert_same, make, mlp, points

pytestmark = pytest.mark.usefixtures("compiler")


def test_networks_with_batch_norm_have_their_exact_points_and_keep_their_statistics():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(2, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
    for norm in ("task", "frozen"):
        net = torch.nn.Sequential(*layers)
        learner = cavia.CAVIA(cavia.condition(net, at="0", context=3, example=torch.zeros(4, 2), norm=norm), "mse")
        before = {name: value.clone() for name, value in net.named_buffers()}
        compiled = cavia.compiled(learner)
        for support in (3, 4):
            assert_same(compiled, learner, support=support)
        assert len(compiled.graphs.graphs) == (3 if norm == "task" else 2)
        assert all(torch.equal(before[name], value) for name, value in net.named_buffers())
        x, y, _ = points(learner)
        if norm == "task":
            with pytest.raises(cavia.CaviaError, match="has batch norm"):
                compiled.adapt(x, y, torch.ones(3, 3).bool())


def test_dropout_follows_the_mode():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 20), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(20, 1))
    learner = cavia.CAVIA(cavia.condition(net, at="0", context=3, example=torch.zeros(4, 2)), "mse")
    compiled = cavia.compiled(learner)
    x, y, _ = points(learner)
    compiled.adapt(x, y)
    assert not torch.equal(compiled.adapt(x, y)["context"], compiled.adapt(x, y)["context"])
    learner.eval()
    assert_same(compiled, learner)


@pytest.mark.parametrize("norm", ["support", "running"])
def test_convolutions_are_left_as_they_are_on_a_processor(norm):
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.ConvNet(2, 4, image=16, channels=1, context=3, norm=norm), "cross_entropy").eval()
    with pytest.warns(UserWarning, match="runs uncompiled: on a CPU, compiled convolutions are slower"):
        compiled = cavia.compiled(learner)
    x, y = torch.rand(2, 4, 1, 16, 16), torch.arange(4).expand(2, 4) % 2
    state = {key: value.clone() for key, value in learner.state_dict().items()}
    fast, expected = compiled.adapt(x, y), learner.adapt(x, y)
    assert fast.keys() == expected.keys()
    assert torch.equal(compiled.predict(x, fast), learner.predict(x, expected))
    assert all(torch.equal(state[key], value) for key, value in learner.state_dict().items())


class Normed(NormedModel):
    """One layer with batch norm, whose statistics are those of the support points."""

    context, keeps_statistics = 3, True

    def __init__(self):
        super().__init__()
        self.first, self.shift, self.last = (torch.nn.Linear(*sizes) for sizes in ((2, 4), (3, 4), (4, 1)))

    def stem(self, x, statistics=None):
        h = self.first(x)
        mean, variance = (self.of(h) if statistics is None else statistics).unsqueeze(2).unbind(1)
        return (h - mean) / (variance + 1e-5).sqrt()

    def head(self, h, context, statistics=None):
        return self.last((h + self.shift(context).unsqueeze(1)).relu())

    def statistics(self, x, context):
        return self.of(self.first(x))

    def of(self, h):
        return torch.stack([h.mean(1), h.var(1, correction=0)], 1)


@pytest.mark.parametrize("method", [cavia.CAVIA, cavia.MAML])
def test_statistics_of_support_points_go_through_graphs(method, monkeypatch):
    monkeypatch.setattr(compiled_module, "obstacle", lambda *_: None)  # our own such network is one of convolutions
    torch.manual_seed(0)
    learner = method(Normed().double(), "mse")
    compiled = cavia.compiled(learner)
    adapted = assert_same(compiled, learner)
    assert adapted.statistics is not None
    assert_same(compiled, learner, start=adapted)
    assert len(compiled.graphs.graphs) == 3


class Own(cavia.MLP):
    """A class of one's own."""


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: cavia.CAVIA(Own(2, 1, hidden=(6,), context=3), "mse"), "Own is your own code"),
        (lambda: cavia.CAVIA(mlp(), lambda p, t: (p - t).square().mean(-1)), "the loss is your own code"),
    ],
)
def test_what_is_not_compiled_runs_as_it_is_and_says_why(build, why):
    learner = build()
    with pytest.warns(UserWarning, match=rf"cavia\.compiled\(CAVIA\): it runs uncompiled: {why}"):
        compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled.predict(q, compiled.adapt(x, y)), learner.predict(q, learner.adapt(x, y)))


def test_a_compiler_that_fails_is_named_once(monkeypatch):
    def failing(*_):
        raise RuntimeError("no C++ compiler was found\nand more")

    monkeypatch.setattr(graphs, "compile_graph", failing)
    learner = make("CAVIA", torch.float32)
    compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    with pytest.warns(UserWarning, match="it runs uncompiled: no C\\+\\+ compiler was found$"):
        fast = compiled.adapt(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled.predict(q, fast), learner.predict(q, learner.adapt(x, y)))


def test_the_number_of_graphs_is_bounded(monkeypatch):
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 1)
    learner = make("CAVIA", torch.float32)
    compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    fast = compiled.adapt(x, y)
    with pytest.warns(UserWarning, match="graphs already"):
        predicted = compiled.predict(q, fast)
    torch.testing.assert_close(predicted, learner.predict(q, fast).detach())
    compiled.adapt(x[:, :2], y[:, :2])
    assert len(compiled.graphs.graphs) == 1
