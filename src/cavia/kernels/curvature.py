"""A product with the Hessian of a function of a ReLU network's output, by its weights, as one operation."""

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from cavia.kernels.build import library

MOST_LAYERS = 8
TILE = 64  # the number of points must be a multiple of it

Parts: TypeAlias = Sequence[Tensor | None]  # one for each layer
_Pointers = ctypes.c_void_p * MOST_LAYERS
_OF_LAYERS = ("weight", "inputs", "turned", "by_sums", "by_turned", "change", "bias_change")


class _Curvature(ctypes.Structure):
    """`struct Curvature` of source/curvature.cpp."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("layers", "points", "threads", "categorical")),
        ("sizes", ctypes.c_int32 * (MOST_LAYERS + 1)),
        *((name, _Pointers) for name in _OF_LAYERS),
        *((name, ctypes.c_void_p) for name in ("of_output", "mixed", "log_std")),
        *((name, _Pointers) for name in ("gradient", "bias_gradient")),
        ("mixed_sums", ctypes.c_void_p),
    )


def turned(rows: Tensor) -> Tensor:
    """rows [i, N] as [N, i], each row filled up with zeros to whole registers."""
    kernels = library()
    assert kernels is not None, "the caller has checked"
    lanes = kernels.cavia_curvature_lanes()
    wide = rows.new_zeros(rows.shape[1], -(-len(rows) // lanes) * lanes)
    wide[:, : len(rows)] = rows.T
    return wide


def product(
    of_layers: dict[str, Parts],
    of_output: Tensor,
    mixed: Tensor | None,
    log_std: Tensor | None,
    categorical: bool,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """How the gradient by weights [o, i] and biases [o] changes, and Σ over points of mixed · the output's change, [A].

    of_layers: name → a tensor for each layer, contiguous float32, or None:
               weight      [o, i]
               inputs      [i, N], with N a multiple of TILE
               turned      of the inputs; None: the gradient by the weight is not wanted, and not written
               by_sums     [o, N], the gradient by the layer's sums; None: what `change` does to it is left out
               by_turned   by_sums turned; None: what the change of the inputs does to the gradient is left out
               change      of the weight; None: it stays
               bias_change [o]; None: it stays
    of_output: [A, N]. If categorical, the gradient by the output changes by of_output · (change − Σ mixed · change),
               else by of_output · change + mixed · log_std.
    """
    weights = [weight for weight in of_layers["weight"] if weight is not None]
    threads = max(1, min(torch.get_num_threads(), of_output.shape[1] // TILE))
    call = _Curvature(len(weights), of_output.shape[1], threads, categorical)
    call.sizes[: len(weights) + 1] = [*(weight.shape[1] for weight in weights), len(weights[-1])]
    gradients = [torch.empty_like(weight) for weight in weights]
    biases = [weight.new_empty(len(weight)) for weight in weights]
    sums = of_output.new_empty(len(of_output))
    for name, parts in {**of_layers, "gradient": gradients, "bias_gradient": biases}.items():
        getattr(call, name)[: len(parts)] = [None if part is None else part.data_ptr() for part in parts]
    for name, part in {"of_output": of_output, "mixed": mixed, "log_std": log_std, "mixed_sums": sums}.items():
        setattr(call, name, None if part is None else part.data_ptr())
    kernels = library()
    assert kernels is not None, "the caller has checked"
    if kernels.cavia_curvature(ctypes.byref(call)):
        raise MemoryError(f"not enough memory for {threads} threads and layers of {list(call.sizes)} numbers")
    return gradients, biases, sums
