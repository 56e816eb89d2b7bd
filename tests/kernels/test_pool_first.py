"""Blocks that pool before they norm: values, first and second derivatives, and when they are used."""

import pytest
import torch
from torch import nn

import cavia
from cavia.kernels import pool_first
from cavia.kernels.choice import using
from cavia.kernels.stem import plain
from cavia.training.step import MetaStep
from tests.kernels.test_stem import distance, layers, pictures, trained

EPSILON = 1e-5


def first(x, weight, gamma, beta):
    return pool_first.first_block(x, weight, gamma, beta, EPSILON)


def later(h, weight, gamma, beta):
    return pool_first.later_block(h, weight, gamma, beta, EPSILON)


def expected(h, weight, gamma, beta):
    return plain(h.unsqueeze(0), [(weight, gamma, beta)], EPSILON).squeeze(0)


def derivatives(function, h, parts):
    """The output, its gradients by all parts, and the gradients of a function of those gradients."""
    out = function(h, *parts)
    direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape).sin()
    parts = [part for part in (h, *parts) if part.requires_grad]
    slopes = torch.autograd.grad((out.exp() * direction).sum(), parts, create_graph=True)
    curvature = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), parts)
    return [out.detach(), *(slope.detach() for slope in slopes), *curvature]


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (28, 3), (21, 3), (17, 1)])
def test_the_first_block_and_its_derivatives(side, channels):
    x = pictures(1, 3, channels, side)[0]
    (made,) = layers(32, channels, blocks=1)  # one γ is zero, others are negative
    exact = derivatives(expected, x.double(), trained([made], torch.float64)[0])
    for actual, true in zip(derivatives(first, x, made), exact, strict=True):
        assert distance(actual, true) < 1e-4


@pytest.mark.parametrize("side", [21, 10, 5, 2])
def test_a_later_block_and_its_derivatives(side):
    (made,) = layers(16, 16, blocks=1)
    with torch.no_grad():
        made[1][0] = 0.5
    h = pictures(1, 3, 16, side)[0].requires_grad_()
    exact = derivatives(expected, h.detach().double().requires_grad_(), trained([made], torch.float64)[0])
    for actual, true in zip(derivatives(later, h, made), exact, strict=True):
        assert distance(actual, true) < 1e-4


def test_maps_that_are_nearly_constant_keep_their_digits():
    (made,) = layers(16, 16, blocks=1)
    with torch.no_grad():
        made[1][0] = 0.5
    h = 0.5 + 1e-3 * pictures(1, 3, 16, 20)[0]
    double = trained([made], torch.float64)[0]
    assert distance(later(h, *made), expected(h.double(), *double)) < 1e-3
    (made,), x = layers(16, 3, blocks=1), 0.5 + 1e-3 * pictures(1, 3, 3, 20)[0]
    assert distance(first(x, *made), expected(x.double(), *trained([made], torch.float64)[0])) < 1e-3


def batch(tasks=2, side=28):
    generator = torch.Generator().manual_seed(1)
    points = [torch.rand(tasks, count, 1, side, side, generator=generator) for count in (3, 6)]
    labels = [torch.arange(count).expand(tasks, count) % 3 for count in (3, 6)]
    return cavia.TaskBatch(points[0], labels[0], points[1], labels[1])


def learner(name, **arguments):
    torch.manual_seed(0)
    context = 4 if name == "CaviaMAML" else 0
    return getattr(cavia, name)(
        cavia.ConvNet(3, 16, image=28, channels=1, context=context), "cross_entropy", **arguments
    )


@pytest.fixture
def calls(monkeypatch):
    """How often a block pooled first."""
    called = []
    for name in ("first_block", "later_block"):
        true = getattr(pool_first, name)
        monkeypatch.setattr(pool_first, name, lambda *a, true=true, name=name: (called.append(name), true(*a))[1])
    return called


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize("name", ["MAML", "MetaSGD", "CaviaMAML", "Reptile"])
def test_meta_gradients_are_as_near_to_double_precision_as_plain_ones(name, chunk, calls):
    data, made = batch(), learner(name, inner_steps=2)

    def gradient(step, data):
        return sum(step.gradient(part)[0].double() * len(part) / len(data) for part in data.split(chunk or len(data)))

    double = learner(name, inner_steps=2).double()
    exact = gradient(
        MetaStep(double, 1e-3),
        cavia.TaskBatch(data.support_x.double(), data.support_y, data.query_x.double(), data.query_y),
    )
    assert not calls
    ours = gradient(MetaStep(made, 1e-3), data)
    assert bool(calls) == (chunk == 1)  # several tasks at once adapt under vmap
    with using("plain"):
        theirs = gradient(MetaStep(made, 1e-3), data)
    assert distance(ours, exact) <= max(2 * distance(theirs, exact), 1e-4)


def test_it_is_left_to_gradients_of_weights(calls):
    made, data = learner("MAML"), batch(1)
    model, weights = made.model, dict(made.model.named_parameters())

    def out(weights, x):
        return torch.func.functional_call(model, weights, (x, x.new_zeros(1, 0))).sum()

    torch.func.jvp(lambda w: out(w, data.support_x), (weights,), (weights,))
    torch.func.vmap(torch.func.grad(out), (None, 0))(weights, data.support_x.unsqueeze(0))
    model.double()
    torch.func.grad(out)(dict(model.named_parameters()), data.support_x.double())
    model.float()
    with using("plain"):
        torch.func.grad(out)(weights, data.support_x)
    assert not calls
    torch.func.grad(out)(weights, data.support_x)
    assert calls == ["first_block", *["later_block"] * 3]
    ours = torch.func.grad(out, 1)(weights, data.support_x)  # by the pictures
    with using("plain"):
        assert distance(ours, torch.func.grad(out, 1)(weights, data.support_x)) < 1e-3


def test_where_a_scale_is_zero_the_norm_comes_first(calls):
    made, data = learner("MAML", inner_lr=1e-12), batch(1)
    with torch.no_grad():
        made.model.norms[1].weight[3] = 0.0
    ours = torch.autograd.grad(made(data).sum(), list(made.parameters()))
    assert calls == ["first_block", "later_block", "later_block"]
    with using("plain"):
        theirs = torch.autograd.grad(made(data).sum(), list(made.parameters()))
    assert distance(nn.utils.parameters_to_vector(ours), nn.utils.parameters_to_vector(theirs)) < 1e-3
