"""The inner loss of a policy in closed form: its gradient and products with its Hessian, for one task."""

import torch
from torch import Tensor

from cavia.learners.acting import Points
from cavia.learners.losses import point_weights, without_padding
from cavia.training.network_pass import Descent, Layers, columns
from cavia.training.policy_heads import Head


class InnerLoss:
    """−A·log π(a | s), averaged over the steps of one task, at given weights.

    by_log_std:    its gradient by log_std, [A]
    by_first_bias: its gradient by the bias of the first layer, [o]
    keeps_moments: whether `hessian` takes its share of the first two layers from sums over the points that are kept
    """

    keeps_moments = False

    def __init__(self, head: type[Head], layers: Layers, log_std: Tensor | None, points: Points):
        self.descent = Descent(layers, columns(points.x))
        y = columns(without_padding(points.y, points.mask))
        action, advantage = y[:-1], y[-1]
        weight = advantage * point_weights(points.mask, advantage)[0]
        (by_output, self.by_log_std), self.curvature = head(log_std).loss(self.descent.output, action, weight)
        self.descent.by_sums = self.descent.backward(by_output)
        self.by_first_bias = self.descent.by_sums[0].sum(1)

    def gradient(self) -> tuple[Layers, Tensor | None]:
        """By the layers and log_std."""
        return self.descent.gradient(self.descent.by_sums), self.by_log_std

    def hessian(self, change: Layers, log_std: Tensor | None) -> tuple[Layers, Tensor | None]:
        """How the gradient changes with the layers and log_std."""
        descent = self.descent
        inputs, output = descent.forward_change(descent.first_change(change), change)
        by_output, by_log_std = self.curvature((output, log_std))
        by_moments = self.keeps_moments and len(change) > 1
        found = descent.gradient(descent.backward_change(by_output, change, 2 if by_moments else 1))
        if by_moments:
            self._add_moments(found, change)
        for number in range(2 if by_moments else 1, len(change)):
            found[number][0].addmm_(descent.by_sums[number], inputs[number - 1].T)
        return found, by_log_std

    def _add_moments(self, found: Layers, change: Layers) -> None:
        """What the change of either of the first two layers' weights does to the gradient by the other's."""
        (weight, bias), (second, _), moments = change[0], change[1], self.descent.moments
        first = torch.cat([weight, bias.unsqueeze(1)], 1).unsqueeze(1)  # [i, 1, inputs + 1]
        found[1][0].add_((first @ moments).squeeze(1).T)
        by_first = (moments @ second.T.unsqueeze(2)).squeeze(2)  # [i, inputs + 1]
        found[0][0].add_(by_first[:, :-1])
        found[0][1].add_(by_first[:, -1])

    def hessian_by_shift(self, shift: Tensor) -> tuple[Layers, Tensor | None]:
        """How the gradient changes with the first layer's bias alone, by shift [o]."""
        descent = self.descent
        first = shift.unsqueeze(1).expand(-1, descent.inputs[0].shape[1])
        inputs, output = descent.forward_change(first, None)
        by_output, by_log_std = self.curvature((output, None))
        found = descent.gradient(descent.backward_change(by_output, None))
        if len(found) > 1:
            found[1][0].add_((descent.open_gates * shift.unsqueeze(1)).T)
        for number in range(2, len(found)):
            found[number][0].addmm_(descent.by_sums[number], inputs[number - 1].T)
        return found, by_log_std

    def first_bias_change(self, change: Layers, log_std: Tensor | None) -> Tensor:
        """How `by_first_bias` changes with the layers and log_std: [o]."""
        descent = self.descent
        _, output = descent.forward_change(descent.first_change(change), change)
        by_output, _ = self.curvature((output, log_std))
        found = descent.backward_change(by_output, change, 2)[0].sum(1)
        return found if len(change) == 1 else found + (descent.open_gates * change[1][0].T).sum(1)


def moved(
    layers: Layers, log_std: Tensor | None, by: tuple[Layers, Tensor | None], rate: float
) -> tuple[Layers, Tensor | None]:
    """layers and log_std − rate · by"""
    of_layers, of_log_std = by
    found = [
        (torch.sub(weight, of_weight, alpha=rate), torch.sub(bias, of_bias, alpha=rate))
        for (weight, bias), (of_weight, of_bias) in zip(layers, of_layers, strict=True)
    ]
    if log_std is None or of_log_std is None:
        return found, log_std
    return found, log_std - rate * of_log_std
