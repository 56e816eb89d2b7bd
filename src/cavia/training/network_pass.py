"""The derivatives of a ReLU network in closed form, for the points of one task."""

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from cavia.kernels.curvature import Parts, product, turned
from cavia.training.policy_heads import Curvature

Layers: TypeAlias = list[tuple[Tensor, Tensor]]  # weight [o, i] and bias [o] of each layer


class Pass:
    """A forward pass of a network on points x [i, N], with what its derivatives need.

    Points are columns: matrix libraries are fastest with long rows.

    fused:   compute Hessian products with our own kernel, which needs whole tiles of points
    inputs:  [i, N] of each layer
    output:  [o, N] of the last layer
    by_sums: the gradient of a loss by every layer's sums [o, N], if there is one
    """

    def __init__(self, layers: Layers, x: Tensor, fused: bool):
        self.layers, self.fused = [(weight.contiguous(), bias) for weight, bias in layers], fused
        self.inputs = [x]
        for weight, bias in self.layers[:-1]:
            self.inputs.append((weight @ self.inputs[-1]).add_(bias.unsqueeze(1)).relu_())
        weight, bias = self.layers[-1]
        self.output = (weight @ self.inputs[-1]).add_(bias.unsqueeze(1))
        self.by_sums: list[Tensor] = []
        self._kept: dict[int, Tensor] = {}  # by_sums in the kernel's layout

    def backward(self, at_output: Tensor) -> list[Tensor]:
        """The gradient by every layer's sums [o, N] from the gradient by the output."""
        return self._backward(at_output, None, len(self.layers))

    def gradient(self, by_sums: Sequence[Tensor]) -> Layers:
        """The gradient by the weights from that by every layer's sums."""
        pairs = zip(by_sums, self.inputs, strict=True)
        return [((h @ delta.T).T if len(h) < len(delta) else delta @ h.T, delta.sum(1)) for delta, h in pairs]

    def push(self, change: Layers) -> Tensor:
        """How the output [o, N] changes with the weights."""
        return self._forward(change)[1]

    def hessian(
        self, curvature: Curvature, change: Layers | Tensor, log_std: Tensor | None, second_from: int
    ) -> tuple[Layers, Tensor | None]:
        """How the gradient of a function of output and log_std, by the weights and by log_std, changes with them.

        curvature:   the function's Hessian
        change:      of the weights, or of the first layer's bias alone, [o]
        second_from: first layer whose cross terms between weights and inputs count; layers before it do not need
                     `by_sums`
        """
        if self.fused:
            gradients, biases, by_log_std = self._fused(curvature, change, log_std, second_from, True)
            return list(zip(gradients, biases, strict=True)), by_log_std
        inputs, output = self._forward(change)
        by_output, by_log_std = curvature((output, log_std))
        by_layers = self.gradient(self._backward(by_output, change, second_from))
        for number in range(second_from, len(self.layers)):
            by_layers[number][0].addmm_(self.by_sums[number], inputs[number].T)
        return by_layers, by_log_std

    def first_bias_hessian(
        self, curvature: Curvature, change: Layers, log_std: Tensor | None, second_from: int
    ) -> Tensor:
        """The part of `hessian` for the first layer's bias, [o]."""
        if self.fused:
            return self._fused(curvature, change, log_std, second_from, False)[1][0]
        by_output, _ = curvature((self._forward(change)[1], log_std))
        return self._backward(by_output, change, second_from)[0].sum(1)

    def _forward(self, change: Layers | Tensor) -> tuple[list[Tensor], Tensor]:
        """How the inputs of every layer (except the first) and the output [o, N] change."""
        x, inputs = self.inputs[0], [self.inputs[0]]
        if isinstance(change, Tensor):
            sums = change.unsqueeze(1).expand(-1, x.shape[1])
        else:
            sums = (change[0][0] @ x).add_(change[0][1].unsqueeze(1))
        for number in range(1, len(self.layers)):
            inputs.append(self._gated(sums, number))
            sums = self.layers[number][0] @ inputs[-1]
            if not isinstance(change, Tensor):
                weight, bias = change[number]
                sums.addmm_(weight, self.inputs[number]).add_(bias.unsqueeze(1))
        return inputs, sums

    def _backward(self, at_output: Tensor, change: Layers | Tensor | None, second_from: int) -> list[Tensor]:
        """The gradient by every layer's sums from that by the output, or how it changes."""
        by_sums = [at_output]
        for number in range(len(self.layers) - 1, 0, -1):
            sums = self.layers[number][0].T @ by_sums[0]
            if isinstance(change, list) and number >= second_from:
                sums.addmm_(change[number][0].T, self.by_sums[number])
            by_sums.insert(0, self._gated(sums, number))
        return by_sums

    def _gated(self, values: Tensor, number: int) -> Tensor:
        """values [i, N], set to 0 where the ReLU before that layer is 0; in place if they are no view."""
        inputs = self.inputs[number]
        if values.is_contiguous():
            return torch.ops.aten.threshold_backward.grad_input(values, inputs, 0, grad_input=values)
        return torch.ops.aten.threshold_backward(values, inputs, 0)

    def _fused(
        self, curvature: Curvature, change: Layers | Tensor, log_std: Tensor | None, second_from: int, wanted: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """How the gradients by weights (if asked for), by biases and by log_std change."""
        nothing: list[Tensor | None] = [None] * len(self.layers)
        numbers = range(second_from, len(self.layers))
        parts: dict[str, Parts] = {
            "weight": [weight for weight, _ in self.layers],
            "inputs": self.inputs,
            "turned": self._turned if wanted else nothing,
            "by_sums": nothing[:second_from] + [self.by_sums[number] for number in numbers],
            "by_turned": nothing[:second_from] + [self._by_turned(number) for number in numbers] if wanted else nothing,
            "change": nothing if isinstance(change, Tensor) else [weight.contiguous() for weight, _ in change],
            "bias_change": [change] if isinstance(change, Tensor) else [bias for _, bias in change],
        }
        gradients, biases, sums = product(parts, *curvature.for_kernel(log_std))
        return gradients, biases, curvature.by_log_std(sums, log_std)

    @cached_property
    def _turned(self) -> list[Tensor]:
        return [turned(h) for h in self.inputs]

    def _by_turned(self, number: int) -> Tensor:
        if number not in self._kept:
            self._kept[number] = turned(self.by_sums[number])
        return self._kept[number]

    # Where the first layer's sums change equally for all points, or linearly in few inputs, it is enough to know the
    # gradient by the second layer's sums, summed over the points at which the ReLU before it is open.

    @cached_property
    def open_gates(self) -> Tensor:
        """[i, o] of the second layer."""
        return self._gates @ self.by_sums[1].T

    @cached_property
    def moments(self) -> Tensor:
        """The same times each of the network's inputs and, last, 1: [i, inputs + 1, o]."""
        gates = self._gates
        times_inputs = [gates @ (self.by_sums[1] * x).T for x in self.inputs[0]]
        return torch.stack([*times_inputs, self.open_gates], 1)

    @property
    def _gates(self) -> Tensor:
        return (self.inputs[1] > 0).to(self.by_sums[1])
