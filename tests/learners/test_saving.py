"""Files of learners: what they keep, and what they refuse before it costs anything."""

import resource
from pathlib import Path

import pytest
import torch
from torch import nn

import cavia
from cavia.learners.saving import load_with_extra
from cavia.tensor_file import read_tensors, write_tensors
from tests.learners.files import make, saved

OLD = Path(__file__).parents[1] / "fixtures" / "v0_1"
MODELS = sorted(path.name for path in OLD.glob("*.cavia") if path.name != "conditioned.cavia")


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
        (lambda it: it["arguments"].update(inner_steps=10**9), "inner_steps must be at most 1000000, got 1000000000"),
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
