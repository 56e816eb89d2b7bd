"""`check_model`."""

import torch
from torch import Tensor

from cavia.conformance.promise import keeps, left_as_it_was, require_close
from cavia.kinds import checked
from cavia.learners.door import fitting
from cavia.models.base import ContextModel, NormedModel
from cavia.models.substitute import call_with
from cavia.tasks.points import Inputs, as_inputs, each, lead, shape, tensors


@checked
def check_model(model: ContextModel, x: Inputs) -> None:
    """Check a network; raise a `CaviaError` that names the promise of `ContextModel` that it breaks.

    x: inputs to try it on, [T, N, ...], at least two different tasks of two points. It is tried in evaluation
       mode and is left as it was.

    >>> check_model(MLP(inputs=1, outputs=1, context=5), torch.rand(3, 4, 1))
    """
    x = fitting(model, as_inputs("x", x))
    keeps(model, f"x to try it on is finite: {shape(x)}", all(bool(value.isfinite().all()) for value in tensors(x)))
    size = getattr(model, "context", None)
    keeps(model, "`context` is a whole number, 0 or more", isinstance(size, int) and size >= 0, f"it is {size!r}")
    keeps(
        model, "x to try it on has two tasks of two points at least", min(lead(x).shape[:2]) >= 2, f"it is {shape(x)}"
    )
    with left_as_it_was(model):
        with torch.no_grad():
            _check_calls(model, x)
        _check_context(model, x)
        _check_weights(model, x)


def _contexts(model: ContextModel, tasks: int, like: Inputs) -> Tensor:
    """[T, C], another for every task."""
    random = torch.Generator().manual_seed(0)
    kind = next((value.dtype for value in model.parameters() if value.is_floating_point()), torch.float32)
    return torch.randn(tasks, model.context, generator=random).to(lead(like).device, kind)


def _check_calls(model: ContextModel, x: Inputs) -> None:
    tasks, points = lead(x).shape[:2]
    context = _contexts(model, tasks, x)
    prediction = model(x, context)
    keeps(
        model,
        "predictions are [T, N, ...] for x [T, N, ...]",
        isinstance(prediction, Tensor) and prediction.shape[:2] == (tasks, points),
        f"got {shape(prediction) if isinstance(prediction, Tensor) else type(prediction).__name__} for {shape(x)}",
    )
    require_close(model, "the same call gives the same numbers", model(x, context), prediction)
    require_close(model, "forward is head(stem(x), context)", model.head(model.stem(x), context), prediction)
    for task in range(tasks):
        alone = model(each(lambda value, task=task: value[task : task + 1], x), context[task : task + 1])
        require_close(model, "a task's prediction depends on that task alone", alone, prediction[task : task + 1])
    if not model.mixes_points:
        promise = "a point's prediction depends on that point alone, unless mixes_points is True"
        require_close(model, promise, model(each(lambda value: value[:, :1], x), context), prediction[:, :1])


def _check_context(model: ContextModel, x: Inputs) -> None:
    if not model.context:
        return
    context = _contexts(model, len(lead(x)), x).requires_grad_()
    (slope,) = torch.autograd.grad(model(x, context).square().sum(), context, materialize_grads=True)
    keeps(model, "the context changes the prediction, at least for some of its numbers", bool(slope.any()))
    keeps(model, "the prediction's derivative by the context is finite", bool(slope.isfinite().all()))


def _check_weights(model: ContextModel, x: Inputs) -> None:
    """Each task with weights of its own, as MAML calls it."""
    weights = {name: value.detach() for name, value in model.named_parameters()}
    if not weights or not model.vectorises or isinstance(model, NormedModel):
        return
    context = _contexts(model, len(lead(x)), x)

    def one_task(x: Inputs, context: Tensor) -> Tensor:
        inputs = each(lambda value: value.unsqueeze(0), x), context.unsqueeze(0)
        return call_with(model, weights, inputs).squeeze(0)

    with torch.no_grad():
        mapped = torch.func.vmap(one_task, randomness="different")(x, context)
        require_close(model, "torch.func.vmap can run it, unless vectorises is False", mapped, model(x, context))
