"""Meta-LSTM against the paper's equations, weight by weight."""

import math

import pytest
import torch

import cavia
from cavia.learners.meta_lstm import preprocessed
from tests.reference import mlp


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def linear(layer, values):
    """W x + b in plain Python."""
    return [sum(w * x for w, x in zip(row, values, strict=True)) + b
            for row, b in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)]  # fmt: skip


def written(learner, weight, gradient, loss, state):
    """One update of one weight: θ = f θ − i ∇L."""
    hidden, cell, rate, kept = state

    def process(x):
        if abs(x) >= math.exp(-10):
            return [math.log(abs(x)) / 10, math.copysign(1, x)]
        return [-1.0, math.exp(10) * x]

    takes, keeps, shows, new = (
        linear(learner.lstm, process(gradient) + process(loss) + hidden)[i::1][:2] for i in (0, 2, 4, 6)
    )
    cell = [sigmoid(k) * c + sigmoid(t) * math.tanh(n) for k, c, t, n in zip(keeps, cell, takes, new, strict=True)]
    hidden = [sigmoid(s) * math.tanh(c) for s, c in zip(shows, cell, strict=True)]
    rate = sigmoid(linear(learner.input_gate, [*hidden, weight, rate])[0])
    kept = sigmoid(linear(learner.forget_gate, [*hidden, weight, kept])[0])
    return kept * weight - rate * gradient, (hidden, cell, rate, kept)


def test_updates_are_the_papers_weight_by_weight():
    torch.manual_seed(0)
    learner = cavia.MetaLSTM(cavia.MLP(1, 1, (3,), context=0), "mse", inner_lr=0.1, hidden=2).double()
    with torch.no_grad():
        for layer in (learner.input_gate, learner.forget_gate):
            layer.weight.normal_()
    batch = cavia.Sine().sample(1, 6, 5, torch.Generator().manual_seed(1))
    x, y = batch.support_x.double(), batch.support_y.double()
    fast = {name: value.detach().clone() for name, value in learner.model.named_parameters()}
    states = {name: [([0.0] * 2, [0.0] * 2, 0.0, 1.0)] * value.numel() for name, value in fast.items()}
    for _ in range(3):
        leaves = {name: value.requires_grad_() for name, value in fast.items()}
        loss = (mlp(x[0], torch.zeros(0).double(), leaves) - y[0]).square().mean()
        slopes = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        for name, value in leaves.items():
            pairs = zip(value.flatten().tolist(), slopes[name].flatten().tolist(), states[name], strict=True)
            moved, states[name] = zip(*(written(learner, w, g, loss.item(), s) for w, g, s in pairs), strict=True)
            fast[name] = torch.tensor(moved).double().view(value.shape)
    adapted = learner.adapt(x, y, steps=3)
    for name, value in fast.items():
        torch.testing.assert_close(adapted[name][0], value.detach(), rtol=1e-5, atol=1e-7)


def test_at_the_start_it_is_gradient_descent_by_the_inner_rate():
    torch.manual_seed(0)
    model = cavia.MLP(1, 1, (8,), context=0)
    learner = cavia.MetaLSTM(model, "mse", inner_lr=0.01, inner_steps=1)
    batch = cavia.Sine().sample(3, 10, 5, torch.Generator().manual_seed(1))
    adapted = learner.adapt(batch.support_x, batch.support_y)
    start, plain = learner.start(3), cavia.MAML(model, "mse", 0.01).adapt(batch.support_x, batch.support_y)
    for name in plain.names:
        change, expected = adapted[name] - 0.9975 * start[name], plain[name] - start[name]
        torch.testing.assert_close(change, expected, rtol=0.1, atol=0.01)


def test_size_and_sign_of_numbers():
    values = torch.tensor([math.e, -1.0, 1e-6, 0.0])
    expected = [[0.1, 1.0], [0.0, -1.0], [-1.0, math.exp(10) * 1e-6], [-1.0, 0.0]]
    torch.testing.assert_close(preprocessed(values), torch.tensor(expected))


def test_bad_arguments_are_named():
    with pytest.raises(cavia.CaviaError, match="inner_lr is a gate between 0 and 1, got 1"):
        cavia.MetaLSTM(cavia.MLP(1, 1), "mse", inner_lr=1.0)
    with pytest.raises(cavia.CaviaError, match="hidden must be at least 1"):
        cavia.MetaLSTM(cavia.MLP(1, 1), "mse", hidden=0)


@pytest.mark.slow
def test_it_learns_sine_curves():
    torch.manual_seed(0)
    learner = cavia.MetaLSTM(cavia.MLP(1, 1, (20,), context=0), "mse", 0.01, 2, hidden=4)
    before = cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[-1]
    cavia.fit(learner, cavia.Sine(), 1000, tasks_per_batch=10, progress=False, validation=cavia.Validation(0))
    assert cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[-1] < 0.9 * before
