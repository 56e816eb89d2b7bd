"""Checks of points as users pass them: x, y and a mask become tensors that fit together, or an error says why not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, shown

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]  # x [T, N, ...], or several such tensors by name
Array: TypeAlias = Tensor | np.ndarray | Sequence[Any]  # what `as_tensor` accepts


def lead(x: Inputs) -> Tensor:
    """The first tensor of x; all share its two leading axes [T, N]."""
    return x if isinstance(x, Tensor) else next(iter(x.values()))


def tensors(x: Inputs) -> list[Tensor]:
    """The tensors of x, in the order of their names."""
    return [x] if isinstance(x, Tensor) else [x[name] for name in sorted(x)]


def each(change: Callable[..., Tensor], x: Inputs, *others: Inputs) -> Inputs:
    """Apply `change` to every tensor of x, together with the tensors of the same name in the others."""
    if isinstance(x, Tensor):
        return change(x, *others)
    return {name: change(value, *(one[name] for one in others)) for name, value in x.items()}  # type: ignore[index]


def one_tensor(x: Inputs, who: str) -> Tensor:
    """x, if it is one tensor; an error if it is a dictionary."""
    if not isinstance(x, Tensor):
        raise CaviaError(f"{who} takes one tensor x [T, N, ...], got a dictionary of {', '.join(map(repr, x))}")
    return x


def shape(x: Any) -> str:
    """The shape of a tensor, or of several by name, as error messages print it: [25, 10, 1]."""
    if isinstance(x, Mapping):
        return "{" + ", ".join(f"{name}: {shape(value)}" for name, value in x.items()) + "}"
    return str(list(x.shape))


def as_tensor(name: str, value: Any) -> Tensor:
    """A tensor unchanged; an array, list or number converted; anything else is an error that names it."""
    if not isinstance(value, Tensor):
        value = _converted(name, value)
    if value.is_complex():
        raise CaviaError(
            f"{name} must be real, got {value.dtype} {shape(value)}; split it into real and imaginary part"
        )
    if value.layout is not torch.strided:
        raise CaviaError(f"{name} must be a dense tensor, got {value.layout} {shape(value)}; use {name}.to_dense()")
    return value


def _converted(name: str, value: Any) -> Tensor:
    try:
        if isinstance(value, Sequence) and value and all(isinstance(one, Tensor) for one in value):
            return torch.stack(list(value))
        array = np.require(value, requirements=["C", "W"])
        if array.dtype.kind not in "biufc":
            raise TypeError
        return torch.as_tensor(array)
    except Exception as error:
        raise CaviaError(f"{name} must be a tensor, or an array or list of numbers, got {shown(value)}") from error


def as_device(device: Any) -> torch.device:
    """The device of that name; an error if PyTorch does not know it."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise CaviaError(f"device must be one of PyTorch's, like 'cpu' or 'cuda:0', got {shown(device)}") from error


def as_inputs(name: str, x: Any) -> Inputs:
    """x [T, N, ...]: a tensor, or a dictionary of tensors with the same two leading axes."""
    if isinstance(x, Tensor) or not isinstance(x, Mapping):
        x = as_tensor(name, x)
        _require_axes(name, x)
        return x
    if not x or not all(isinstance(key, str) for key in x):
        raise CaviaError(f"{name} must be a tensor, or name → tensor, at least one, got {shown(x)}")
    tensors = {key: as_tensor(f"{name}[{key!r}]", value) for key, value in x.items()}
    for key, value in tensors.items():
        _require_axes(f"{name}[{key!r}]", value)
        if value.shape[:2] != lead(tensors).shape[:2]:
            raise CaviaError(
                f"all tensors of {name} need the same two leading axes [tasks, points], got {shape(tensors)}"
            )
    return tensors


def _require_axes(name: str, value: Tensor) -> None:
    if value.ndim < 2 or value.shape[0] == 0:
        raise CaviaError(f"{name} must be [tasks, points, ...] with at least 1 task, got {shape(value)}")


def as_points(
    x: Any, y: Any, mask: Any, names: Sequence[str] = ("x", "y", "mask")
) -> tuple[Inputs, Tensor, Tensor | None]:
    """x [T, N, ...], y [T, N, ...] and mask [T, N] bool that agree on T and N; names: what messages call them."""
    x, y = as_inputs(names[0], x), as_tensor(names[1], y)
    leading = lead(x).shape[:2]
    if y.ndim < 2 or y.shape[:2] != leading:
        raise CaviaError(
            f"{names[0]} and {names[1]} need the same two leading axes [tasks, points, ...], "
            f"got {shape(x)} and {shape(y)}"
        )
    if mask is not None:
        mask = as_tensor(names[2], mask)
        if mask.dtype != torch.bool:
            raise CaviaError(f"{names[2]} must be of type torch.bool, got {mask.dtype} {shape(mask)}; use mask.bool()")
        if mask.shape != leading:
            raise CaviaError(f"{names[2]} must have shape {list(leading)} like {names[0]}, got {shape(mask)}")
    return x, y, mask


def without_padding(x: Any, mask: Tensor | None) -> Any:
    """x [T, N, ...] with harmless padding, where the mask [T, N] is False: NaN there would reach the gradients.

    A tensor is padded with zeros. With several tensors, each padded point is a copy of the task's first real one: zeros
    might be invalid input, such as a text whose attention mask leaves nothing to attend to.
    """
    if mask is None:
        return x
    if isinstance(x, Tensor):
        return x.where(mask.view(*mask.shape, *(1,) * (x.ndim - 2)), 0)
    first, task = mask.int().argmax(1), torch.arange(mask.shape[0], device=mask.device)
    task = torch.where(mask.any(1), task, mask.any(1).int().argmax())  # a task without points borrows another's

    def filled(value: Tensor) -> Tensor:
        valid = value[task, first[task]].unsqueeze(1)
        valid = valid.nan_to_num() if value.is_floating_point() else valid
        return value.where(mask.view(*mask.shape, *(1,) * (value.ndim - 2)), valid)

    return each(filled, x)
