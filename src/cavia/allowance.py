"""A limit on memory while building what a file describes: a small file cannot make a large network."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

OF_SIZE = (torch.empty, torch.ones, torch.rand, torch.randn, torch.zeros)
METHODS = (Tensor.new_empty, Tensor.new_full, Tensor.new_ones, Tensor.new_zeros)
WIDEST = 8  # bytes of a number


class TooLarge(Exception):
    """A request exceeded the limit; nothing was allocated."""


class Allowance(TorchFunctionMode):
    """Inside, new tensors are limited in bytes and number; a call that would exceed the limit is not made.

    Only tensors made from numbers count, such as parameters, not those computed from other tensors.
    """

    def __init__(self, most_bytes: float, most_tensors: int):
        super().__init__()
        self.bytes_left, self.tensors_left = most_bytes, most_tensors

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        count = planned(function, args, kwargs)
        if count is not None:
            dtype = kwargs.get("dtype")
            self.bytes_left -= max(count, 0) * (dtype.itemsize if isinstance(dtype, torch.dtype) else WIDEST)
            self.tensors_left -= 1
            if self.bytes_left < 0 or self.tensors_left < 0:
                raise TooLarge
        return function(*args, **kwargs)


def planned(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
    """How many numbers a new tensor will have; None if the function makes none, or the call will fail.

    Counted here, without the meta device: PyTorch imports its compiler for some of these, which takes seconds.
    """
    try:
        if function in OF_SIZE:
            return _product(kwargs.get("size", args))
        if function in METHODS:
            return _product(kwargs.get("size", args[1:2] if function is Tensor.new_full else args[1:]))
        if function in (torch.full, torch.empty_strided):
            return _product(kwargs.get("size", args[:1]))
        if function is torch.randint:
            return _product(kwargs.get("size", args[-1:]))
        if function is torch.arange:
            bounds = [*args, *(kwargs[name] for name in ("start", "end", "step") if name in kwargs)]
            first, last, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
            return math.ceil((last - first) / step)
        if function in (torch.linspace, torch.logspace):
            return kwargs.get("steps", args[2] if len(args) > 2 else 0)
        if function in (torch.eye, torch.randperm, torch.tril_indices, torch.triu_indices):
            sizes = [one for one in (*args, *kwargs.values()) if type(one) is int]
            return 2 * math.prod(sizes) ** (2 if function is torch.eye and len(sizes) == 1 else 1)
    except (TypeError, IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return None


def _product(size: Any) -> float:
    """size: as the functions take it, one number, several, or a list of them."""
    if isinstance(size, Sequence) and len(size) == 1 and isinstance(size[0], Sequence):
        size = size[0]
    return math.prod(size if isinstance(size, Sequence) else [size])
