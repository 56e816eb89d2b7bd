"""The inner loop: the one place where anything adapts by gradient."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

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
        # Tasks are independent, so the gradient of the summed loss is each task's own gradient.
        gradients = torch.func.grad(lambda moved: task_losses(moved).sum())(fast)
        if first_order:
            gradients = {name: gradient.detach() for name, gradient in gradients.items()}
        # Eq. (5) for the context, Eq. (3) for weights: φᵢ = φ₀ − α ∇φ L
        fast = {name: value - step_size[name] * gradients[name] for name, value in fast.items()}
    return fast
