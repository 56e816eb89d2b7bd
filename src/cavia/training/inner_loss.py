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
    """

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
        found = descent.gradient(descent.backward_change(by_output, change))
        for number, moved in enumerate(inputs, 1):
            found[number][0].addmm_(descent.by_sums[number], moved.T)
        return found, by_log_std

    def hessian_by_shift(self, shift: Tensor) -> tuple[Layers, Tensor | None]:
        """How the gradient changes with the first layer's bias alone, by shift [o]."""
        descent = self.descent
        first = shift.unsqueeze(1).expand(-1, descent.inputs[0].shape[1])
        inputs, output = descent.forward_change(first, None)
        by_output, by_log_std = self.curvature((output, None))
        found = descent.gradient(descent.backward_change(by_output, None))
        for number, moved in enumerate(inputs, 1):
            if number == 1:  # the same for all points, but for the gates
                found[1][0].addcmul_(descent.open_gates, shift)
            else:
                found[number][0].addmm_(descent.by_sums[number], moved.T)
        return found, by_log_std

    def first_bias_change(self, change: Layers, log_std: Tensor | None) -> Tensor:
        """How `by_first_bias` changes with the layers and log_std: [o]."""
        descent = self.descent
        _, output = descent.forward_change(descent.first_change(change), change)
        by_output, _ = self.curvature((output, log_std))
        return descent.first_bias_change(by_output, change)


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
