"""Every preset's meta-gradient against an independent, task-by-task computation."""

import pytest
import torch

import cavia
from cavia.training.step import MetaStep
from tests.reference import inner_loop, meta_gradient

PRESETS = {
    "CAVIA": lambda model: cavia.CAVIA(model, "mse", inner_lr=0.7),
    "CAVIA, 3 steps": lambda model: cavia.CAVIA(model, "mse", inner_lr=0.3, inner_steps=3),
    "CAVIA, learned start": lambda model: cavia.CAVIA(model, "mse", inner_lr=0.7, learn_init=True),
    "CAVIA, first order": lambda model: cavia.CAVIA(model, "mse", inner_lr=0.7, inner_steps=2, first_order=True),
    "MAML": lambda model: cavia.MAML(model, "mse", inner_lr=0.02),
    "MAML, 2 steps": lambda model: cavia.MAML(model, "mse", inner_lr=0.02, inner_steps=2),
    "MAML, first order": lambda model: cavia.MAML(model, "mse", inner_lr=0.02, inner_steps=2, first_order=True),
    "ANIL": lambda model: cavia.ANIL(model, "mse", inner_lr=0.05, inner_steps=2),
    "Meta-SGD": lambda model: cavia.MetaSGD(model, "mse", inner_lr=0.02, inner_steps=2),
    "Meta-SGD on context": lambda model: cavia.MetaSGD(model, "mse", inner_lr=0.5, inner_steps=2, adapts="context"),
    "CAVIA+MAML": lambda model: cavia.CaviaMAML(model, "mse", inner_lr=0.5, weights_lr=0.02, inner_steps=2),
}


def make(preset, dtype):
    torch.manual_seed(0)
    learner = PRESETS[preset](cavia.MLP(1, 1, hidden=(12, 9), context=3)).to(dtype)
    batch = cavia.Sine().sample(6, 10, 8, torch.Generator().manual_seed(1))
    batch = cavia.TaskBatch(*(getattr(batch, n).to(dtype) for n in ("support_x", "support_y", "query_x", "query_y")))
    with torch.no_grad():  # away from the start, so that no gradient is zero by symmetry
        for parameter in learner.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return learner, batch


def expected_gradient(learner, batch):
    shared = {name: value.detach().clone().requires_grad_() for name, value in learner.model.named_parameters()}
    start = learner.initial_context.detach().clone()
    shared["context"] = start.requires_grad_() if isinstance(learner.initial_context, torch.nn.Parameter) else start
    trained = {f"model.{name}": value for name, value in shared.items() if name != "context"}
    if shared["context"].requires_grad:
        trained["initial_context"] = shared["context"]
    rates = {
        name: value.detach().clone().requires_grad_() if isinstance(value, torch.Tensor) else value
        for name, value in learner.step_size().items()
    }
    trained |= {
        f"rates.{name.replace('.', '-')}": rate for name, rate in rates.items() if isinstance(rate, torch.Tensor)
    }
    names = learner.fast_names
    steps, first_order = learner.inner_steps, learner.first_order
    return meta_gradient(batch, shared, names, rates, steps, first_order, trained)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-8)])
def test_meta_gradient_equals_task_by_task_autograd(preset, dtype, tolerance):
    learner, batch = make(preset, dtype)
    learner.task_losses(batch).mean().backward()
    gradients = {name: parameter.grad for name, parameter in learner.named_parameters()}
    expected = expected_gradient(learner, batch)
    assert gradients.keys() == expected.keys()
    for name in expected:
        scale = expected[name].abs().max().clamp(min=1e-3)
        assert (gradients[name] - expected[name]).abs().max() <= tolerance * scale, name


@pytest.mark.parametrize(("method", "inner_lr"), [("CAVIA", 1.0), ("MAML", 0.05)])
def test_first_order_differs_from_second_order(method, inner_lr):
    gradients = {}
    for first_order in (False, True):
        torch.manual_seed(0)
        model = cavia.MLP(1, 1, context=3)
        learner = getattr(cavia, method)(model, "mse", inner_lr=inner_lr, first_order=first_order)
        batch = cavia.Sine().sample(6, 10, 8, torch.Generator().manual_seed(1))
        learner.task_losses(batch).mean().backward()
        gradients[first_order] = torch.cat([p.grad.flatten() for p in learner.parameters()])
    difference = (gradients[True] - gradients[False]).norm() / gradients[False].norm()
    assert difference > 0.01


def test_reptile_gradient_is_the_way_to_the_adapted_weights():
    torch.manual_seed(0)
    learner = cavia.Reptile(cavia.MLP(1, 1, hidden=(12, 9), context=3), "mse", inner_lr=0.02, inner_steps=3).double()
    batch = cavia.Sine().sample(4, 6, 5, torch.Generator().manual_seed(1))
    x = torch.cat([batch.support_x, batch.query_x], 1).double()
    y = torch.cat([batch.support_y, batch.query_y], 1).double()
    batch = cavia.TaskBatch(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])
    learner(batch).mean().backward()

    start = {name: value.detach().clone().requires_grad_() for name, value in learner.model.named_parameters()}
    start["context"] = learner.initial_context.detach().clone().requires_grad_()
    moved = []
    for i in range(4):
        fast = start
        for step in range(3):  # each on other points
            fast = inner_loop(x[i, step::3], y[i, step::3], fast, {}, dict.fromkeys(start, 0.02), 1, True)
        moved.append(fast)
    for name, value in start.items():
        expected = sum(value - fast[name] for fast in moved) / 4 / 0.02
        parameter = learner.initial_context if name == "context" else learner.model.get_parameter(name)
        torch.testing.assert_close(parameter.grad, expected.detach(), rtol=1e-8, atol=1e-10)


def test_meta_gradient_equals_finite_differences():
    learner, batch = make("CAVIA, 3 steps", torch.float64)
    learner.task_losses(batch).mean().backward()
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            values = []
            for sign in (1, -1):
                parameter.add_(sign * 1e-6 * direction)
                values.append(learner.task_losses(batch).mean())
                parameter.sub_(sign * 1e-6 * direction)
        slope = (values[0] - values[1]) / 2e-6
        torch.testing.assert_close((parameter.grad * direction).sum(), slope, rtol=1e-5, atol=1e-7)


class Shift(cavia.ContextModel):
    """f(x) = w + φ, for which one inner step and its meta-gradient have a closed form."""

    def __init__(self):
        super().__init__()
        self.context = 1
        self.w = torch.nn.Parameter(torch.tensor(0.5))

    def stem(self, x):
        return x * 0 + self.w

    def head(self, h, context):
        return h + context.unsqueeze(1)


def test_quadratic_task_has_its_closed_form():
    learner = cavia.CAVIA(Shift(), "mse", inner_lr=0.1)
    support, query = torch.tensor([[[1.0], [3.0]]]), torch.tensor([[[4.0]]])
    batch = cavia.TaskBatch(torch.zeros(1, 2, 1), support, torch.zeros(1, 1, 1), query)
    # φ₁ = −α·2(w − 2); the query loss is (w + φ₁ − 4)², so d/dw = 2(w + φ₁ − 4)(1 − 2α)
    context = -0.1 * 2 * (0.5 - 2.0)
    fast = learner.adapt(batch.support_x, batch.support_y)
    torch.testing.assert_close(fast["context"], torch.tensor([[context]]))
    learner.task_losses(batch).mean().backward()
    torch.testing.assert_close(learner.model.w.grad, torch.tensor(2 * (0.5 + context - 4.0) * (1 - 0.2)))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_batch_of_tasks_equals_one_task_at_a_time(preset):
    learner, batch = make(preset, torch.float64)
    together = learner.adapt(batch.support_x, batch.support_y)
    predictions = learner.predict(batch.query_x, together)
    for i, task in enumerate(batch.split(1)):
        alone = learner.adapt(task.support_x, task.support_y)
        for name in together.names:
            torch.testing.assert_close(together[name][i : i + 1], alone[name], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(predictions[i : i + 1], learner.predict(task.query_x, alone), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("preset", ["CAVIA", "MAML", "Meta-SGD"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_chunked_gradient_equals_whole(preset, chunk):
    results = []
    for size in (None, chunk):
        learner, batch = make(preset, torch.float64)
        step = MetaStep(learner, lr=0.01, clip=10.0, chunk=size)
        loss = step(batch)
        results.append((loss, torch.cat([p.detach().flatten() for p in learner.parameters()])))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9, check_dtype=False)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["CAVIA", "MAML, first order", "Meta-SGD"])
def test_compiled_equals_eager(preset):
    results = []
    for compiled in (False, True):
        learner, batch = make(preset, torch.float32)
        step = MetaStep(learner, lr=0.001, clip=10.0, compiled=compiled)
        losses = [step(batch) for _ in range(5)]
        results.append((torch.stack(losses), [p.detach().clone() for p in learner.parameters()]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
