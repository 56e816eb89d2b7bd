"""Losses of the user's own: versions tell them apart, in files, stores and run folders."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import cavia
from tests.learners.files import make


def absolute(prediction, target):
    return (prediction - target).abs().mean(-1)


def squared(prediction, target):
    return (prediction - target).square().mean(-1)


def scaled(factor):
    return lambda prediction, target: factor * (prediction - target).square().mean(-1)


def powered(prediction, target, power=2):
    return ((prediction - target) ** power).mean(-1)


class Huber:
    def __init__(self, delta):
        self.delta = delta

    def __call__(self, prediction, target):
        return nn.functional.huber_loss(prediction, target, reduction="none", delta=self.delta).mean(-1)


DELTA = 1.0


def by_a_global(prediction, target):
    return DELTA * (prediction - target).square().mean(-1)


def test_own_losses_have_versions_of_their_own(monkeypatch):
    losses = [
        absolute, squared, scaled(1.0), scaled(2.0), powered, functools.partial(powered, power=4), Huber(1.0),
        Huber(2.0), by_a_global, nn.functional.l1_loss, Huber(1.0).__call__, nn.HuberLoss("none", 1.0),
        nn.HuberLoss("none", 2.0), scaled(torch.ones(2)), scaled(torch.zeros(2)),
    ]  # fmt: skip
    versions = [make(loss).version for loss in losses]
    assert len(set(versions)) == len(losses)
    assert [make(loss).version for loss in (absolute, scaled(2.0), Huber(1.0))] == [versions[i] for i in (0, 3, 6)]
    monkeypatch.setitem(globals(), "DELTA", 2.0)
    assert make(by_a_global).version not in versions


@pytest.mark.slow
def test_the_version_of_an_own_loss_is_the_same_in_another_process(tmp_path):
    code = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        from tests.learners.test_own_losses import Huber, make
        print(make(Huber(1.0)).version)"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == make(Huber(1.0)).version


def test_a_store_does_not_mix_contexts_of_two_losses(tmp_path):
    cavia.ContextStore(tmp_path / "store", make(absolute)).close()
    with pytest.raises(cavia.CaviaError, match="holds contexts of model version"):
        cavia.ContextStore(tmp_path / "store", make(squared))


def test_a_run_does_not_go_on_with_another_loss(tmp_path):
    folder, settings = cavia.RunFolder(tmp_path, events=False), {"progress": False, "validation": cavia.Validation(0)}
    cavia.fit(make(absolute), cavia.Sine(), 1, run_dir=folder, **settings)
    with pytest.raises(cavia.CaviaError, match="another configuration: loss_code is"):
        cavia.fit(make(squared), cavia.Sine(), 2, run_dir=folder, **settings)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["learner"]["loss_code"]  # as versions before wrote it
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert cavia.fit(make(absolute), cavia.Sine(), 2, run_dir=folder, **settings).iterations == 2


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda p, t: (p.detach() - t).square().mean(-1), "the loss does not depend on the prediction by"),
        (lambda p, t: (p > t).float().mean(-1), "the loss does not depend on the prediction by"),
        (lambda p, t: (p - t).sum(-1) * 1j, r"real numbers, got torch.complex64 \[2, 5\]"),
        (lambda p, t: (p > t).long().sum(-1), r"real numbers, got torch.int64 \[2, 5\]"),
        (lambda p, t: torch.tensor(p.detach().numpy()).mean(-1), "the loss "),
        (lambda p, t: None, r"one value per point, \[2, 5\] .* it returned None"),
    ],
)
def test_a_loss_that_teaches_nothing_is_refused(loss, message):
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=2), loss)
    x, y = torch.randn(2, 5, 1), torch.randn(2, 5, 1)
    with pytest.raises(cavia.CaviaError, match=message):
        learner.adapt(x, y)
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.fit(learner, cavia.Sine(), 2, support=5, query=5, tasks_per_batch=2, progress=False)


@pytest.mark.parametrize("kind", [cavia.MAML, cavia.Reptile])
def test_a_loss_by_arrays_is_refused_where_weights_adapt(kind):
    learner = kind(cavia.MLP(1, 1, hidden=(4,), context=0), lambda p, t: p.detach().mean(-1).numpy())
    with pytest.raises(cavia.CaviaError, match="the loss converts the prediction to an array"):
        cavia.fit(learner, cavia.Sine(), 1, tasks_per_batch=2, progress=False)


def test_a_loss_without_a_gradient_scores_where_none_is_needed():
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=2), lambda p, t: (p > t).float().mean(-1))
    with torch.no_grad():
        assert learner.mean_loss(torch.ones(2, 5, 1), torch.zeros(2, 5, 1)).tolist() == [1, 1]
