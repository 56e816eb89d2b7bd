"""`check_tasks`."""

from typing import Any

import torch
from torch import Tensor

from cavia.conformance.promise import keeps, require_equal
from cavia.tasks.batch import SPLITS, TaskBatch, TaskFamily, shape

TASKS = 3


def check_tasks(family: TaskFamily, support: int | None = None, query: int | None = None) -> None:
    """Raise a `CaviaError` that names the promise of `TaskFamily` that the family breaks; else return.

    support, query: points per task to ask for, by default the family's own numbers, else 10.

    >>> check_tasks(Sine())
    """
    keeps(family, "it has a method `sample`", callable(getattr(family, "sample", None)))
    counts = tuple(
        given if given is not None else getattr(family, name, None) or 10
        for name, given in (("support", support), ("query", query))
    )
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
        fits = x.shape[1] == count or (mask is not None and x.shape[1] >= 1)
        keeps(family, f"{count} {what} points for each task, or a mask", fits, f"got {shape(x)}")
        for value in (x, y):
            shown = value if mask is None else value[mask]
            finite = not value.is_floating_point() or bool(shown.isfinite().all())
            keeps(family, f"{what} points are finite where they are no padding", finite)
    for name, value in batch.attributes.items():
        keeps(family, f"attribute {name!r} is a tensor [T, ...]", len(value) == len(batch), f"got {shape(value)}")


def _sample(family: TaskFamily, seed: int, split: str, support: int, query: int) -> TaskBatch:
    return family.sample(TASKS, support, query, torch.Generator().manual_seed(seed), split)


def _tensors(batch: TaskBatch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
