"""Modules of users to condition, by name."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

import cavia


class Convolutions(nn.Module):
    def __init__(self, norm=nn.Identity):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = norm(6)
        self.second = nn.Conv2d(6, 8, 3, padding=1)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        return self.out(torch.relu(self.second(h)).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.embed = nn.Embedding(11, 8)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(8, 4)

    def forward(self, tokens):
        return self.out(self.encoder(self.embed(tokens)).mean(1))


class Recurrent(nn.Module):
    """Reads its answer off the output or off the final state."""

    def __init__(self, kind=nn.GRU, reads="output", **options):
        super().__init__()
        self.recurrent = kind(3, 6, batch_first=True, **options)
        self.reads = reads
        self.out = nn.Linear(12 if options.get("bidirectional") else 6, 4)

    def forward(self, x):
        h, state = self.recurrent(x)
        state = state[0] if isinstance(state, tuple) else state
        last = h[:, -1] if self.reads == "output" else state[-1]
        return self.out(last)


class Dictionaries(nn.Module):
    """In the manner of Hugging Face: keyword arguments, layers that return tuples, an output with names."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, hidden, scale=1.0):
            return (torch.tanh(self.linear(hidden)) * scale, "attentions")

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layers = nn.ModuleList(self.Layer() for _ in range(3))
        self.out = nn.Linear(8, 4)

    def forward(self, *, input_ids, attention_mask=None, return_all=False):
        h = self.embed(input_ids)
        for layer in self.layers:
            h = layer(hidden=h, scale=2.0)[0]
        outputs = OrderedDict(logits=self.out(h.mean(1)))
        if return_all:
            outputs["hidden"] = h
        return outputs


def mlp():
    return nn.Sequential(OrderedDict(a=nn.Linear(3, 8), b=nn.ReLU(), drop=nn.Dropout(0.3), c=nn.Linear(8, 4)))


def points(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def tokens(*shape):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(1))


pictures, rows, series = (lambda *n: points(*n, 3, 6, 6)), (lambda *n: points(*n, 3)), (lambda *n: points(*n, 5, 3))
words = lambda *n: tokens(*n, 5)  # noqa: E731

# name → (module, inputs for leading axes, arguments of condition)
CASES = {
    "mlp": (mlp, rows, {"at": "a"}),
    "mlp, concat": (mlp, rows, {"at": ["a", "c"], "how": "concat"}),
    "convolutions": (Convolutions, pictures, {"at": "second"}),
    "convolutions, concat": (Convolutions, pictures, {"at": ["first", "second"], "how": "concat"}),
    "batch norm, frozen": (lambda: Convolutions(nn.BatchNorm2d), pictures, {"at": "norm", "norm": "frozen"}),
    "batch norm, task": (lambda: Convolutions(nn.BatchNorm2d), pictures, {"at": "norm", "norm": "task"}),
    "group norm": (lambda: Convolutions(lambda c: nn.GroupNorm(2, c)), pictures, {"at": "norm"}),
    "encoder": (Encoder, words, {"at": "encoder.layers.*"}),
    "encoder, dropout": (lambda: Encoder(0.1), words, {"at": "encoder.layers.1"}),
    "encoder, inner layer": (Encoder, words, {"at": "encoder.layers.0.linear1", "how": "concat"}),
    "gru": (Recurrent, series, {"at": "recurrent"}),
    "gru, state": (lambda: Recurrent(reads="state"), series, {"at": "recurrent"}),
    "lstm, state": (lambda: Recurrent(nn.LSTM, "state", num_layers=2), series, {"at": "recurrent"}),
    "lstm, two ways": (lambda: Recurrent(nn.LSTM, bidirectional=True), series, {"at": "recurrent"}),
    "keywords": (
        Dictionaries,
        words,
        {
            "at": "layers.?",
            "argument": "input_ids",
            "output": "logits",
            "keywords": {"return_all": True, "attention_mask": None},
        },
    ),
}
each_case = pytest.mark.parametrize("case", CASES)


def make(case, **changes):
    torch.manual_seed(0)
    build, inputs, arguments = CASES[case]
    module = build()
    return module, cavia.condition(module, context=3, example=inputs(4), **arguments | changes), inputs


def call(module, x, arguments):
    output = module(**{arguments["argument"]: x}) if "argument" in arguments else module(x)
    return output[arguments["output"]] if "output" in arguments else output
