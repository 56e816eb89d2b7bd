"""The inner loss of a policy in closed form: its gradient and products with its Hessian, for one task."""

import torch
from torch import Tensor

from cavia.kernels.curvature import TILE
from cavia.learners.acting import Points
from cavia.learners.losses import point_weights, without_padding
from cavia.training.network_pass import Layers, Pass
from cavia.training.policy_heads import Head


class InnerLoss:
    """−A·log π(a | s), averaged over the steps of one task, at given weights.

    by_log_std:    its gradient by log_std, [A]
    by_first_bias: its gradient by the bias of the first layer, [o]
    keeps_moments: whether `hessian` computes the cross terms of the first two layers from stored sums over the points
    """

    keeps_moments = False

    def __init__(self, head: type[Head], layers: Layers, log_std: Tensor | None, points: Points, fused: bool):
        self.network = Pass(layers, columns(points.x, fused), fused)
        y = columns(without_padding(points.y, points.mask), fused)
        action, advantage = y[:-1], y[-1]
        weight = advantage * columns(point_weights(points.mask, points.y).unsqueeze(-1), fused)[0]
        (by_output, self.by_log_std), self.curvature = head(log_std).loss(self.network.output, action, weight)
        self.network.by_sums = self.network.backward(by_output)
        self.by_first_bias = self.network.by_sums[0].sum(1)

    def gradient(self) -> tuple[Layers, Tensor | None]:
        """With respect to the layers and log_std."""
        return self.network.gradient(self.network.by_sums), self.by_log_std

    def hessian(self, change: Layers, log_std: Tensor | None) -> tuple[Layers, Tensor | None]:
        """How the gradient changes with the layers and log_std."""
        if not self.keeps_moments or len(change) == 1:
            return self.network.hessian(self.curvature, change, log_std, second_from=1)
        by_layers, by_log_std = self.network.hessian(self.curvature, change, log_std, second_from=2)
        self._add_moments(by_layers, change)
        return by_layers, by_log_std

    def _add_moments(self, by_layers: Layers, change: Layers) -> None:
        """Add how a change of either of the first two layers' weights changes the gradient by the other's."""
        (weight, bias), (second, _), moments = change[0], change[1], self.network.moments
        first = torch.cat([weight, bias.unsqueeze(1)], 1)  # [i, inputs + 1]
        by_layers[1][0].add_((moments * first.unsqueeze(2)).sum(1).T)
        by_first = (moments * second.T.unsqueeze(1)).sum(2)  # [i, inputs + 1]
        by_layers[0][0].add_(by_first[:, :-1])
        by_layers[0][1].add_(by_first[:, -1])

    def hessian_by_shift(self, shift: Tensor) -> tuple[Layers, Tensor | None]:
        """How the gradient changes with the first layer's bias alone, by shift [o]."""
        by_layers, by_log_std = self.network.hessian(self.curvature, shift, None, second_from=2)
        if len(by_layers) > 1:  # the second layer's inputs change equally for all points, except for the gates
            by_layers[1][0].add_((self.network.open_gates * shift.unsqueeze(1)).T)
        return by_layers, by_log_std

    def first_bias_change(self, change: Layers, log_std: Tensor | None) -> Tensor:
        """How `by_first_bias` changes with the layers and log_std: [o]."""
        by_bias = self.network.first_bias_hessian(self.curvature, change, log_std, second_from=2)
        return by_bias if len(change) == 1 else by_bias + (self.network.open_gates * change[1][0].T).sum(1)


def columns(points: Tensor, fused: bool) -> Tensor:
    """The points [1, N, i] of one task as columns [i, N]; if fused, with zeros up to a whole number of tiles."""
    _, count, size = points.shape
    padded = points.new_zeros(size, -(-count // TILE) * TILE if fused else count)
    padded[:, :count] = points[0].T
    return padded


def moved(
    layers: Layers, log_std: Tensor | None, by: tuple[Layers, Tensor | None], rate: float
) -> tuple[Layers, Tensor | None]:
    """layers and log_std − rate · by"""
    of_layers, of_log_std = by
    changed = [
        (torch.sub(weight, of_weight, alpha=rate), torch.sub(bias, of_bias, alpha=rate))
        for (weight, bias), (of_weight, of_bias) in zip(layers, of_layers, strict=True)
    ]
    if log_std is None or of_log_std is None:
        return changed, log_std
    return changed, log_std - rate * of_log_std
