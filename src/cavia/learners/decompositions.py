"""Gradients for which ONNX has no operation, in terms of operations that it has."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def table() -> dict[Any, Callable[..., Any]]:
    """Operation → what the tracer records in its place."""
    from torch._decomp import get_decompositions

    norms = [aten.native_batch_norm_backward, aten._native_batch_norm_legit, aten.native_batch_norm]
    return get_decompositions(norms) | {
        aten.convolution_backward.default: convolution_backward,
        aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    }


def convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients by input [B, in, ...], weight [out, in, ...] and bias [out] of a convolution, where wanted."""
    if transposed or groups != 1:
        raise NotImplementedError("the gradient of a transposed or grouped convolution")
    spatial = range(2, x.ndim)
    by_x = by_weight = None
    rest = [  # rows at the end that no place of the kernel reaches
        (x.shape[i] + 2 * p - d * (weight.shape[i] - 1) - 1) % s
        for i, s, p, d in zip(spatial, stride, padding, dilation, strict=True)
    ]
    if wanted[0]:
        by_x = aten.convolution(gradient, weight, None, stride, padding, dilation, True, rest, 1)
    if wanted[1]:  # channels take the batch's place: [in, B, ...] * [out, B, ...] → [in, out, ...]
        swapped = aten.convolution(
            x.transpose(0, 1), gradient.transpose(0, 1), None, dilation, padding, stride, False, [0] * len(rest), 1
        ).transpose(0, 1)
        for i in spatial:
            swapped = swapped.narrow(i, 0, weight.shape[i])
        by_weight = swapped
    return by_x, by_weight, gradient.sum((0, *spatial)) if wanted[2] else None


def max_pool_backward(gradient: Tensor, x: Tensor, *settings: Any) -> Tensor:
    """The gradient [B, C, H, W] of max-pooling's input: each place that was taken has that of the output's."""
    places = settings[-1].flatten(-2)
    zeros = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(-2)
    return zeros.scatter_add(-1, places, gradient.flatten(-2)).view(x.shape)
