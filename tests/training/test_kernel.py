"""A run goes on with the kernel that it was begun with, to the bit."""

import json

import pytest
import torch

import cavia
from cavia.kernels import build
from cavia.kernels.choice import using
from cavia.pictures.glyphs import synthetic_glyphs
from tests.training import policies
from tests.training.runs import assert_same, fit, lines, weights


@pytest.fixture(scope="module")
def family():
    images = synthetic_glyphs(size=28)
    return cavia.Episodes(images, ways=3, shots=1, queries=2, channels=1)


def make(method="CAVIA", context=4):
    torch.manual_seed(0)
    return getattr(cavia, method)(cavia.ConvNet(3, 16, image=28, channels=1, context=context), "cross_entropy")


def train(learner, family, iterations, run_dir=None):
    return fit(learner, family, iterations, run_dir, tasks_per_batch=2, every=2, validation_tasks=2, progress=False)


def recorded(folder):
    return json.loads((folder / "config.json").read_text()).get("kernel")


@pytest.mark.parametrize("kernel", ["fused", "plain"])
def test_a_run_goes_on_with_its_kernel_to_the_bit(tmp_path, family, kernel):
    whole, part, resumed = make(), make(), make()
    with using(kernel):
        train(whole, family, 6, tmp_path / "whole")
        train(part, family, 4, tmp_path / "part")
    train(resumed, family, 6, tmp_path / "part")  # as the folder says, whatever is chosen now
    assert_same(weights(whole), weights(resumed))
    assert lines(tmp_path / "whole") == lines(tmp_path / "part")
    assert recorded(tmp_path / "whole") == recorded(tmp_path / "part") == kernel


def test_both_kernels_train_alike_but_for_rounding(tmp_path, family):
    by_kernel = {}
    for kernel in ("fused", "plain"):
        learner = make()
        with using(kernel):
            train(learner, family, 6, tmp_path / kernel)
        by_kernel[kernel] = weights(learner)
    for a, b in zip(lines(tmp_path / "fused"), lines(tmp_path / "plain"), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
    assert any(not torch.equal(value, by_kernel["plain"][name]) for name, value in by_kernel["fused"].items())
    distance = torch.stack(
        [(value - by_kernel["plain"][name]).norm() for name, value in by_kernel["fused"].items()]
    ).norm()
    assert distance < 0.05  # Adam moves a weight by 0.001 a step, up or down, however small its gradient


def test_a_folder_from_before_there_were_kernels_goes_on_without(tmp_path, family):
    whole, part = make(), make()
    with using("plain"):
        train(whole, family, 6)
        train(part, family, 4, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["kernel"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    resumed = make()
    train(resumed, family, 6, tmp_path)
    assert_same(weights(whole), weights(resumed))
    assert recorded(tmp_path) is None


def test_without_a_compiler_a_fused_run_says_what_to_do(tmp_path, family, monkeypatch):
    train(make(), family, 2, tmp_path)
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", "false")
    build.library.cache_clear()
    try:
        with (
            pytest.warns(UserWarning, match="the compiler false failed"),
            pytest.raises(cavia.CaviaError, match=r'names the fused kernel.*write "kernel": "plain" there'),
        ):
            train(make(), family, 4, tmp_path)
        (tmp_path / "config.json").write_text((tmp_path / "config.json").read_text().replace('"fused"', '"plain"'))
        train(make(), family, 4, tmp_path)
    finally:
        build.library.cache_clear()
    assert recorded(tmp_path) == "plain"
    (tmp_path / "config.json").write_text((tmp_path / "config.json").read_text().replace('"plain"', '"fuse"'))
    with pytest.raises(cavia.CaviaError, match=r"unknown kernel in .*config.json 'fuse'; did you mean 'fused'"):
        train(make(), family, 6, tmp_path)


def test_a_run_of_another_network_has_no_entry(tmp_path):
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), "mse")
    fit(learner, cavia.Sine(), 2, run_dir=tmp_path, progress=False, validation_tasks=2)
    assert recorded(tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["fused", "plain"])
@pytest.mark.parametrize("method", ["CAVIA", "MAML"])
def test_a_policy_goes_on_with_its_kernel_to_the_bit(tmp_path, method, kernel):
    with using(kernel):
        whole = policies.make(method)
        policies.train(whole, 6, tmp_path / "whole")
        policies.train(policies.make(method), 3, tmp_path / "part")
    resumed = policies.make(method)
    policies.train(resumed, 6, tmp_path / "part")
    assert_same(weights(resumed), weights(whole))
    assert recorded(tmp_path / "whole") == recorded(tmp_path / "part") == kernel
