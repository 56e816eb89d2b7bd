"""Small training runs, and how to compare them."""

import json
from pathlib import Path

import torch

import cavia


def make(method="CAVIA", hidden=(8,), **arguments):
    torch.manual_seed(0)
    return getattr(cavia, method)(cavia.MLP(1, 1, hidden=hidden, context=2), "mse", **arguments)


def train(learner, iterations, run_dir=None, **changes):
    settings = {"every": 10, "tasks_per_batch": 4, "validation_tasks": 20, "progress": False, "compile": False}
    return cavia.fit(learner, cavia.Sine(), iterations, run_dir=run_dir, tensorboard=False, **settings | changes)


def weights(learner):
    return {name: value.clone() for name, value in learner.state_dict().items()}


def lines(folder):
    found = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
