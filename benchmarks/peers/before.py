"""The meta-step on convolutions as it was at commit 3587be9, written out: PyTorch's operations, one task at a time.

It stays as it is, so that what the kernels gain can be measured again.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, linear, max_pool2d, relu

import cavia
from peers.entrant import TaskByTask
from peers.work import Work

BLOCKS, FILM = 4, 2  # the context enters behind the third block
Weights = dict[str, Tensor]


def convolved(weights: Weights, block: int, h: Tensor) -> Tensor:
    """Convolution, norm by the points' own statistics, pooling: h [N, C, S, S] → [N, C', S // 2, S // 2]."""
    h = conv2d(h, weights[f"convolutions.{block}.weight"], padding=1)
    gamma, beta = weights[f"norms.{block}.weight"], weights[f"norms.{block}.bias"]
    return max_pool2d(batch_norm(h, None, None, gamma, beta, True, 0.0, 1e-5), 2)


def stem(weights: Weights, x: Tensor, blocks: int) -> Tensor:
    """The blocks before the context, without the last ReLU."""
    for block in range(blocks):
        x = convolved(weights, block, relu(x) if block else x)
    return x


def head(weights: Weights, h: Tensor, context: Tensor) -> Tensor:
    """FiLM, and what comes behind it: h [N, C, S, S], context [C] → logits [N, ways]."""
    film = linear(context, weights["films.2.to_film.weight"], weights["films.2.to_film.bias"])
    scale, shift = film.unflatten(0, (2, -1)).unbind(0)
    h = relu(h * scale[:, None, None] + shift[:, None, None])
    h = relu(convolved(weights, BLOCKS - 1, h))
    return linear(h.flatten(1), weights["linear.weight"], weights["linear.bias"])


def whole(weights: Weights, x: Tensor) -> Tensor:
    """The network without a context."""
    h = relu(stem(weights, x, BLOCKS))
    return linear(h.flatten(1), weights["linear.weight"], weights["linear.bias"])


class Before(TaskByTask):
    """The stem once for each set of points, inner steps by torch.func.grad, channels last."""

    def __init__(self, work: Work):
        model = work.new_model()
        assert isinstance(model, cavia.ConvNet)
        self.names = [name for name, _ in model.named_parameters()]
        super().__init__(work, list(model.parameters()))

    def task_gradients(self, batch: cavia.TaskBatch, task: int) -> Sequence[Tensor]:
        weights = dict(zip(self.names, self.weights, strict=True))
        points = [part[task] for part in (batch.support_x, batch.support_y, batch.query_x, batch.query_y)]
        adapted = self._cavia if self.work.method == "CAVIA" else self._maml
        return torch.autograd.grad(adapted(weights, *points), self.weights)

    def _moved(self, loss: Callable[..., Tensor], fast: Weights) -> Weights:
        for _ in range(self.work.inner_steps):
            slopes = torch.func.grad(loss)(fast)
            fast = {name: value - self.work.inner_lr * slopes[name] for name, value in fast.items()}
        return fast

    def _cavia(self, weights: Weights, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        features = stem(weights, x, FILM + 1)
        start = {"": x.new_zeros(weights["films.2.to_film.weight"].shape[1])}
        fast = self._moved(lambda fast: self.loss(head(weights, features, fast[""]), y), start)
        return self.loss(head(weights, stem(weights, query_x, FILM + 1), fast[""]), query_y)

    def _maml(self, weights: Weights, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        fast = self._moved(lambda fast: self.loss(whole(fast, x), y), weights)
        return self.loss(whole(fast, query_x), query_y)
