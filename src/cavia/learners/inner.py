"""The inner loop: the one place where anything adapts by gradient."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

Fast: TypeAlias = dict[str, Tensor]  # name → tensor with a leading task axis: what adapts
TaskLosses: TypeAlias = Callable[[Fast], Tensor]  # fast parameters → one loss per task, [T]


def by_transform(task_losses: TaskLosses, fast: Fast) -> Fast:
    """The gradient of the summed loss; can be differentiated again, mapped by vmap and traced."""
    return torch.func.grad(lambda moved: task_losses(moved).sum())(fast)


def by_autograd(task_losses: TaskLosses, fast: Fast) -> Fast:
    """The same as numbers only, at a fraction of the overhead: no more can be done with it.

    Unlike a transform, it does not stop `task_losses` from overwriting buffers.
    """
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in fast.items()}
        losses = task_losses(leaves)
    if not losses.requires_grad:  # they depend on nothing that could move
        return {name: torch.zeros_like(value) for name, value in fast.items()}
    found = torch.autograd.grad(losses, list(leaves.values()), torch.ones_like(losses), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def adapt(
    task_losses: TaskLosses,
    fast: Fast,
    step_size: Mapping[str, float | Tensor],
    steps: int = 1,
    first_order: bool = False,
    gradient: Callable[[TaskLosses, Fast], Fast] = by_transform,
) -> Fast:
    """Move every task's fast parameters down its own loss.

    task_losses: maps fast parameters to one loss per task, [T].
    fast:        name → tensor with a leading task axis, [T, ...].
    step_size:   name → α, a number or a tensor that broadcasts against one task's parameters.
    first_order: treat the inner gradient as a constant in the outer one.
    gradient:    how the gradient of the summed loss is taken.
    """
    for _ in range(steps):
        # Tasks are independent, so the gradient of the summed loss is each task's own gradient.
        gradients = gradient(task_losses, fast)
        if first_order:
            gradients = {name: gradient.detach() for name, gradient in gradients.items()}
        # Eq. (5) for the context, Eq. (3) for weights: φᵢ = φ₀ − α ∇φ L
        fast = {name: value - step_size[name] * gradients[name] for name, value in fast.items()}
    return fast
