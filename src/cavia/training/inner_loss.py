"""The inner loss of a policy in closed form: its gradient and products with its Hessian, for one task."""

import math

import torch
from torch import Tensor

from cavia.learners.acting import Points
from cavia.learners.losses import without_padding
from cavia.models.policy import SMALLEST_STD, Policy
from cavia.training.network_pass import Descent, Layers, columns


class Head:
    """From the output of the network [A, N] to predictions [1, N, D], and back."""

    def __init__(self, log_std: Tensor | None):
        self.log_std, self.is_free = log_std, None
        if log_std is not None:
            smallest = math.log(SMALLEST_STD)
            self.log_std, self.is_free = log_std.clamp(min=smallest), (log_std >= smallest).to(log_std)

    def prediction(self, output: Tensor) -> Tensor:
        return self._joined(output, self.log_std)

    def change(self, output: Tensor, log_std: Tensor | None) -> Tensor:
        """How the prediction changes with the output [A, N] and log_std [A]; None: it stays."""
        if self.is_free is None:
            return self._joined(output, None)
        return self._joined(output, torch.zeros_like(self.is_free) if log_std is None else log_std * self.is_free)

    def back(self, by_prediction: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradient by the output [A, N] and by log_std [A] from that by the prediction [1, N, D]."""
        rows = by_prediction[0].T
        if self.is_free is None:
            return rows.contiguous(), None
        by_output, by_log_std = rows.chunk(2)
        return by_output.contiguous(), by_log_std.sum(1) * self.is_free

    @staticmethod
    def _joined(output: Tensor, log_std: Tensor | None) -> Tensor:
        if log_std is not None:
            output = torch.cat([output, log_std.unsqueeze(1).expand_as(output)])
        return output.T.unsqueeze(0)


class InnerLoss:
    """−A·log π(a | s), averaged over the steps of one task, at given weights: its gradient and Hessian."""

    def __init__(self, policy: type[Policy], layers: Layers, log_std: Tensor | None, points: Points):
        self.policy, self.head = policy, Head(log_std)
        self.descent = Descent(layers, columns(points.x))
        y = without_padding(points.y, points.mask)
        self.action, self.prediction = y[..., :-1], self.head.prediction(self.descent.output)
        weight = points.mask.to(y) / points.mask.sum().clamp(min=1)
        self.weight = (-y[..., -1] * weight).unsqueeze(-1)  # [1, N, 1], of a step's log π in the loss
        at_output, self.by_log_std = self.head.back(self.weight * policy.score(self.prediction, self.action))
        self.descent.by_sums = self.descent.backward(at_output)
        self.by_first_bias = self.descent.by_sums[0].sum(1)  # the gradient by the first layer's bias, [o]

    def gradient(self) -> tuple[Layers, Tensor | None]:
        """By the layers and log_std."""
        return self.descent.gradient(self.descent.by_sums), self.by_log_std

    def _at_output(self, output: Tensor, log_std: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """How the gradient by the output [A, N] and by log_std [A] changes."""
        change = self.head.change(output, log_std)
        return self.head.back(self.weight * self.policy.score_change(self.prediction, self.action, change))

    def hessian(self, change: Layers, log_std: Tensor | None) -> tuple[Layers, Tensor | None]:
        """How the gradient changes with the layers and log_std."""
        descent = self.descent
        inputs, output = descent.forward_change(descent.first_change(change), change)
        at_output, by_log_std = self._at_output(output, log_std)
        by_sums = descent.backward_change(at_output, change)
        found = descent.gradient(by_sums)
        for number, moved in enumerate(inputs, 1):
            found[number][0].addmm_(descent.by_sums[number], moved.T)
        return found, by_log_std

    def hessian_by_shift(self, shift: Tensor) -> tuple[Layers, Tensor | None]:
        """How the gradient changes with the first layer's bias alone, by shift [o]."""
        descent = self.descent
        first = shift.unsqueeze(1).expand(-1, descent.inputs[0].shape[1])
        inputs, output = descent.forward_change(first, None)
        at_output, by_log_std = self._at_output(output, None)
        found = descent.gradient(descent.backward_change(at_output, None))
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
        at_output, _ = self._at_output(output, log_std)
        return descent.first_bias_change(at_output, change)


def moved(
    layers: Layers, log_std: Tensor | None, by: tuple[Layers, Tensor | None], rate: float
) -> tuple[Layers, Tensor | None]:
    """layers and log_std − rate · by"""
    of_layers, of_log_std = by
    found = [
        (weight - rate * of_weight, bias - rate * of_bias)
        for (weight, bias), (of_weight, of_bias) in zip(layers, of_layers, strict=True)
    ]
    if log_std is None or of_log_std is None:
        return found, log_std
    return found, log_std - rate * of_log_std
