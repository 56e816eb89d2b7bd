"""`check_tasks`."""

import json
from typing import Any

import torch
from torch import Tensor

from cavia.conformance.promise import keeps, require_equal
from cavia.errors import require_at_least
from cavia.kinds import checked
from cavia.tasks.batch import SPLITS, TaskBatch, TaskFamily
from cavia.tasks.points import shape, tensors

TASKS = 3


@checked
def check_tasks(family: TaskFamily, support: int | None = None, query: int | None = None) -> None:
    """Check a family; raise a `CaviaError` that names the promise of `TaskFamily` that it breaks.

    support, query: points per task to ask for, by default the family's own numbers, else 10.

    >>> check_tasks(Sine())
    """
    for what, count in (("support", support), ("query", query)):
        if count is not None:
            require_at_least(what, count, 1)
    counts = (family.support or 10) if support is None else support, (family.query or 10) if query is None else query
    json.dumps(family.settings)  # or it says which is none
    for split in SPLITS:
        _check_split(family, split, *counts)
    first, again, other = (_sample(family, seed, "train", *counts) for seed in (0, 0, 1))
    for name, value in _tensors(first).items():
        promise = f"the same generator state gives the same tasks ({name})"
        require_equal(family, promise, _tensors(again)[name], value)
    different = any(not torch.equal(value, _tensors(other)[name]) for name, value in _tensors(first).items())
    keeps(family, "another generator state gives other tasks", different)


def _check_split(family: TaskFamily, split: str, support: int, query: int) -> None:
    own = torch.get_rng_state()
    batch: Any = _sample(family, 0, split, support, query)
    untouched = torch.equal(own, torch.get_rng_state())
    keeps(family, "random numbers come from the generator that it is given, not from PyTorch's own", untouched)
    kind = type(batch).__name__
    keeps(family, "`sample` returns a cavia.TaskBatch", isinstance(batch, TaskBatch), f"it returned a {kind}")
    keeps(family, f"as many tasks as were asked for, in {split!r}", len(batch) == TASKS, f"{len(batch)} for {TASKS}")
    for what, x, y, mask, count in (
        ("support", batch.support_x, batch.support_y, batch.support_mask, support),
        ("query", batch.query_x, batch.query_y, batch.query_mask, query),
    ):
        fits = y.shape[1] == count or (mask is not None and y.shape[1] >= 1)
        keeps(family, f"{count} {what} points for each task, or a mask", fits, f"got {shape(x)}")
        for value in (*tensors(x), y):
            shown = value if mask is None else value[mask]
            finite = not value.is_floating_point() or bool(shown.isfinite().all())
            keeps(family, f"{what} points are finite unless they are padding", finite)
    for name, value in batch.attributes.items():
        keeps(family, f"attribute {name!r} is a tensor [T, ...]", len(value) == len(batch), f"got {shape(value)}")


def _sample(family: TaskFamily, seed: int, split: str, support: int, query: int) -> TaskBatch:
    return family.sample(TASKS, support, query, torch.Generator().manual_seed(seed), split)


def _tensors(batch: TaskBatch) -> dict[str, Tensor]:
    """All tensors of the batch, by name."""
    named: dict[str, Tensor] = {}
    for name, value in vars(batch).items():
        if name != "attributes" and value is not None:
            named |= {f"{name} {i}".removesuffix(" 0"): one for i, one in enumerate(tensors(value))}
    return named
