"""Many meta-steps as one loop inside a compiled graph. Import it late: it loads the compiler."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop_op

from cavia.compiler.compiling import alike, tensors_of
from cavia.tasks.batch import TaskBatch

Tensors: TypeAlias = tuple[Tensor, ...]


def over_batches(
    step: Callable[[Tensors, Tensors, Tensor, TaskBatch], tuple[Tensors, Tensor]],
    state: Tensors,
    fixed: Tensors,
    numbers: Tensor,
    block: TaskBatch,
    window: Tensor,
) -> tuple[Tensors, Tensor]:
    """A loop over the batches of a block, for a tracer: the last state, and each batch's loss, [M].

    step:    state, fixed, the batch's own row of numbers, and the batch → the next state, and the loss.
    numbers: [M, S], a row for each of the M batches.
    block:   M·T tasks, T of each batch.
    window:  [2], the first batch to take, and the one after the last. Losses of others are 0.
    """
    count = len(numbers)
    packed = _Packed([numbers, *(part.unflatten(0, (count, -1)) for part in tensors_of(block) if part is not None)])
    losses = state[0].new_zeros(count)
    start, stop = window[:1], window[1:]

    def goes_on(index: Tensor, losses: Tensor, *rest: Tensor) -> Tensor:
        return (index < rest[-1]).view(())

    def body(index: Tensor, losses: Tensor, *rest: Tensor) -> Tensors:
        rows, moved, tables, fixed = _split(rest[:-1], len(first), len(state), len(first))
        row, *parts = packed.apart(rows)
        moved, loss = torch.func.functionalize(step)(moved, fixed, row, alike(block, parts))
        following = index + 1
        # A copy of the next batch. To read batches by index where they are used would find the place for each number.
        rows = tuple(table.index_select(0, following.clamp(max=count - 1)).squeeze(0) for table in tables)
        return following, losses.index_put((index,), loss.view(1)), *rows, *moved

    first = tuple(table.index_select(0, start).squeeze(0) for table in packed.tables)
    carried = (start.clone(), losses, *first, *(value.clone() for value in state))
    given = (*packed.tables, *fixed, stop)
    _, losses, *rest = while_loop_op(goes_on, body, carried, given)  # type: ignore[arg-type]  # typed as of one tensor
    return tuple(rest[len(first) :]), losses


class _Packed:
    """Tensors [M, ...] as one table [M, L] for each type of number, so that a row has all of one batch."""

    def __init__(self, parts: Sequence[Tensor]):
        self.shapes = [part.shape[1:] for part in parts]
        self.types = [part.dtype for part in parts]
        self.tables = tuple(
            torch.cat([part.flatten(1) for part in parts if part.dtype == kind], 1)
            for kind in dict.fromkeys(self.types)
        )

    def apart(self, rows: Tensors) -> list[Tensor]:
        """The tensors [...] of one batch from its row of each table."""
        sizes = {
            kind: [shape.numel() for shape, own in zip(self.shapes, self.types, strict=True) if own == kind]
            for kind in dict.fromkeys(self.types)
        }
        pieces = {kind: iter(row.split(sizes[kind])) for kind, row in zip(sizes, rows, strict=True)}
        return [next(pieces[kind]).view(shape) for kind, shape in zip(self.types, self.shapes, strict=True)]


def _split(tensors: Tensors, *sizes: int) -> list[Tensors]:
    """The tensors in groups of these sizes, and the rest."""
    groups = []
    for size in sizes:
        groups.append(tensors[:size])
        tensors = tensors[size:]
    return [*groups, tensors]
