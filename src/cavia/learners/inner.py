"""The inner loop: the one place where anything adapts by gradient."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

Fast: TypeAlias = dict[str, Tensor]  # name → tensor with a leading task axis: what adapts
TaskLosses: TypeAlias = Callable[[Fast], Tensor]  # fast parameters → one loss per task, [T]


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
    return descend(partial(by_transform, task_losses), fast, step_size, steps, first_order)


def descend(
    gradient: Callable[[Fast], Fast],
    fast: Fast,
    step_size: Mapping[str, float | Tensor],
    steps: int,
    first_order: bool,
) -> Fast:
    """`adapt` with the gradient of the task losses' sum: tasks are independent, so it holds each task's own."""
    for _ in range(steps):
        gradients = gradient(fast)
        if first_order:
            gradients = {name: value.detach() for name, value in gradients.items()}
        # Eq. (5) for the context, Eq. (3) for weights: φᵢ = φ₀ − α ∇φ L
        fast = {name: value - step_size[name] * gradients[name] for name, value in fast.items()}
    return fast


def by_transform(task_losses: TaskLosses, fast: Fast) -> Fast:
    """The gradient of the summed losses, to be differentiated again, mapped by vmap or traced."""
    return torch.func.grad(lambda moved: task_losses(moved).sum())(fast)


def by_autograd(task_losses: TaskLosses, fast: Fast) -> Fast:
    """The same as numbers only, with less overhead. Unlike a transform, it lets `task_losses` overwrite buffers."""
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in fast.items()}
        losses = task_losses(leaves)
    if not losses.requires_grad:  # they depend on nothing that could move
        return {name: torch.zeros_like(value) for name, value in fast.items()}
    found = torch.autograd.grad(losses, list(leaves.values()), torch.ones_like(losses), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def only_numbers(module: nn.Module, *tensors: Tensor) -> bool:
    """Whether autograd may be used: nobody differentiates, maps or traces what the module computes from the tensors.

    A transform refuses to overwrite a buffer, such as running statistics; autograd would not notice. So modules below
    this one must have none.
    """
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
