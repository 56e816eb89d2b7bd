"""Batch norm for a batch of tasks: the statistics of one task never reach another."""

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

EPSILON = 1e-5


class TaskNorm(nn.Module):
    """Normalises each channel by one task's mean and variance, then scales and shifts it.

    The statistics are those of the points that it is given, task by task, or statistics that were computed before.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def statistics(self, h: Tensor) -> Tensor:
        """Means and variances over each task's points and pixels: h [T, N, channels, H, W] → [T, 2, channels]."""
        rows = h.movedim(2, -1).flatten(1, -2)  # [T, N·H·W, channels], a view of channels-last memory
        mean = rows.mean(1, keepdim=True)
        return torch.cat([mean, (rows - mean).square().mean(1, keepdim=True)], 1)

    def forward(self, h: Tensor, statistics: Tensor | None = None) -> Tensor:
        """h [T, N, channels, H, W] and, unless they are the points' own, statistics [T, 2, channels] → shape of h."""
        if statistics is None:  # task by task: PyTorch's fused kernel is faster than a batch of plain operations
            if h.shape[0] == 1:  # no unbind, whose backward copies the gradient
                return self._fused(h.squeeze(0)).unsqueeze(0)
            return torch.stack([self._fused(x) for x in h])
        mean, variance = statistics.unbind(1)  # each [T, channels]
        scale = self.weight * torch.rsqrt(variance + EPSILON)
        return h * _per_channel(scale) + _per_channel(self.bias - mean * scale)

    def _fused(self, h: Tensor) -> Tensor:  # of one task
        if h.shape[0] == 1:  # the stride of an axis of one may be anything, and PyTorch's gradient is then wrong
            h = h.clone(memory_format=torch.contiguous_format)
        return batch_norm(h, None, None, self.weight, self.bias, True, 0.0, EPSILON)


def _per_channel(values: Tensor) -> Tensor:
    """[T, channels] → [T, 1, channels, 1, 1]"""
    return values[:, None, :, None, None]
