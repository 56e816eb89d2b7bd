"""Columns of lists, one row a task, as padded batches of tasks."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, nearest

POINTS_AT_A_TIME = 2**16  # padded points in one batch of tasks, to bound memory


class Lists(NamedTuple):
    """A column of lists.

    values:  all points of all tasks, one after another, [points, ...].
    lengths: the number of points of each task, [T].
    """

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, table: Any, name: str) -> "Lists":
        """The column of that name: numbers in lists, or in lists of lists that are all of one length."""
        if name not in table.column_names:
            raise CaviaError(f"there is no column {name!r}; {nearest(name, table.column_names)}")
        column = table.column(name).combine_chunks()
        if not _is_list(column.type):
            raise CaviaError(f"column {name!r} must hold a list for each task, one entry a point, holds {column.type}")
        if column.null_count:
            raise CaviaError(f"column {name!r} has {column.null_count} rows without a list; leave them out")
        lengths, values, inner = _lengths(column), column.flatten(), []
        while _is_list(values.type):
            own = _lengths(values)
            if values.null_count or (len(own) and (own != own[0]).any()):
                raise CaviaError(f"the points in column {name!r} must all have the same number of values")
            inner.append(int(own[0]) if len(own) else 1)
            values = values.flatten()
        if values.null_count or not (np.issubdtype(dtype := values.type.to_pandas_dtype(), np.number)):
            raise CaviaError(f"column {name!r} must hold numbers, none missing, holds {values.type}")
        numbers = values.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        return cls(numbers.reshape(-1, *inner), lengths)

    def padded(self, tasks: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The points of some tasks, [T, K, ...], zeros where the mask [T, K] is False."""
        starts = np.cumsum(self.lengths) - self.lengths
        places = starts[tasks][:, None] + np.arange(mask.shape[1])
        points = self.values[np.where(mask, places, 0)]
        points[~mask] = 0
        return points


class Batch(NamedTuple):
    """Some tasks: their numbers [T], x [T, K, ...], y [T, K, ...] if there are targets, a mask if any is padded."""

    tasks: Tensor
    x: Tensor
    y: Tensor | None
    mask: Tensor | None


def batches(x: Lists, y: Lists | None = None, classes: bool = False) -> Iterator[Batch]:
    """All tasks, those of about the same size together.

    classes: targets are class numbers, [T, K]; else numbers, [T, K, ...].
    """
    if y is not None and (x.lengths != y.lengths).any():
        row = int((x.lengths != y.lengths).argmax())
        raise CaviaError(
            f"a task must have as many targets as inputs, row {row} (counting from 0) has {y.lengths[row]} and "
            f"{x.lengths[row]}"
        )
    order = np.argsort(x.lengths, kind="stable")
    while len(order):
        longest = int(x.lengths[order[-1]])
        count = max(1, POINTS_AT_A_TIME // max(longest, 1))
        chosen, order = order[-count:], order[:-count]
        chosen = np.sort(chosen)
        mask = np.arange(longest) < x.lengths[chosen][:, None]
        targets = None
        if y is not None:
            targets = torch.from_numpy(y.padded(chosen, mask))
            targets = targets.long() if classes else targets.float()
            targets = targets[..., None] if targets.ndim == 2 and not classes else targets
        inputs = torch.from_numpy(x.padded(chosen, mask)).float()
        inputs = inputs[..., None] if inputs.ndim == 2 else inputs
        yield Batch(torch.from_numpy(chosen), inputs, targets, None if mask.all() else torch.from_numpy(mask))


def _lengths(column: Any) -> np.ndarray:
    from pyarrow import compute

    return compute.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
