"""The sine basis: its equation, and that the context enters linearly."""

import pytest
import torch

import cavia

FREQUENCY = 4.0


def make(method=cavia.CAVIA, **arguments):
    torch.manual_seed(0)
    model = cavia.SineBasis(2, 3, hidden=(9, 11), context=5, frequency=FREQUENCY)
    generator = torch.Generator().manual_seed(1)
    points = [torch.rand(4, count, size, generator=generator).double() for count in (6, 7) for size in (2, 3)]
    return method(model, "mse", **arguments).double(), cavia.TaskBatch(*points)


def one_task(x, context, weights):
    """The network on one task, from its equation: x [N, 2], context [5] → [N, 3]."""
    h = 2 * x - 1
    for i in range(2):
        h = torch.sin(FREQUENCY * (h @ weights[f"layers.{i}.weight"].T + weights[f"layers.{i}.bias"]))
    basis = (h @ weights["layers.2.weight"].T + weights["layers.2.bias"]).view(-1, 3, 6)
    return basis[..., 0] + sum(context[c] * basis[..., c + 1] for c in range(5))


def test_the_network_is_its_equation_on_every_task():
    learner, batch = make()
    context = torch.randn(4, 5, dtype=torch.float64)
    weights = dict(learner.model.named_parameters())
    expected = torch.stack([one_task(batch.query_x[i], context[i], weights) for i in range(4)])
    torch.testing.assert_close(learner.model(batch.query_x, context), expected)


def test_equal_places_are_computed_once_and_give_the_same():
    learner, batch = make()
    context, x = torch.randn(4, 5, dtype=torch.float64), batch.query_x.clone()
    x[1:] = x[:1].flip(1)  # the places of the first task, in another order
    model, seen = learner.model, []
    model.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(output.shape[0]))
    once = model.head(model.stem(x), context)
    assert seen == [7]
    torch.testing.assert_close(once, model(x, context))
    x.requires_grad_()
    assert torch.autograd.grad(model.head(model.stem(x), context).sum(), x)[0].shape == x.shape


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


def test_activations_keep_their_spread_at_every_depth():
    torch.manual_seed(0)
    model = cavia.SineBasis(2, 3, hidden=(256,) * 6, context=8, frequency=30.0)
    spreads = []
    for layer in list(model.layers)[1:]:
        layer.register_forward_pre_hook(lambda module, inputs: spreads.append(inputs[0].std().item()))
    model(torch.rand(1, 500, 2), torch.zeros(1, 8))
    assert len(spreads) == 6
    assert all(0.6 < spread < 0.8 for spread in spreads)  # of a sine: 1/√2


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
        ({"hidden": ()}, "layers in hidden must be at least 1"),
        ({"context": 0}, "context must be at least 1"),
        ({"frequency": 0.0}, "frequency must be above 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.SineBasis(**{"inputs": 2, "outputs": 3} | arguments)


def test_points_of_another_shape_are_refused():
    with pytest.raises(cavia.CaviaError, match=r"takes 2 inputs, got x of shape \[1, 4, 3\]"):
        cavia.SineBasis(2, 3)(torch.zeros(1, 4, 3), torch.zeros(1, 128))
