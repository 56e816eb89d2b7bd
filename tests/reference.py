"""An independent, slow reading of the paper: one task at a time, plain autograd, weights as explicit arguments."""

import torch
from torch import Tensor


def mlp(x: Tensor, context: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The default MLP on one task, with φ really concatenated to the input: x [N, inputs], context [C]."""
    h = torch.cat([x, context.expand(len(x), -1)], dim=1)
    count = len(weights) // 2
    for i in range(count):
        h = h @ weights[f"layers.{i}.weight"].T + weights[f"layers.{i}.bias"]
        if i < count - 1:
            h = h.clamp(min=0)
    return h


def inner_loop(x, y, start: dict[str, Tensor], shared: dict[str, Tensor], rates, steps, first_order):
    """One task's adapted parameters by torch.autograd.grad with create_graph."""
    fast = start
    for _ in range(steps):
        merged = shared | fast
        weights = {name: value for name, value in merged.items() if name != "context"}
        loss = ((mlp(x, merged["context"], weights) - y) ** 2).mean()
        gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=not first_order)
        fast = {
            name: value - rates[name] * gradient
            for (name, value), gradient in zip(fast.items(), gradients, strict=True)
        }
    return fast


def meta_gradient(batch, shared, fast_names, rates, steps, first_order, trained) -> dict[str, Tensor]:
    """Gradient of the mean query loss with respect to `trained`, accumulated task by task.

    shared: name → leaf tensor, with "context" for φ₀; rates: name → number or leaf tensor.
    """
    total = {name: torch.zeros_like(value) for name, value in trained.items()}
    for i in range(len(batch.support_x)):
        start = {name: shared[name] * 1 for name in fast_names}
        start = {name: value if value.requires_grad else value.requires_grad_() for name, value in start.items()}
        fast = inner_loop(batch.support_x[i], batch.support_y[i], start, shared, rates, steps, first_order)
        merged = shared | fast
        weights = {name: value for name, value in merged.items() if name != "context"}
        loss = ((mlp(batch.query_x[i], merged["context"], weights) - batch.query_y[i]) ** 2).mean()
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        for name, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                total[name] += gradient / len(batch.support_x)
    return total
