"""Small training runs, and how to compare them."""

import dataclasses
import json
from pathlib import Path

import torch

import cavia


def make(method="CAVIA", hidden=(8,), **arguments):
    torch.manual_seed(0)
    return getattr(cavia, method)(cavia.MLP(1, 1, hidden=hidden, context=2), "mse", **arguments)


def fit(learner, source, iterations, run_dir=None, **settings):
    """`cavia.fit` without TensorBoard, from settings by their names, whichever object they travel in."""

    def taken(**names):
        return {name: settings.pop(own) for name, own in names.items() if own in settings}

    kind = cavia.TRPO if isinstance(source, cavia.envs.TaskEnv) else cavia.Adam
    names = {entry.name: entry.name for entry in dataclasses.fields(kind)}
    updates = taken(discount="discount", trace="trace")
    settings = ({"updates": cavia.Updates(**updates)} if updates else {}) | settings
    outer = taken(**names)
    settings = ({"outer": kind(**outer)} if outer else {}) | settings
    validation = cavia.Validation(**taken(tasks="validation_tasks", every="every", query="validation_query"))
    folder = run_dir and cavia.RunFolder(run_dir, events=False)
    return cavia.fit(learner, source, iterations, validation=validation, run_dir=folder, **settings)


def train(learner, iterations, run_dir=None, **changes):
    settings = {"every": 10, "tasks_per_batch": 4, "validation_tasks": 20, "progress": False, "compile": False}
    return fit(learner, cavia.Sine(), iterations, run_dir, **settings | changes)


def weights(learner):
    return {name: value.clone() for name, value in learner.state_dict().items()}


def lines(folder):
    records = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in records]


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
