"""The derivatives of a ReLU network in closed form, for the points of one task."""

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

Layers: TypeAlias = list[tuple[Tensor, Tensor]]  # weight [o, i] and bias [o] of each layer


def columns(points: Tensor) -> Tensor:
    """The points [1, N, i] of one task as columns [i, N]."""
    return points[0].T.contiguous()


class Pass:
    """A network at its weights and points x [i, N], with what its derivatives need.

    A column is a point: with such long rows, a matrix library is fastest.

    inputs: [i, N] of each layer
    output: [o, N] of the last
    """

    def __init__(self, layers: Layers, x: Tensor):
        self.layers = layers
        self.inputs = [x]
        for weight, bias in layers[:-1]:
            self.inputs.append((weight @ self.inputs[-1]).add_(bias.unsqueeze(1)).relu_())
        weight, bias = layers[-1]
        self.output = (weight @ self.inputs[-1]).add_(bias.unsqueeze(1))

    def first_change(self, change: Layers) -> Tensor:
        """How the first layer's sums [o, N] change with its weights."""
        weight, bias = change[0]
        return (weight @ self.inputs[0]).add_(bias.unsqueeze(1))

    def forward_change(self, first: Tensor, change: Layers | None) -> tuple[list[Tensor], Tensor]:
        """How the inputs of the layers after the first change, and the output [o, N].

        first:  change of the first layer's sums, [o, N]; may be overwritten
        change: of the weights of the layers after the first; None: they stay
        """
        inputs, sums = [], first
        for number in range(1, len(self.layers)):
            inputs.append(self._gated(sums, number))
            sums = self.layers[number][0] @ inputs[-1]
            if change is not None:
                weight, bias = change[number]
                sums.addmm_(weight, self.inputs[number]).add_(bias.unsqueeze(1))
        return inputs, sums

    def backward(self, at_output: Tensor) -> list[Tensor]:
        """The gradient by every layer's sums [o, N] from the gradient by the output."""
        found = [at_output]
        for number in range(len(self.layers) - 1, 0, -1):
            found.insert(0, self._gated(self.layers[number][0].T @ found[0], number))
        return found

    def gradient(self, by_sums: Sequence[Tensor]) -> Layers:
        """The gradient by the weights from that by every layer's sums."""
        pairs = zip(by_sums, self.inputs, strict=True)
        return [((h @ delta.T).T if len(h) < len(delta) else delta @ h.T, delta.sum(1)) for delta, h in pairs]

    def _gated(self, values: Tensor, number: int) -> Tensor:
        """values [i, N], in place if they are no view, but 0 where the ReLU before that layer is."""
        inputs = self.inputs[number]
        if values.is_contiguous():
            return torch.ops.aten.threshold_backward.grad_input(values, inputs, 0, grad_input=values)
        return torch.ops.aten.threshold_backward(values, inputs, 0)


class Descent(Pass):
    """A pass whose output enters a loss, with the gradient of the loss.

    by_sums: the gradient by every layer's sums, [o, N]
    """

    def __init__(self, layers: Layers, x: Tensor):
        super().__init__(layers, x)
        self.by_sums: list[Tensor] = []

    def backward_change(self, at_output: Tensor, change: Layers | None, of_weights_from: int = 1) -> list[Tensor]:
        """How `by_sums` changes, from the change at the output [o, N].

        change:          of the weights; None: they stay
        of_weights_from: the change of earlier layers' weights is left out
        """
        found = [at_output]
        for number in range(len(self.layers) - 1, 0, -1):
            sums = self.layers[number][0].T @ found[0]
            if change is not None and number >= of_weights_from:
                sums.addmm_(change[number][0].T, self.by_sums[number])
            found.insert(0, self._gated(sums, number))
        return found

    # The gradient by the second layer's sums, summed over points where a ReLU before it is open, is all that is needed
    # wherever a change of the first layer's sums is the same for all points, or linear in few inputs.

    @cached_property
    def open_gates(self) -> Tensor:
        """[i, o] of the second layer."""
        return self._gates @ self.by_sums[1].T

    @cached_property
    def moments(self) -> Tensor:
        """The same times each of the network's inputs and, last, 1: [i, inputs + 1, o]."""
        times_inputs = [self._gates @ (self.by_sums[1] * x).T for x in self.inputs[0]]
        return torch.stack([*times_inputs, self.open_gates], 1)

    @property
    def _gates(self) -> Tensor:
        return (self.inputs[1] > 0).to(self.by_sums[1])
