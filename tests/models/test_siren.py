"""The modulated sine network: its equation, its meta-gradient, and the learners that use it."""

import pytest
import torch

import cavia
from cavia.training.step import MetaStep

FREQUENCY = 4.0


def make(dtype=torch.float64, method=cavia.CAVIA, **arguments):
    torch.manual_seed(0)
    model = cavia.ModulatedSiren(2, 3, hidden=(9, 11, 8), context=5, frequency=FREQUENCY)
    generator = torch.Generator().manual_seed(1)
    points = [torch.rand(4, count, size, generator=generator).to(dtype) for count in (6, 7) for size in (2, 3)]
    return method(model, "mse", **arguments).to(dtype), cavia.TaskBatch(*points)


def one_task(x, context, weights):
    """The network on one task, from its equation: x [N, 2], context [5] → [N, 3]."""
    h = 2 * x - 1
    for i in range(3):
        shift = weights[f"shifts.{i}.weight"] @ context
        h = torch.sin(FREQUENCY * (h @ weights[f"layers.{i}.weight"].T + weights[f"layers.{i}.bias"] + shift))
    return h @ weights["layers.3.weight"].T + weights["layers.3.bias"]


def test_the_network_is_its_equation_on_every_task():
    learner, batch = make()
    context = torch.randn(4, 5, dtype=torch.float64)
    weights = dict(learner.model.named_parameters())
    expected = torch.stack([one_task(batch.query_x[i], context[i], weights) for i in range(4)])
    torch.testing.assert_close(learner.model(batch.query_x, context), expected)


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


def test_stem_does_not_depend_on_the_context_and_head_does():
    learner, batch = make()
    model = learner.model
    h = model.stem(batch.query_x)
    assert h.shape == (4, 7, 9)
    contexts = torch.randn(2, 4, 5, dtype=torch.float64)
    predictions = [model.head(h, context) for context in contexts]
    torch.testing.assert_close(predictions[0], model(batch.query_x, contexts[0]))
    assert (predictions[0] - predictions[1]).abs().max() > 0.01


def test_activations_keep_their_spread_at_every_depth():
    torch.manual_seed(0)
    model = cavia.ModulatedSiren(2, 3, hidden=(256,) * 6, context=8, frequency=30.0)
    spreads = []
    for layer in list(model.layers)[1:]:
        layer.register_forward_pre_hook(lambda module, inputs: spreads.append(inputs[0].std().item()))
    model(torch.rand(1, 500, 2), torch.zeros(1, 8))
    assert len(spreads) == 6
    assert all(0.6 < spread < 0.8 for spread in spreads)  # of a sine: 1/√2


@pytest.mark.parametrize("method", [cavia.MAML, cavia.MetaSGD])
def test_weights_can_adapt_too(method):
    learner, batch = make(method=method, inner_lr=0.01)
    fast = learner.adapt(batch.support_x, batch.support_y, steps=5)
    start = learner.adapt(batch.support_x, batch.support_y, steps=0)
    losses = [learner.mean_loss(learner.predict(batch.support_x, f), batch.support_y) for f in (start, fast)]
    assert (losses[1] < losses[0]).all()


def test_save_and_load(tmp_path):
    learner, batch = make(torch.float32)
    learner.save(tmp_path / "model.cavia")
    loaded = cavia.load(tmp_path / "model.cavia")
    assert isinstance(loaded.model, cavia.ModulatedSiren)
    context = torch.randn(4, 5)
    torch.testing.assert_close(loaded.model(batch.query_x, context), learner.model(batch.query_x, context))


@pytest.mark.slow
def test_compiled_equals_eager():
    results = []
    for compiled in (False, True):
        learner, batch = make(torch.float32, inner_lr=0.5, inner_steps=2)
        step = MetaStep(learner, lr=0.001, clip=10.0, compiled=compiled)
        losses = [step(batch) for _ in range(5)]
        results.append((torch.stack(losses), [p.detach().clone() for p in learner.parameters()]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_wrong_values_are_named():
    learner, batch = make()
    with pytest.raises(cavia.CaviaError, match="takes 2 inputs"):
        learner.model.stem(batch.support_y)
    with pytest.raises(cavia.CaviaError, match="frequency must be above 0"):
        cavia.ModulatedSiren(2, 3, frequency=0)
    with pytest.raises(cavia.CaviaError, match="context must be at least 1"):
        cavia.ModulatedSiren(2, 3, context=0)
    with pytest.raises(cavia.CaviaError, match="layers in hidden must be at least 1, got 0"):
        cavia.ModulatedSiren(2, 3, hidden=())
