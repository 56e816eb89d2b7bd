"""Adaptation over an iterator of batches, for more tasks than fit into memory."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cavia.errors import CaviaError, shown
from cavia.learners.adapted import Adapted

if TYPE_CHECKING:
    from cavia.learners.base import Learner


def each_adapted(
    learner: "Learner", batches: Iterator[Any], y: Any, mask: Any, steps: int | None, start: Any
) -> Iterator[Adapted]:
    """What `learner.adapt` returns for each batch (x, y) or (x, y, mask), on demand."""
    for name, value in (("y", y), ("mask", mask), ("start", start)):
        if value is not None:
            raise CaviaError(f"of an iterator of batches, {name} must be in the batches, (x, y) or (x, y, mask)")
    return _adapted(learner, batches, steps)


def _adapted(learner: "Learner", batches: Iterator[Any], steps: int | None) -> Iterator[Adapted]:
    for number, batch in enumerate(batches):
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise CaviaError(f"batch {number} (counting from 0) must be (x, y) or (x, y, mask), got {shown(batch)}")
        x, y, *rest = batch
        yield learner.adapt(x, y, rest[0] if rest else None, steps)
