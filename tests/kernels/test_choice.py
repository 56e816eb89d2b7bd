"""When the fused stem stands in for PyTorch's operations, and when it must not."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.utils.flop_counter import FlopCounterMode

import cavia
from cavia.kernels.choice import using
from cavia.training.step import MetaStep


@pytest.fixture
def calls(monkeypatch):
    """How often the fused stem was used."""
    called = []
    from cavia.models import convnet

    def counted(*arguments):
        called.append(arguments)
        return true(*arguments)

    true = convnet.fused
    monkeypatch.setattr(convnet, "fused", counted)
    return called


def make(filters=16, image=28, channels=1, **arguments):
    torch.manual_seed(0)
    return cavia.ConvNet(3, filters, image=image, channels=channels, context=6, **arguments)


def batch(tasks=2):
    generator = torch.Generator().manual_seed(1)
    points = {
        f"{name}_x": torch.rand(tasks, count, 1, 28, 28, generator=generator)
        for name, count in (("support", 3), ("query", 6))
    }
    labels = {
        f"{name}_y": torch.arange(count).expand(tasks, count) % 3 for name, count in (("support", 3), ("query", 6))
    }
    return cavia.TaskBatch(**points, **labels)


X = torch.rand(2, 4, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("film", [1, 2, 3, 4, (2, 4)])
def test_it_is_used_by_itself_and_changes_nothing_but_rounding(film, calls):
    model, context = make(film=film), torch.randn(2, 6)
    ours = model(X, context)
    assert len(calls) == 1
    with using("plain"):
        torch.testing.assert_close(model(X, context), ours, rtol=1e-4, atol=1e-4)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "arguments",
    [{"filters": 24}, {"filters": 8}, {"shrink": "stride"}, {"channels": 2}],
)
def test_networks_that_it_was_not_written_for_are_left_alone(arguments, calls):
    model = make(**arguments)
    model(X.expand(-1, -1, arguments.get("channels", 1), -1, -1), torch.zeros(2, 6))
    assert not model.fuses
    assert not calls


def test_where_somebody_looks_at_single_operations_they_are_pytorchs(calls):
    model, zeros = make(), torch.zeros(2, 6)
    weights = dict(model.named_parameters())
    torch.func.grad(lambda w: functional_call(model, w, (X, zeros)).sum())(weights)
    vmap(lambda x: model(x[None], zeros[:1]))(X)
    torch.func.jvp(lambda x: model(x, zeros), (X,), (X,))
    with FlopCounterMode(display=False) as counter:
        model(X, zeros)
    assert counter.get_total_flops() > 1e6
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.stem(X).dtype == torch.bfloat16
    with torch.autograd.forward_ad.dual_level():
        model(torch.autograd.forward_ad.make_dual(X, X), zeros)
    model(X.clone().requires_grad_(), zeros)
    model.double()(X.double(), zeros.double())
    model.float().to("meta")(X.to("meta"), zeros.to("meta"))
    assert not calls


def test_hooks_and_replaced_layers_are_called(calls):
    model, seen = make(), []
    handle = model.norms[1].register_forward_hook(lambda *_: seen.append(1))
    model(X, torch.zeros(2, 6))
    assert seen
    assert not calls
    handle.remove()
    model(X, torch.zeros(2, 6))
    assert calls
    nn.utils.parametrizations.weight_norm(model.convolutions[0])
    assert not model.fuses
    changed = make()
    changed.convolutions[1] = nn.Conv2d(16, 16, 1)
    assert not changed.fuses


@pytest.mark.parametrize("norm", ["task", "support", "running"])
@pytest.mark.parametrize("method", ["CAVIA", "MAML", "ANIL", "Reptile", "CaviaMAML", "ProtoNets"])
def test_meta_gradients_agree_with_those_of_plain_operations(method, norm):
    torch.manual_seed(0)
    context = 6 if method in ("CAVIA", "CaviaMAML") else 0
    ways = 0 if method == "ProtoNets" else 3
    model = cavia.ConvNet(ways, 16, image=28, channels=1, context=context, norm=norm)
    arguments = {"ProtoNets": {"ways": 3}, "ANIL": {"head": "linear"}}.get(method, {})
    learner = getattr(cavia, method)(model, "cross_entropy", **arguments)
    step = MetaStep(learner, 1e-3)
    ours, loss = step.gradient(batch())
    with using("plain"):
        theirs, expected = step.gradient(batch())
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    assert (ours - theirs).norm() <= 2e-2 * theirs.norm()  # a max-pool may take another place


def test_a_loop_of_ones_own_can_differentiate_twice(calls):
    """MAML by plain autograd, as in anybody's script."""
    model, data = make(film=3), batch(1)

    def meta_gradient():
        weights = dict(model.named_parameters())
        context = torch.zeros(1, 6)
        loss = nn.functional.cross_entropy(
            functional_call(model, weights, (data.support_x, context))[0], data.support_y[0]
        )
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        moved = {name: w - 0.1 * s for (name, w), s in zip(weights.items(), slopes, strict=True)}
        out = functional_call(model, moved, (data.query_x, context))[0]
        return torch.autograd.grad(nn.functional.cross_entropy(out, data.query_y[0]), list(weights.values()))

    ours = meta_gradient()
    assert len(calls) == 2
    with using("plain"):
        theirs = meta_gradient()
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 2e-2 * b.norm() + 1e-6


def test_an_unknown_kernel_is_named():
    with pytest.raises(cavia.CaviaError, match="unknown kernel 'fuse'; did you mean 'fused'"), using("fuse"):
        pass
