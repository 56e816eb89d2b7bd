"""The inner loop: the one place where anything adapts by gradient."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor
from torch._C._functorch import maybe_current_level

Fast: TypeAlias = dict[str, Tensor]  # name → tensor with a leading task axis: what adapts


def adapt(
    task_losses: Callable[[Fast], Tensor],
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
    for _ in range(steps):
        gradients = _gradients(task_losses, fast)
        if first_order:
            gradients = {name: gradient.detach() for name, gradient in gradients.items()}
        # Eq. (5) for the context, Eq. (3) for weights: φᵢ = φ₀ − α ∇φ L
        fast = {name: value - step_size[name] * gradients[name] for name, value in fast.items()}
    return fast


def _gradients(task_losses: Callable[[Fast], Tensor], fast: Fast) -> Fast:
    """The gradient of each task's own loss: tasks are independent, so it is that of the summed loss."""
    inside_transform = maybe_current_level() is not None  # of torch.func, which plain autograd does not go through
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled() or inside_transform:
        return torch.func.grad(lambda moved: task_losses(moved).sum())(fast)
    # No outer gradient will follow, and plain autograd has half the overhead, which shows if the tasks are few.
    with torch.enable_grad():
        moved = {name: value.detach().requires_grad_() for name, value in fast.items()}
        loss = task_losses(moved).sum()
    found = torch.autograd.grad(loss, list(moved.values()), materialize_grads=True)
    return dict(zip(moved, found, strict=True))
