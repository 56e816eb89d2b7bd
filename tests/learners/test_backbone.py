"""A conditioned module's frozen weights stay where they are: a file has their fingerprints only."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import cavia
from cavia.tensor_file import read_tensors, write_tensors


def backbone(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 1))


def conditioned(module, freeze=True):
    model = cavia.condition(module, at="0", context=3, norm="frozen", example=torch.zeros(3, 2), freeze=freeze)
    return cavia.CAVIA(model, "mse", inner_lr=0.3)


@pytest.fixture
def learner():
    return conditioned(backbone())


def predicted(learner):
    x, y = torch.linspace(0, 1, 24).view(2, 6, 2), torch.linspace(0, 1, 12).view(2, 6, 1)
    return learner.predict(x, learner.adapt(x, y))


def test_only_what_was_trained_is_in_the_file(learner, tmp_path):
    path = tmp_path / "model.cavia"
    learner.save(path)
    kept = read_tensors(path)[0]
    frozen = {name for name, value in learner.named_parameters() if not value.requires_grad}
    assert frozen
    assert set(kept) == set(learner.state_dict()) - frozen  # with buffers, which a module may change
    loaded = cavia.load(path, module=backbone())
    assert loaded.version == learner.version
    assert torch.equal(predicted(loaded), predicted(learner.eval()))
    assert not any(value.requires_grad for value in loaded.model.module.parameters())


def test_the_whole_network_on_demand(learner, tmp_path):
    learner.save(tmp_path / "whole.cavia", backbone=True)
    loaded = cavia.load(tmp_path / "whole.cavia", module=backbone(seed=1))  # whose weights are replaced
    assert loaded.version == learner.version


def test_other_weights_are_refused_by_name(learner, tmp_path):
    path = tmp_path / "model.cavia"
    learner.save(path)
    other = backbone()
    with torch.no_grad():
        other[3].weight[0, 0] += 1e-3
    with pytest.raises(
        cavia.CaviaError, match=r"not the one that .* 1 of its 8 frozen weights differ, first '3.weight'"
    ):
        cavia.load(path, module=other)
    with pytest.raises(cavia.CaviaError, match=r"not the one that .*: it has no 3\.weight"):
        cavia.load(path, module=other[:2])
    with pytest.raises(cavia.CaviaError, match=r"holds a module conditioned at '0': cavia.load\(path, module="):
        cavia.load(path)


def test_a_network_may_bring_its_module(learner, tmp_path):
    learner.save(tmp_path / "model.cavia")
    loaded = cavia.load(tmp_path / "model.cavia", model=conditioned(backbone()).model)
    assert loaded.version == learner.version


def test_weights_that_are_trained_after_all_are_in_the_file(learner, tmp_path):
    last = learner.model.module[4]
    last.requires_grad_(True)
    with torch.no_grad():
        last.bias += 1
    learner.save(tmp_path / "model.cavia")
    loaded = cavia.load(tmp_path / "model.cavia", module=backbone())
    assert loaded.version == learner.version
    assert loaded.model.module[4].bias.requires_grad


def test_the_learners_type_is_found_again(learner, tmp_path):
    learner.double().save(tmp_path / "model.cavia")
    loaded = cavia.load(tmp_path / "model.cavia", module=backbone())
    assert loaded.version == learner.version
    assert {value.dtype for value in loaded.parameters()} == {torch.float64}


def test_a_module_that_is_not_frozen_is_saved_whole(tmp_path):
    learner = conditioned(backbone(), freeze=False)
    learner.save(tmp_path / "model.cavia")
    assert set(read_tensors(tmp_path / "model.cavia")[0]) == set(learner.state_dict())
    assert cavia.load(tmp_path / "model.cavia", module=backbone(seed=1)).version == learner.version


@pytest.mark.parametrize(
    "change",
    [
        lambda prints: None,
        lambda prints: {"0.weight": ["float32", "00"]},
        lambda prints: {"model.module.0.weight": "float32"},
        lambda prints: {"model.module.0.weight": ["nn", "00"]},
        lambda prints: dict(list(prints.items())[1:]),
        lambda prints: prints | {"model.module.1.running_mean": ["float32", "00"]},
    ],
)
def test_damaged_fingerprints_are_refused(learner, tmp_path, change):
    path = tmp_path / "model.cavia"
    learner.save(path)
    tensors, description = read_tensors(path)
    description["backbone"] = change(copy.deepcopy(description["backbone"]))
    write_tensors(path, tensors, description)
    for call in (partial(cavia.load, path, module=backbone()), partial(cavia.load, path, module=nn.Linear(2, 2))):
        with pytest.raises(cavia.CaviaError, match=r"model\.cavia"):
            call()
