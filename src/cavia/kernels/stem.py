"""Blocks of convolution, task norm, max-pooling and ReLU as one operation, with the gradient of their parameters."""

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, max_pool2d, relu

from cavia.kernels.build import library

MOST_BLOCKS = 4
CHANNELS = (1, 3)
LEAST_WIDTH, MOST_WIDTH = 16, 512

Layer: TypeAlias = tuple[Tensor, Tensor, Tensor]  # of a block: weight [C, C', 3, 3], γ [C], β [C]
Layers: TypeAlias = Sequence[Layer]
_Pointers = ctypes.c_void_p * MOST_BLOCKS


_SIZES = ("tasks", "pictures", "channels", "side", "width", "blocks", "threads", "keeps")
_OF_BLOCKS = ("weights", "turned", "gamma", "beta", "pooled", "index", "map")


class _Stem(ctypes.Structure):
    """`struct Stem` of source/stem.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _SIZES),
        ("epsilon", ctypes.c_double),
        ("x", ctypes.c_void_p),
        *((name, _Pointers) for name in _OF_BLOCKS),
        ("statistics", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("gradient", ctypes.c_void_p),
        ("weight_gradients", _Pointers),
        ("gamma_gradients", ctypes.c_void_p),
        ("beta_gradients", ctypes.c_void_p),
    )


def fits(channels: int, width: int) -> bool:
    """Whether the kernel supports these numbers of input channels and filters."""
    return channels in CHANNELS and width % LEAST_WIDTH == 0 and LEAST_WIDTH <= width <= MOST_WIDTH


def fused(x: Tensor, layers: Layers, epsilon: float) -> Tensor:
    """x [T, N, channels, S, S] → the map behind the last block's pooling, [T, N, C, S', S'], no ReLU behind it.

    epsilon: added to the variance by the norms, whose statistics are each task's own. x gets no gradient.
    """
    keeps = torch.is_grad_enabled() and any(part.requires_grad for layer in layers for part in layer)
    return _FusedStem.apply(epsilon, keeps, x, *(part for layer in layers for part in layer))


def plain(x: Tensor, layers: Layers, epsilon: float) -> Tensor:
    """The same by PyTorch's operations."""
    for block, (weight, gamma, beta) in enumerate(layers):
        h = conv2d((relu(x) if block else x).flatten(0, 1), weight, padding=1).unflatten(0, x.shape[:2])
        normed = torch.cat([batch_norm(task, None, None, gamma, beta, True, 0.0, epsilon) for task in h])
        x = max_pool2d(normed, 2).unflatten(0, x.shape[:2])
    return x


class _FusedStem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, epsilon: float, keeps: bool, x: Tensor, *parts: Tensor) -> Tensor:
        ctx.stem, buffers, out = _forward(x, parts, epsilon, keeps)
        ctx.save_for_backward(x, *parts, *buffers)
        return out.permute(0, 1, 4, 2, 3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[3:]
        x, *parts = ctx.saved_tensors[: 1 + len(needed)]
        if torch.is_grad_enabled():  # somebody will differentiate this: PyTorch can, we cannot
            wanted = [part for part, need in zip(parts, needed, strict=True) if need]
            out = plain(x, _in_threes(parts), ctx.stem.epsilon)
            gradients = iter(torch.autograd.grad(out, wanted, gradient, create_graph=True))
            return None, None, None, *(next(gradients) if need else None for need in needed)
        return None, None, None, *_backward(ctx.stem, parts, gradient)


def _in_threes(parts: Sequence[Tensor]) -> Layers:
    return list(zip(parts[0::3], parts[1::3], parts[2::3], strict=True))


def _forward(x: Tensor, parts: Sequence[Tensor], epsilon: float, keeps: bool) -> tuple[_Stem, list[Tensor], Tensor]:
    """What the backward pass starts from, the tensors that it points to, and the output [T, N, S', S', C]."""
    tasks, pictures, channels, side, _ = x.shape
    layers = _in_threes(parts)
    width, blocks = len(layers[0][0]), len(layers)
    x = x.permute(0, 1, 3, 4, 2).contiguous()
    sides = [side >> block for block in range(blocks + 1)]
    kept = tasks if keeps else 1
    weights = [weight.permute(2, 3, 1, 0).contiguous() for weight, _, _ in layers]
    gamma, beta = ([layer[i].contiguous() for layer in layers] for i in (1, 2))
    pooled = [x.new_empty(kept, pictures, s, s, width) for s in sides[1:]]
    index = [p.new_empty(p.shape if keeps else 0, dtype=torch.uint8) for p in pooled]
    maps = [x.new_empty((kept, pictures, s, s, width) if keeps and i else 0) for i, s in enumerate(sides[:-1])]
    statistics = x.new_empty(tasks, blocks, 3, width, dtype=torch.float64)
    out = x.new_empty(tasks, pictures, sides[-1], sides[-1], width)
    threads = max(1, min(torch.get_num_threads(), pictures))
    stem = _Stem(tasks, pictures, channels, side, width, blocks, threads, keeps, epsilon, x.data_ptr())
    groups = {"weights": weights, "gamma": gamma, "beta": beta, "pooled": pooled, "index": index, "map": maps}
    for name, tensors in groups.items():
        _point(stem, name, tensors)
    stem.statistics, stem.out = statistics.data_ptr(), out.data_ptr()
    _call("cavia_stem_forward", stem)
    return stem, [x, statistics, *(tensor for tensors in groups.values() for tensor in tensors)] if keeps else [], out


def _backward(stem: _Stem, parts: Sequence[Tensor], gradient: Tensor) -> list[Tensor]:
    """The gradients of all parts."""
    gradient = gradient.permute(0, 1, 3, 4, 2).contiguous()
    layers = _in_threes(parts)
    turned = [weight.permute(2, 3, 0, 1).contiguous() for weight, _, _ in layers]
    weights = [weight.new_empty(3, 3, weight.shape[1], len(weight)) for weight, _, _ in layers]
    both = gradient.new_zeros(2, stem.blocks, stem.width, dtype=torch.float64)
    stem.gradient = gradient.data_ptr()
    _point(stem, "turned", turned)
    _point(stem, "weight_gradients", weights)
    stem.gamma_gradients, stem.beta_gradients = both[0].data_ptr(), both[1].data_ptr()
    _call("cavia_stem_backward", stem)
    gamma, beta = both.to(gradient.dtype)
    return [
        part for block, weight in enumerate(weights) for part in (weight.permute(3, 2, 0, 1), gamma[block], beta[block])
    ]


def _point(stem: _Stem, name: str, tensors: Sequence[Tensor]) -> None:
    getattr(stem, name)[: len(tensors)] = [tensor.data_ptr() for tensor in tensors]


def _call(name: str, stem: _Stem) -> None:
    kernels = library()
    assert kernels is not None, "the caller has checked"
    if getattr(kernels, name)(ctypes.byref(stem)):
        raise MemoryError(f"{name}: not enough memory for {stem.pictures} pictures and {stem.width} filters")
