"""`condition`: what is refused, and layers whose batch or statistics are not where one expects them."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

import cavia
from tests.models.modules import Convolutions, Encoder, make, mlp, points, rows, words


def test_a_module_that_does_not_fit_the_file_is_named(tmp_path):
    _, model, _ = make("mlp")
    cavia.CAVIA(model, "cross_entropy").save(tmp_path / "own.cavia")
    with pytest.raises(
        cavia.CaviaError, match=r"does not fit .*own\.cavia: the module has no layer 'a'; it has 'first'"
    ):
        cavia.load(tmp_path / "own.cavia", module=Convolutions())
    with pytest.raises(cavia.CaviaError, match="do not fit the network: size mismatch"):
        cavia.load(tmp_path / "own.cavia", module=nn.Sequential(OrderedDict(a=nn.Linear(3, 9))))


def test_task_statistics_are_those_of_batch_norm_on_each_task():
    module, model, inputs = make("batch norm, task")
    x = inputs(3, 5)
    module.train()
    expected = torch.stack([module(task) for task in x])
    torch.testing.assert_close(model.train()(x, torch.zeros(3, 3)), expected)
    mask = torch.ones(3, 5, dtype=torch.bool)
    with pytest.raises(cavia.CaviaError, match="has batch norm, whose statistics padded points would change"):
        cavia.CAVIA(model, "cross_entropy").adapt(x, torch.zeros(3, 5, dtype=torch.long), mask)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x):
        return self.linear(x - x.mean(0))


class SequenceFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16)
        self.out = nn.Linear(8, 4)

    def forward(self, x):  # [N, L, 8]
        return self.out(self.layer(x.transpose(0, 1)).mean(0))


def test_a_layer_with_the_batch_on_its_second_axis():
    model = cavia.condition(SequenceFirst(), at="layer", context=3, example=points(4, 5, 8))
    assert model.arguments["sites"] == [{"layer": "layer", "channels": 8, "axis": 2, "batch": 1}]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make("mlp", at="layer"), "the module has no layer 'layer'; it has 'a', 'b', 'drop', 'c'"),
        (lambda: make("convolutions", at="secnd"), "no layer 'secnd'; the nearest are 'second'"),
        (
            lambda: make("encoder", at="encoder.layer.*"),
            r"no layer 'encoder.layer.\*'; the nearest are 'encoder.layers",
        ),
        (lambda: make("mlp", at=[]), "at must name at least one layer"),
        (lambda: make("mlp", how="filn"), "unknown how 'filn'; did you mean 'film'"),
        (lambda: make("gru", how="concat"), "'recurrent' is a GRU: use how=\"film\""),
        (lambda: make("batch norm, frozen", norm=None), "'norm' is a batch norm, whose statistics would mix tasks"),
        (lambda: make("batch norm, frozen", norm="froze"), "unknown norm 'froze'; did you mean 'frozen'"),
        (lambda: make("keywords", argument=None), "cannot run on the example"),
        (lambda: make("keywords", output=None), "the module returns a OrderedDict, not a tensor; name the part"),
        (lambda: make("keywords", output="logit"), "has no part 'logit'; it is logits, hidden"),
        (lambda: make("convolutions", axis=4), "channels must be on an axis behind that, got axis=4"),
        (lambda: cavia.condition(mlp(), "a", -1, example=rows(4)), "context must be at least 0, got -1"),
        (lambda: cavia.condition(mlp(), "a", 3, example=points(4, 2)), r"cannot run on the example \[4, 2\]"),
        (lambda: cavia.condition(mlp(), "a", 3, example=None), "example must be a tensor"),
        (lambda: cavia.condition(Mixing(), "linear", 3, example=rows(4)), "tasks do not stay apart"),
        (
            lambda: cavia.condition(Encoder(), "encoder.layers.0.self_attn.out_proj", 3, example=words(4)),
            "never called",
        ),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(cavia.CaviaError, match=message):
        build()


def test_a_context_without_effect_is_refused():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 4), nn.Linear(3, 4)

        def forward(self, x):
            self.unused(x)
            return self.used(x)

    with pytest.raises(cavia.CaviaError, match="the output does not depend on unused"):
        cavia.condition(Unused(), at="unused", context=3, example=rows(4))


def test_random_numbers_that_another_thread_draws_do_not_count():
    """Dropout in the check that tasks stay apart would differ by them."""
    net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    checked = []

    class Meanwhile(torch.nn.Module):
        def forward(self, x):
            checked.append(x)
            if len(checked) == 5:  # as another thread would, in the midst of one of the calls
                torch.rand(100)
            return x

    for turn in range(8):
        checked.clear()
        checked.extend([None] * turn)
        cavia.condition(torch.nn.Sequential(Meanwhile(), net), at="1.0", context=2, example=torch.ones(3, 1))
