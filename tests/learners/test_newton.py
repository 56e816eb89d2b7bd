"""Gauss–Newton steps on the context, against ridge regression, finite differences and task-by-task autograd."""

from dataclasses import replace

import pytest
import torch

import cavia

LINEAR, BENT, PLAIN = "linear", "bent", "mlp"


def make(kind=LINEAR, damping=0.3, **arguments):
    torch.manual_seed(0)
    if kind == PLAIN:
        model = cavia.MLP(2, 3, hidden=(8, 8), context=5)
    else:
        model = cavia.WaveBasis(2, 3, waves=3, context=5, hidden=(7,) if kind == BENT else ())
        torch.nn.init.normal_(model.constant)
        for parameter in model.bends.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    generator = torch.Generator().manual_seed(1)
    points = [torch.rand(4, count, size, generator=generator).double() for count in (6, 7) for size in (2, 3)]
    return cavia.GaussNewton(model, "mse", damping, **arguments).double(), cavia.TaskBatch(*points)


def one_task(model, weights, x, y, damping, steps):
    """The adapted context [C] of one task, by autograd's own Jacobian: x [K, 2], y [K, 3]."""

    def predict(context):
        return torch.func.functional_call(model, weights, (x[None], context[None])).flatten()

    context = torch.zeros(model.context, dtype=x.dtype)
    for _ in range(steps):
        slopes = torch.autograd.functional.jacobian(predict, context, create_graph=True)
        gradient = slopes.T @ (predict(context) - y.flatten()) + damping * context
        context = (
            context - torch.linalg.inv(slopes.T @ slopes + damping * torch.eye(len(context), dtype=x.dtype)) @ gradient
        )
    return context


def test_with_a_linear_model_one_step_is_ridge_regression():
    learner, batch = make()
    fast = learner.adapt(batch.support_x, batch.support_y)
    basis = learner.model.basis(batch.support_x).flatten(1, 2)  # [T, K·3, 1 + C]
    for i in range(4):
        features, constant = basis[i, :, 1:], basis[i, :, 0]
        # Ridge regression as least squares with C more equations, √λ φ = 0.
        rows = torch.cat([features, 0.3**0.5 * torch.eye(5, dtype=torch.float64)])
        right = torch.cat([batch.support_y[i].flatten() - constant, torch.zeros(5, dtype=torch.float64)])
        expected = torch.linalg.lstsq(rows, right.unsqueeze(1)).solution.squeeze(1)
        torch.testing.assert_close(fast["context"][i], expected)
    again = learner.adapt(batch.support_x, batch.support_y, steps=3)
    torch.testing.assert_close(again["context"], fast["context"])  # it was at the minimum


@pytest.mark.parametrize("points", [1, 6])  # fewer numbers than the context has, and more
@pytest.mark.parametrize("kind", [LINEAR, BENT, PLAIN])
@pytest.mark.parametrize("steps", [1, 2])
def test_meta_gradient_equals_task_by_task_autograd(kind, steps, points):
    learner, batch = make(kind, inner_steps=steps)
    batch = replace(batch, support_x=batch.support_x[:, :points], support_y=batch.support_y[:, :points])
    learner(batch).mean().backward()
    model = learner.model
    weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    log_damping = learner.log_damping.detach().clone().requires_grad_()
    for i in range(4):
        context = one_task(model, weights, batch.support_x[i], batch.support_y[i], log_damping.exp(), steps)
        prediction = torch.func.functional_call(model, weights, (batch.query_x[i : i + 1], context[None]))
        ((prediction[0] - batch.query_y[i]).square().mean() / 4).backward()
    torch.testing.assert_close(learner.log_damping.grad, log_damping.grad, rtol=1e-8, atol=1e-12)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=1e-7, atol=1e-11)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", [LINEAR, BENT])
@pytest.mark.parametrize("tasks", [4, 40])  # with 40, there are too many places to predict at all of them
def test_the_slopes_of_the_wave_basis_equal_finite_differences(kind, tasks, shared):
    learner, _ = make(kind)
    model, x = learner.model, torch.rand(tasks, 6, 2, dtype=torch.float64)
    x[:, :3] = x[0, :3]
    context = torch.randn(1 if shared else tasks, 5, dtype=torch.float64)
    slopes = model.slopes(model.stem(x), context)
    assert slopes.shape == (tasks, 6, 3, 5)
    for c in range(5):
        small = torch.zeros(5, dtype=torch.float64)
        small[c] = 1e-6
        ahead, behind = (model(x, (context + sign * small).expand(tasks, -1)) for sign in (1, -1))
        torch.testing.assert_close(slopes[..., c], (ahead - behind) / 2e-6, rtol=1e-6, atol=1e-8)


def test_more_damping_keeps_the_context_smaller():
    sizes = []
    for damping in (0.01, 1.0, 100.0):
        learner, batch = make(damping=damping)
        sizes.append(learner.adapt(batch.support_x, batch.support_y)["context"].norm().item())
    assert sizes == sorted(sizes, reverse=True)


def test_it_trains_its_damping_and_starts_well_from_principal_components():
    torch.manual_seed(0)
    x = torch.rand(60, 2)
    y = 0.3 + (torch.randn(50, 4) @ torch.randn(4, 180)).view(50, 60, 3) + 0.1 * torch.randn(50, 60, 3)
    model = cavia.WaveBasis(2, 3, waves=12, context=4)
    damping = model.initialise(x, y)
    learner = cavia.GaussNewton(model, "mse", damping)
    fast = learner.adapt(x[:30].expand(50, -1, -1), y[:, :30])
    error = learner.mean_loss(learner.predict(x[30:].expand(50, -1, -1), fast), y[:, 30:]).mean()
    assert error < 0.03  # the noise has 0.01, the fields 4
    assert 0 < damping < 1
    batch = cavia.TaskBatch(x[:30].expand(50, -1, -1), y[:, :30], x[30:].expand(50, -1, -1), y[:, 30:])
    learner(batch).mean().backward()
    assert learner.log_damping.grad != 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "cross_entropy"}, "loss must be \"mse\", got 'cross_entropy'"),
        ({"damping": 0.0}, "damping must be"),
        ({"inner_steps": 0}, "inner_steps must be at least 1, got 0"),
        ({"model": cavia.MLP(2, 3, context=0)}, "the model has context=0"),
        ({"model": cavia.ConvNet(norm="support")}, 'no model with norm="support"'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.GaussNewton(**{"model": cavia.MLP(2, 3)} | arguments)


def test_a_network_that_is_no_longer_finite_is_one_clear_error():
    learner, batch = make()
    with torch.no_grad():
        learner.model.functions[0] = float("nan")
    with pytest.raises(cavia.Diverged, match=r"no solution with damping 0.3: .* start with a larger damping"):
        learner.adapt(batch.support_x, batch.support_y)


def test_contexts_of_another_size_are_refused():
    learner, batch = make()
    with pytest.raises(cavia.CaviaError, match=r"must be \[4, 5\] for the 4 tasks"):
        learner.predict(batch.query_x, cavia.Adapted({"context": torch.zeros(3, 5).double()}))
