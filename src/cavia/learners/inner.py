"""The inner loop: the one place where anything adapts by gradient."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, call_of_user, require_steps, shown
from cavia.kinds import checked

Fast: TypeAlias = dict[str, Tensor]  # name → tensor with a leading task axis: what adapts
TaskLosses: TypeAlias = Callable[[Fast], Tensor]  # fast parameters → one loss per task, [T]
# fast parameters → their gradients, and the losses [T] where they are known
Slopes: TypeAlias = Callable[[Fast], tuple[Fast, Tensor | None]]


@checked
def adapt(
    task_losses: TaskLosses,
    fast: Fast,
    step_size: Mapping[str, float | Tensor],
    steps: int = 1,
    first_order: bool = False,
) -> Fast:
    """Move every task's fast parameters down its own loss.

    task_losses: maps fast parameters to one loss per task, [T].
    fast:        name → tensor with a leading task axis, [T, ...].
    step_size:   name → α, a number or a tensor that broadcasts against one task's parameters.
    first_order: treat the inner gradient as a constant in the outer one.
    """
    require_steps("steps", steps)
    if not fast:
        raise CaviaError("fast must hold at least one tensor by name, got {}")
    for name, value in fast.items():
        if name not in step_size:
            raise CaviaError(f"step_size has no rate for {name!r} of fast, only for {', '.join(map(repr, step_size))}")
        if not value.is_floating_point() or not value.ndim:
            raise CaviaError(f"fast[{name!r}] must be floating-point [tasks, ...], got {shown(value)}")
        _check_rate(name, step_size[name], value)
    slopes = partial(by_transform, partial(_checked_losses, task_losses))
    return descend(slopes, Descent(step_size), fast, {}, steps, first_order)[0]


def _check_rate(name: str, rate: float | Tensor, value: Tensor) -> None:
    """Raise unless a rate is finite and fits the parameters [T, ...] of that name."""
    if not isinstance(rate, Tensor):
        if not math.isfinite(rate):
            raise CaviaError(f"step_size[{name!r}] must be finite, got {rate}")
    elif rate.is_complex() or rate.ndim > value.ndim - 1 or not _broadcasts(rate, value):
        raise CaviaError(f"step_size[{name!r}] must fit one task of {list(value.shape)}, got {shown(rate)}")


def _broadcasts(rate: Tensor, value: Tensor) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(rate.shape), reversed(value.shape), strict=False))


def _checked_losses(task_losses: TaskLosses, fast: Fast) -> Tensor:
    """The losses, if they are one number for each task."""
    losses: Any = call_of_user("task_losses", task_losses, fast)
    tasks = len(next(iter(fast.values())))
    if not isinstance(losses, Tensor) or losses.shape != (tasks,) or not losses.is_floating_point():
        raise CaviaError(f"task_losses must return one loss per task, [{tasks}], got {shown(losses)}")
    return losses


class Rule(ABC):
    """How a step moves what adapts: two pure functions, of T tasks at once.

    What a rule remembers of a task between steps, such as a momentum, is the task's own: name → [T, ...]. `Adapted`
    keeps it next to what adapts, so that steps can be taken one by one.
    """

    def begin(self, fast: Fast) -> Fast:
        """The state before the first step: none."""
        return {}

    def on(self, predictor: "Callable[[], Callable[[Fast], Tensor]]", y: Tensor, mask: Tensor | None) -> "Rule":
        """The rule for these support points, if it looks at more of them than their slopes.

        predictor: makes the function from fast parameters to predictions [T, K, ...] for the targets y.
        """
        return self

    @abstractmethod
    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        """One step from `fast`, and the state after it."""


class Descent(Rule):
    """Down the gradient, by a rate for each name."""

    def __init__(self, step_size: Mapping[str, float | Tensor]):
        self.step_size = step_size

    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        gradients, _ = slopes(fast)
        # Eq. (5) for the context, Eq. (3) for weights: φᵢ = φ₀ − α ∇φ L
        return {name: value - self.step_size[name] * gradients[name] for name, value in fast.items()}, memory


def descend(slopes: Slopes, rule: Rule, fast: Fast, memory: Fast, steps: int, first_order: bool) -> tuple[Fast, Fast]:
    """Steps of a rule, by the slopes of the task losses' sum: tasks are independent, so they hold each task's own."""
    slopes = partial(_detached, slopes) if first_order else slopes
    for _ in range(steps):
        fast, memory = rule.step(slopes, fast, memory)
    return fast, memory


def _detached(slopes: Slopes, fast: Fast) -> tuple[Fast, Tensor | None]:
    """The same numbers, without a gradient."""
    gradients, losses = slopes(fast)
    return {name: value.detach() for name, value in gradients.items()}, None if losses is None else losses.detach()


def by_transform(task_losses: TaskLosses, fast: Fast) -> tuple[Fast, Tensor]:
    """The gradient of the summed losses, and the losses, to be differentiated again, mapped by vmap or traced."""

    def summed(moved: Fast) -> tuple[Tensor, Tensor]:
        losses = task_losses(moved)
        return losses.sum(), losses

    return torch.func.grad(summed, has_aux=True)(fast)


def by_autograd(task_losses: TaskLosses, fast: Fast) -> tuple[Fast, Tensor]:
    """The same as numbers only, with less overhead. Unlike a transform, it lets `task_losses` overwrite buffers."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in fast.items()}
        losses = task_losses(leaves)
    if not losses.requires_grad:  # they depend on nothing that could move
        return {name: torch.zeros_like(value) for name, value in fast.items()}, losses
    gradients = torch.autograd.grad(losses, list(leaves.values()), torch.ones_like(losses), materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True)), losses.detach()


_exporting = ContextVar("exporting", default=False)


@contextmanager
def exporting() -> Iterator[None]:
    """Autograd is used inside, in this thread: transforms fix the numbers of tasks and points of a graph."""
    before = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(before)


def only_numbers(module: nn.Module, *tensors: Tensor) -> bool:
    """Whether autograd may be used: nobody differentiates, maps or traces what the module computes from the tensors.

    A transform refuses to overwrite a buffer, such as running statistics; autograd would not notice. So modules below
    this one must have none.
    """
    if _exporting.get():
        return True
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled() or torch.compiler.is_compiling():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:  # inside vmap, grad, …
        return False
    held: list[Tensor | None] = list(tensors)
    below: list[nn.Module | None] = [module]
    while below:  # modules(), parameters() and buffers() take several times as long, which shows beside one task
        one = below.pop()
        if one is not None:
            if one._buffers and one is not module:
                return False
            held += one._parameters.values()
            below += one._modules.values()
    return not any(value.is_inference() for value in held if value is not None)  # autograd cannot keep those
