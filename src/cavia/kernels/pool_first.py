"""A block that pools before it normalises, differentiable any number of times: for weights that adapt.

With the sign of γ folded into the convolution's weights the norm is a rising map, so max-pooling may come first, and
what follows works on a quarter of the map. In the first block even the statistics need no map: they are sums and
products of the pictures' 3×3 patches, weighted by the convolution's weights.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from cavia.kernels.build import library

CHOOSE, FOLLOW, GRADIENT = range(3)


def first_block(x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Pictures x [N, channels, S, S] of one task → the pooled and normed map, [N, C, S // 2, S // 2]."""
    sign = _sign(gamma)
    weight = weight * sign[:, None, None, None]
    pooled, _, sums, products = _Chosen.apply(x, weight, gamma)
    flat = weight.permute(0, 2, 3, 1).flatten(1).double()  # [C, 9·channels]
    count = len(x) * x.shape[-1] ** 2
    mean = flat @ sums / count
    variance = ((flat @ products) * flat).sum(1) / count - mean.square()
    return _normed(pooled, mean, variance, gamma * sign, beta, epsilon)


def later_block(h: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """As `first_block`, for a map h [N, C, S, S] that has a gradient itself. No γ may be zero."""
    sign = _sign(gamma)
    weight = weight * sign[:, None, None, None]
    y = conv2d(h, weight, -_somewhere(h, weight), padding=1)
    rows = y.permute(0, 2, 3, 1).flatten(0, 2)  # a view of channels-last memory
    mean = rows.mean(0)
    variance = rows.square().mean(0) - mean.square()
    return _normed(max_pool2d(y, 2), mean, variance, gamma * sign, beta, epsilon)


def _sign(gamma: Tensor) -> Tensor:
    return torch.where(gamma < 0, -1.0, 1.0).to(gamma.dtype)


@torch.no_grad()
def _somewhere(h: Tensor, weight: Tensor) -> Tensor:
    """The convolution at one place, [C]: less this, the map's mean is small and its variance keeps its digits."""
    middle = h.shape[-1] // 2
    if middle < 1 or middle + 2 > h.shape[-1]:
        return weight.new_zeros(len(weight))
    return conv2d(h[:1, :, middle - 1 : middle + 2, middle - 1 : middle + 2], weight).flatten()


def _normed(h: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    scale = gamma * torch.rsqrt(variance + epsilon)
    shift = beta - mean * scale
    return torch.addcmul(shift.to(h.dtype)[:, None, None], h, scale.to(h.dtype)[:, None, None])


class _First(ctypes.Structure):
    """`struct First` of source/stem.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("job", "pictures", "channels", "side", "width")),
        *((name, ctypes.c_void_p) for name in ("x", "weights", "gamma", "pooled", "index", "sums", "products")),
    )


class _Chosen(torch.autograd.Function):
    """Convolve and take the largest place of each window: x, weight, γ → pooled, which places, patches' sums, products.

    The first place where γ is zero. x and γ get no gradient.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        taps = 9 * x.shape[1]
        sums, products = (x.new_empty(shape, dtype=torch.float64) for shape in ((taps,), (taps, taps)))
        pooled = _empty_pooled(x, len(weight))
        index = pooled.new_empty(pooled.shape, dtype=torch.uint8)
        extra = {"gamma": gamma.contiguous(), "sums": sums, "products": products}
        _call(CHOOSE, x, _by_tap(weight), pooled, index, **extra)
        return pooled.permute(0, 3, 1, 2), index, sums, products

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[None, Tensor, None]:
        return None, _Gradient.apply(*ctx.saved_tensors, gradient), None


class _AtPlaces(torch.autograd.Function):
    """A linear function of its last argument; x and index, the first two, say which."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:2])


class _Followed(_AtPlaces):
    """Convolve and take the places that are given: x, index, weight → pooled."""

    @staticmethod
    def forward(x: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        pooled = _empty_pooled(x, len(weight))
        _call(FOLLOW, x, _by_tap(weight), pooled, index)
        return pooled.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _Gradient.apply(*ctx.saved_tensors, gradient)


class _Gradient(_AtPlaces):
    """What both have as gradient of their weights: x, index, gradient of pooled → gradient of weight."""

    @staticmethod
    def forward(x: Tensor, index: Tensor, gradient: Tensor) -> Tensor:
        weight = x.new_empty(3, 3, x.shape[1], gradient.shape[1])
        _call(GRADIENT, x, weight, gradient.permute(0, 2, 3, 1).contiguous(), index)
        return weight.permute(3, 2, 0, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _Followed.apply(*ctx.saved_tensors, gradient)


def _empty_pooled(x: Tensor, width: int) -> Tensor:
    return x.new_empty(len(x), x.shape[-1] // 2, x.shape[-1] // 2, width)


def _by_tap(weight: Tensor) -> Tensor:
    return weight.permute(2, 3, 1, 0).contiguous()


def _call(job: int, x: Tensor, weight: Tensor, pooled: Tensor, index: Tensor, **extra: Tensor) -> None:
    kernels = library()
    assert kernels is not None, "the caller has checked"
    x = x.permute(0, 2, 3, 1).contiguous()
    first = _First(job, len(x), x.shape[-1], x.shape[1], weight.shape[-1])
    for name, tensor in {"x": x, "weights": weight, "pooled": pooled, "index": index, **extra}.items():
        setattr(first, name, tensor.data_ptr())
    if kernels.cavia_first(ctypes.byref(first)):
        raise MemoryError(f"not enough memory for {len(x)} pictures and {weight.shape[-1]} filters")
