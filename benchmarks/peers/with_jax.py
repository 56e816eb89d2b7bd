"""The meta-step in plain JAX: vmap over tasks, grad through the inner steps, Adam; all of it in one jit."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array
from torch import Tensor

import cavia
from cavia.training.step import BETA1, BETA2, EPSILON
from interleaved import CLIP, LR
from peers.entrant import Entrant
from peers.work import Work

Weights = list[tuple[Array, Array]]  # of each layer: [out, in] and [out]
Points = tuple[Array, Array, Array, Array]  # support x and y, query x and y, each [T, N, ...]


def predict(weights: Weights, x: Array, context: Array) -> Array:
    """The MLP on the points of one task: x [N, inputs], context [C] → [N, outputs]."""
    (first, bias), *rest = weights
    inputs = x.shape[-1]
    h = x @ first[:, :inputs].T + (context @ first[:, inputs:].T + bias)
    for weight, bias in rest:
        h = jax.nn.relu(h) @ weight.T + bias
    return h


def task_loss(work: Work, size: int, weights: Weights, x: Array, y: Array, query_x: Array, query_y: Array) -> Array:
    """The query loss of one task after its inner steps."""
    adapts_context = work.method == "CAVIA"
    none = jnp.zeros(size)

    def loss(fast: Any, x: Array, y: Array) -> Array:
        prediction = predict(weights, x, fast) if adapts_context else predict(fast, x, none)
        return jnp.mean((prediction - y) ** 2)

    fast = none if adapts_context else weights
    for _ in range(work.inner_steps):  # Eq. (5), or (3)
        fast = jax.tree.map(lambda value, slope: value - work.inner_lr * slope, fast, jax.grad(loss)(fast, x, y))
    return loss(fast, query_x, query_y)


def meta_step(work: Work, size: int, state: Any, points: Points) -> Any:
    """Eq. (6) by Adam. state: weights, the two moments, and the number of steps."""
    weights, first, second, count = state

    def outer(weights: Weights) -> Array:
        return jnp.mean(jax.vmap(partial(task_loss, work, size, weights))(*points))

    gradient = jax.tree.map(lambda value: jnp.clip(value, -CLIP, CLIP), jax.grad(outer)(weights))
    count = count + 1
    first = jax.tree.map(lambda old, new: BETA1 * old + (1 - BETA1) * new, first, gradient)
    second = jax.tree.map(lambda old, new: BETA2 * old + (1 - BETA2) * new**2, second, gradient)
    weights = jax.tree.map(
        lambda value, m, v: value
        - LR * (m / (1 - BETA1**count)) / (jnp.sqrt(v / (1 - BETA2**count)) + EPSILON),
        weights, first, second,
    )  # fmt: skip
    return weights, first, second, count


class Jax(Entrant):
    """One jitted call for each step."""

    def __init__(self, work: Work):
        model = work.new_model()
        if not isinstance(model, cavia.MLP):
            raise TypeError(f"the JAX entrant knows the MLP only, not a {type(model).__name__}")
        arrays = [jnp.asarray(value.detach().numpy()) for value in model.parameters()]
        weights = list(zip(arrays[::2], arrays[1::2], strict=True))
        zeros = jax.tree.map(jnp.zeros_like, weights)
        self.state: Any = (weights, zeros, zeros, jnp.zeros(()))
        self.step = partial(meta_step, work, model.context)
        self.jitted = jax.jit(self.step)

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        arrays = [_points(batch) for batch in batches]

        def run() -> None:
            for points in arrays:
                self.state = self.jitted(self.state, points)
            jax.block_until_ready(self.state)

        return run

    def parameters(self) -> Tensor:
        return torch.cat([torch.from_numpy(np.array(value)).flatten() for pair in self.state[0] for value in pair])


class JaxLoop(Jax):
    """All steps of a call in one `lax.fori_loop`: Python is left once for many steps."""

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *(_points(batch) for batch in batches))  # [S, T, ...]

        def loop(state: Any, stacked: Any) -> Any:
            def body(i: Any, state: Any) -> Any:
                return self.step(state, jax.tree.map(lambda part: part[i], stacked))

            return jax.lax.fori_loop(0, len(batches), body, state)

        jitted = jax.jit(loop)

        def run() -> None:
            self.state = jax.block_until_ready(jitted(self.state, stacked))

        return run


def _points(batch: cavia.TaskBatch) -> Points:
    x, y, query_x, query_y = (
        jnp.asarray(part.numpy()) for part in (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
    )
    return x, y, query_x, query_y
