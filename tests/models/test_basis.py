"""The wave basis: its equation, and that the context enters linearly."""

import math

import pytest
import torch

import cavia
from cavia.models.basis import distinct

WAVES = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2))  # all shorter than 3, √8 < 3


def make(method=cavia.CAVIA, **arguments):
    torch.manual_seed(0)
    model = cavia.WaveBasis(2, 3, waves=3, context=5)
    torch.nn.init.normal_(model.constant)
    generator = torch.Generator().manual_seed(1)
    points = [torch.rand(4, count, size, generator=generator).double() for count in (6, 7) for size in (2, 3)]
    return method(model, "mse", **arguments).double(), cavia.TaskBatch(*points)


def one_task(x, context, weights):
    """The network on one task, from its equation: x [N, 2], context [5] → [N, 3]."""
    total = torch.zeros(len(x), 3, dtype=x.dtype)
    for w, (i, j) in enumerate(WAVES):
        wave = 2 / math.sqrt(1 + i * i + j * j) * torch.cos(math.pi * i * x[:, 0]) * torch.cos(math.pi * j * x[:, 1])
        total = total + wave[:, None] * (weights["constant"][w] + weights["functions"][w] @ context)
    return total


def test_the_network_is_its_equation_on_every_task():
    learner, batch = make()
    context = torch.randn(4, 5, dtype=torch.float64)
    weights = dict(learner.model.named_parameters())
    expected = torch.stack([one_task(batch.query_x[i], context[i], weights) for i in range(4)])
    torch.testing.assert_close(learner.model(batch.query_x, context), expected)


@pytest.mark.parametrize("tasks", [4, 40])  # with 40, there are too many places to predict at all of them
def test_equal_places_are_computed_once_and_give_the_same(tasks, monkeypatch):
    learner, _ = make()
    model, seen = learner.model, []
    x = torch.rand(tasks, 7, 2, dtype=torch.float64)
    x[:, :3] = x[0, :3].flip(0)  # places of the first task, in another order
    context = torch.randn(tasks, 5, dtype=torch.float64)
    basis = model.basis
    monkeypatch.setattr(model, "basis", lambda places: seen.append(len(places)) or basis(places))
    once = model.head(model.stem(x), context)
    assert seen == [7 + 4 * (tasks - 1)]
    assert (model.stem(x).which is None) == (tasks == 40)
    torch.testing.assert_close(once, model(x, context))
    x.requires_grad_()
    assert torch.autograd.grad(model.head(model.stem(x), context).sum(), x)[0].shape == x.shape


def test_places_that_all_tasks_share_are_computed_once(monkeypatch):
    learner, _ = make()
    model, seen = learner.model, []
    x = torch.rand(7, 2, dtype=torch.float64)[[0, 1, 2, 2]].expand(4, 4, 2)
    context = torch.randn(4, 5, dtype=torch.float64)
    basis = model.basis
    monkeypatch.setattr(model, "basis", lambda places: seen.append(len(places)) or basis(places))
    once = model.head(model.stem(x), context)
    assert seen == [4]
    torch.testing.assert_close(once, model(x, context))


def test_points_that_only_look_alike_are_told_apart():
    apart = torch.tensor([[2.0**0.5, 0.0], [0.0, 1.0]], dtype=torch.float64)  # both are √2 when weighed by 1 and √2
    points = apart[[0, 1, 0, 0]]
    places, which = distinct(points)
    assert len(places) == 2
    assert torch.equal(places[which], points)


def test_predictions_are_linear_in_the_context():
    learner, batch = make()
    a, b = torch.randn(2, 4, 5, dtype=torch.float64)
    both = (learner.model(batch.query_x, a) + learner.model(batch.query_x, b)) / 2
    torch.testing.assert_close(learner.model(batch.query_x, (a + b) / 2), both)


@pytest.mark.parametrize("first_order", [False, True])
def test_meta_gradient_equals_task_by_task_autograd(first_order):
    rate, steps = 0.7, 3
    learner, batch = make(inner_lr=rate, inner_steps=steps, first_order=first_order)
    learner(batch).mean().backward()

    weights = {name: value.detach().clone().requires_grad_() for name, value in learner.model.named_parameters()}
    for i in range(4):
        context = torch.zeros(5, dtype=torch.float64, requires_grad=True)
        for _ in range(steps):
            loss = (one_task(batch.support_x[i], context, weights) - batch.support_y[i]).square().mean()
            (gradient,) = torch.autograd.grad(loss, context, create_graph=not first_order)
            context = context - rate * gradient
        loss = (one_task(batch.query_x[i], context, weights) - batch.query_y[i]).square().mean()
        (loss / 4).backward()
    for name, parameter in learner.model.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=1e-8, atol=1e-12)


def test_the_first_step_is_stable_whatever_the_size():
    torch.manual_seed(0)
    for waves, context in ((3, 4), (24, 128)):
        basis = cavia.WaveBasis(2, 1, waves=waves, context=context).basis(torch.rand(500, 2))[..., 1:]
        assert 0.1 < basis.square().sum(-1).mean() < 1.1


def test_it_can_start_from_principal_components():
    torch.manual_seed(0)
    x = torch.rand(60, 2, dtype=torch.float64)
    y = 0.3 + torch.randn(50, 4).double() @ torch.randn(4, 180).double()
    y = y.view(50, 60, 3)
    model = cavia.WaveBasis(2, 3, waves=12, context=4).double()
    model.initialise(x, y)
    basis = model.basis(x)
    torch.testing.assert_close(basis[..., 0], y.mean(0), rtol=1e-3, atol=1e-3)
    components = basis[..., 1:].flatten(0, 1)  # [180, 4]
    varying = (y - y.mean(0)).flatten(1)
    sizes = torch.linalg.svdvals(varying)[:4]
    lengths = components.norm(dim=0).sort(descending=True).values
    torch.testing.assert_close(lengths / lengths[0], sizes / sizes[0], rtol=1e-3, atol=1e-3)
    rest = (
        varying - varying @ components @ torch.linalg.pinv(components.T @ components) @ components.T
    )  # nothing is left over
    assert rest.norm() < 1e-2 * varying.norm()
    assert basis[..., 1:].square().sum(-1).mean().item() == pytest.approx(0.5)


def test_fewer_tasks_than_directions_leave_the_others_as_they_were():
    model = cavia.WaveBasis(2, 1, waves=4, context=6)
    model.initialise(torch.rand(20, 2), torch.rand(3, 20, 1))
    assert model.functions.isfinite().all()
    with pytest.raises(cavia.CaviaError, match=r"at least 2 tasks, got \[20, 2\] and \[1, 20, 1\]"):
        model.initialise(torch.rand(20, 2), torch.rand(1, 20, 1))


def test_weights_can_adapt_too_and_the_learner_is_saved(tmp_path):
    learner, batch = make(cavia.MAML, inner_lr=0.01)
    torch.testing.assert_close(learner(batch), torch.cat([learner(part) for part in batch.split(1)]))
    learner.save(tmp_path / "m.cavia")
    again = cavia.load(tmp_path / "m.cavia")
    torch.testing.assert_close(again(batch), learner(batch))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": 0}, "inputs must be at least 1, got 0"),
        ({"context": 0}, "context must be at least 1"),
        ({"waves": 0}, "waves must be at least 1"),
        ({"inputs": 3}, r"waves=24 for inputs=3 are 24\^3, more than 4096; take fewer"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.WaveBasis(**{"inputs": 2, "outputs": 3} | arguments)


def test_points_of_another_shape_are_refused():
    with pytest.raises(cavia.CaviaError, match=r"takes 2 inputs, got x of shape \[1, 4, 3\]"):
        cavia.WaveBasis(2, 3)(torch.zeros(1, 4, 3), torch.zeros(1, 128))
