"""Files of learners: what they keep, what they refuse before they cost anything, and what a version tells apart."""

import functools
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import cavia
from cavia.allowance import planned
from cavia.learners.saving import load_with_extra
from cavia.tensor_file import read_tensors, write_tensors

OLD = Path(__file__).parents[1] / "fixtures" / "v0_1"
MODELS = sorted(path.name for path in OLD.glob("*.cavia") if path.name != "conditioned.cavia")


def make(loss="mse", **arguments):
    torch.manual_seed(0)
    return cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=3), loss, **arguments)


def saved(learner, path, change=None):
    """The learner's file, with a change of its description and a checksum that fits."""
    learner.save(path)
    tensors, description = read_tensors(path)
    if change:
        change(description)
    write_tensors(path, tensors, description)
    return path


class Counted(cavia.ContextModel):
    """A network of one's own whose constructor needs numbers, so that the meta device cannot build it."""

    def __init__(self, context: int = 2, width: int = 4, table: int = 1):
        super().__init__()
        self.context, self.width, self.table = context, width, table
        self.width_found = int(torch.ones(width).sum().item()) if width < 10**6 else width
        self.layer = nn.Linear(1 + context, self.width_found)
        self.register_buffer("helper", torch.arange(float(table)), persistent=False)

    def stem(self, x):
        return x

    def head(self, h, context):
        return self.layer(torch.cat([h, context.unsqueeze(1).expand(-1, h.shape[1], -1)], -1))


class Deep(cavia.ContextModel):
    def __init__(self, context: int = 2, depth: int = 1):
        super().__init__()
        self.context, self.depth = context, depth
        self.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(depth))

    def stem(self, x):
        return x

    def head(self, h, context):
        return h + context[:, None, :1]


def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [100_000, 10**9, 10**18, 10**30])
def test_a_small_file_makes_no_large_network(name, size, tmp_path):
    tensors, description = read_tensors(OLD / name)
    before = memory()
    for group in ("arguments", "model_arguments"):
        for argument, value in description[group].items():
            large = size if type(value) is int else [size for _ in value] if isinstance(value, list) else None
            if large is None or argument in ("inner_steps", "film", "at"):
                continue
            path = tmp_path / f"{argument}.cavia"
            write_tensors(path, tensors, description | {group: description[group] | {argument: large}})
            if name in ("protonets.cavia", "matching-nets.cavia") and argument in ("ways", "image", "context"):
                continue  # they have no weights for each class, pixel or number of a context
            with pytest.raises(cavia.CaviaError) as raised:
                cavia.load(path)
            assert "\n" not in str(raised.value)
    assert memory() - before < 50_000


@pytest.mark.parametrize("argument", ["context", "width", "table"])
@pytest.mark.parametrize("size", [10**9, 10**12])
def test_nor_does_one_of_ones_own_that_the_meta_device_cannot_build(argument, size, tmp_path):
    path = tmp_path / "own.cavia"
    learner = cavia.CAVIA(Counted(), "mse")
    saved(learner, path)
    assert cavia.load(path).version == learner.version
    before = memory()
    with pytest.raises(cavia.CaviaError, match="far larger than the 64 bytes of its 2 tensors"):
        cavia.load(saved(learner, path, lambda it: it["model_arguments"].update({argument: size})))
    assert memory() - before < 100_000


@pytest.mark.slow
def test_nor_one_of_more_layers_than_anybody_has_patience_for(tmp_path):
    path = saved(
        cavia.CAVIA(Deep(), "mse"), tmp_path / "deep.cavia", lambda it: it["model_arguments"].update(depth=10**9)
    )
    with pytest.raises(cavia.CaviaError, match="far larger"):
        cavia.load(path)


def test_a_module_that_is_given_is_not_conditioned_by_absurd_numbers(tmp_path):
    def network():
        return nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))

    learner = cavia.CAVIA(cavia.condition(network(), at="0", context=2, example=torch.zeros(1, 1)), "mse")
    path = saved(learner, tmp_path / "own.cavia", lambda it: it["model_arguments"].update(context=10**11))
    with pytest.raises(cavia.CaviaError, match="far larger"):
        cavia.load(path, module=network())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: it.pop("model"), "does not describe a learner"),
        (lambda it: it.pop("arguments"), "does not describe a learner"),
        (lambda it: it.update(learner="CAVIB"), "did you mean 'CAVIA'"),
        (lambda it: it.update(learner=["CAVIA"]), "does not describe a learner"),
        (lambda it: it.update(model={}), "does not describe a learner|needs its own network"),
        (lambda it: it.update(arguments=3), "does not describe a learner"),
        (lambda it: it.update(loss="mae"), "unknown loss 'mae'"),
        (lambda it: it.update(modules=[]), "does not describe a learner"),
        (lambda it: it.update(frozen=["model.layers.7"]), "frozen must name parameters"),
        (lambda it: it.update(frozen=3), "frozen must name parameters"),
        (lambda it: it.update(format="1"), "has format '1'"),
        (lambda it: it["arguments"].update(inner_lr="fast"), "inner_lr must be"),
        (lambda it: it["model_arguments"].update(hidden=[9]), r"size mismatch for model.layers.0.weight: \[8, 4\]"),
        (lambda it: it["model_arguments"].update(hidden=[8, 1]), "model.layers.2.weight is missing"),
    ],
)
def test_a_description_that_fits_nothing_is_one_line(change, message, tmp_path):
    with pytest.raises(cavia.CaviaError, match=message) as raised:
        cavia.load(saved(make(), tmp_path / "one.cavia", change))
    assert "\n" not in str(raised.value)


def test_tensors_of_another_kind_are_refused(tmp_path):
    path = saved(make(), tmp_path / "one.cavia")
    tensors, description = read_tensors(path)
    for dtype in (torch.int64, torch.bool, torch.complex64):
        write_tensors(path, tensors | {"model.layers.0.bias": torch.zeros(8, dtype=dtype)}, description)
        with pytest.raises(cavia.CaviaError, match=f"model.layers.0.bias is {dtype} in the file"):
            cavia.load(path)


def test_saving_twice_gives_the_same_bytes(tmp_path):
    learner = make()
    for number in range(4):
        learner.save(tmp_path / f"{number}.cavia")
        learner = cavia.load(tmp_path / f"{number}.cavia")
    assert len({(tmp_path / f"{number}.cavia").read_bytes() for number in range(4)}) == 1


@pytest.mark.parametrize("name", MODELS)
def test_loading_does_not_depend_on_the_default_device_or_type(name):
    expected = load_with_extra(OLD / name)[0]
    try:
        torch.set_default_dtype(torch.float64)
        in_double = load_with_extra(OLD / name)[0]
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        on_meta = load_with_extra(OLD / name)[0]
    for actual in (in_double, on_meta):
        tensors = dict(actual.named_buffers()) | dict(actual.named_parameters())
        for key, value in (*expected.named_buffers(), *expected.named_parameters()):
            assert torch.equal(tensors[key], value)
            assert tensors[key].dtype == value.dtype


def test_every_tensor_keeps_its_own_type(tmp_path):
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.WaveBasis(1, 1, waves=4, context=3, hidden=(4,)), "mse", learn_init=True)
    learner.model.bends.double()
    learner.model.constant.data = learner.model.constant.data.half()
    learner.save(tmp_path / "mixed.cavia")
    loaded = cavia.load(tmp_path / "mixed.cavia")
    assert {key: value.dtype for key, value in loaded.state_dict().items()} == {
        key: value.dtype for key, value in learner.state_dict().items()
    }
    assert loaded.version == learner.version


def test_what_is_frozen_stays_frozen(tmp_path):
    learner = make()
    learner.model.layers[0].weight.requires_grad_(False)
    learner.save(tmp_path / "one.cavia")
    loaded = cavia.load(tmp_path / "one.cavia")
    assert [name for name, value in loaded.named_parameters() if not value.requires_grad] == ["model.layers.0.weight"]
    assert loaded.version == make().version  # it computes the same

    def network():
        return nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))

    conditioned = cavia.condition(network(), at="0", context=2, example=torch.zeros(1, 1), freeze=True)
    conditioned.module.requires_grad_(True)
    cavia.CAVIA(conditioned, "mse").save(tmp_path / "two.cavia")
    loaded = cavia.load(tmp_path / "two.cavia", module=network())
    assert all(value.requires_grad for value in loaded.parameters())


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
        from tests.learners.test_saving import Huber, make
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


def test_what_will_be_allocated_is_counted():
    like = torch.zeros(1)
    for function, args, kwargs in (
        (torch.empty, (3, 4), {}),
        (torch.zeros, ((3, 4),), {}),
        (torch.randn, ([3, 4],), {}),
        (torch.ones, (), {"size": (3, 4)}),
        (torch.empty, (torch.Size([5]),), {}),
        (torch.full, ((3, 4), 2.0), {}),
        (torch.full, (), {"size": (3, 4), "fill_value": 2.0}),
        (torch.randint, (5, (2, 3)), {}),
        (torch.randint, (1, 5, (2, 3)), {}),
        (torch.arange, (7,), {}),
        (torch.arange, (2, 7), {}),
        (torch.arange, (2, 8, 2.5), {}),
        (torch.arange, (), {"end": 4}),
        (torch.arange, (2.0, 7.5), {"step": 2}),
        (torch.linspace, (0, 1, 9), {}),
        (torch.linspace, (0, 1), {"steps": 9}),
        (torch.Tensor.new_zeros, (like, 3, 4), {}),
        (torch.Tensor.new_full, (like, (3, 4), 1.0), {}),
        (torch.empty_strided, ((3, 4), (4, 1)), {}),
    ):
        assert planned(function, args, kwargs) == function(*args, **kwargs).numel()
    assert planned(torch.eye, (3,), {}) >= 9
    assert planned(torch.eye, (3, 4), {}) >= 12
    assert planned(torch.randperm, (3,), {}) >= 3
    assert planned(torch.sin, (like,), {}) is None
