"""A user's own data as tasks: arrays, tables, anything that can be listed."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_one_of, shown
from cavia.kinds import checked
from cavia.machine import require_memory
from cavia.tables.deciding import settled_types
from cavia.tables.encoding import Encoding, fit_encoding
from cavia.tables.reading import Table, read_table
from cavia.tasks.batch import SPLITS, TaskBatch, TaskFamily, shape
from cavia.tasks.splits import split_names

LEAST = 2  # points of a task: one to adapt on, one to judge by
MOST_QUERY = 1000  # query points of a task, unless said otherwise: more are drawn from, not cut
MOST_ROUNDS = 1000  # of tasks that come again and again: more are drawn in one call
SHARES = (0.7, 0.15, 0.15)


class Tasks(TaskFamily):
    """Tasks from your own data, of whatever sizes: padded and masked, never cut.

    tasks:     one (x, y) per task, x [n, ...] and y [n, ...], arrays or tensors: a list, any iterable, or a mapping
               name → (x, y). Numbers y [n] become [n, 1]; whole numbers y [n] are class labels and stay.
    splits:    shares of the tasks for "train", "val" and "test", or a mapping split → names of its tasks.
    support:   points that a task adapts on; a task with fewer keeps one for the query and adapts on the rest.
    query:     points to score, by default all others (at most a random thousand).
    order:     "random": support points are redrawn each time; "ordered": they are the first ones.
    too_small: "refuse" tasks with fewer than 2 points, or "drop" them; `dropped` names them.
    seed:      which tasks are in which split.

    >>> family = Tasks([(torch.randn(n, 3), torch.randn(n)) for n in (5, 9, 30, 12)], support=4)
    >>> batch = family.sample(tasks=2, support=4, query=29, generator=torch.Generator().manual_seed(0))
    >>> batch.support_x.shape, batch.query_y.shape
    (torch.Size([2, 4, 3]), torch.Size([2, 29, 1]))
    """

    support: int
    query: int
    encoding: Encoding | None = None  # of a table
    table: Table | None = None

    def __init__(
        self,
        tasks: Iterable[tuple[Any, Any]] | Mapping[Any, tuple[Any, Any]],
        *,
        splits: Sequence[float] | Mapping[str, Sequence[Any]] = SHARES,
        support: int = 10,
        query: int | None = None,
        order: str = "random",
        too_small: str = "refuse",
        seed: int = 0,
    ):
        _check_choices(order, too_small)
        self.support = require_at_least("support", support, 1)
        if isinstance(tasks, Tensor | np.ndarray):
            raise CaviaError(f"tasks must be pairs (x, y), got {shown(tasks)}; for instance Tasks(list(zip(x, y)))")
        try:
            pairs = list(tasks.items()) if isinstance(tasks, Mapping) else list(enumerate(tasks))
        except Exception as error:  # a tensor of one number says that it can be listed, and cannot
            raise CaviaError(f"tasks must be pairs (x, y), and cannot be listed: {shown(tasks)} ({error})") from error
        _check_names([name for name, _ in pairs])
        points = {str(name): _points(str(name), pair) for name, pair in pairs}
        small = {name: len(x) for name, (x, _) in points.items() if len(x) < LEAST}
        if small and too_small == "refuse":
            raise CaviaError(
                f"{len(small)} of {len(points)} tasks have fewer than {LEAST} points, one to adapt on and one to judge "
                f"by: {_listed(small)}; leave them out with too_small='drop'"
            )
        self.dropped = tuple(small)
        points = {name: pair for name, pair in points.items() if name not in small}
        if not points:
            raise CaviaError(f"there are no tasks with at least {LEAST} points")
        _check_alike(points)
        self.names = tuple(points)
        self.x = torch.cat([x for x, _ in points.values()])  # [rows, ...], task after task
        self.y = torch.cat([y for _, y in points.values()])
        self.sizes = torch.tensor([len(x) for x, _ in points.values()])
        self.starts = self.sizes.cumsum(0) - self.sizes
        longest = int(self.sizes.max())
        self.query = min(longest - 1, MOST_QUERY) if query is None else require_at_least("query", query, 1)
        self.order, self.seed = order, seed
        number = {name: i for i, name in enumerate(self.names)}
        self.splits = split_names(self.names, splits, seed, self.dropped)
        self.members = {split: torch.tensor([number[n] for n in chosen]) for split, chosen in self.splits.items()}

    @classmethod
    @checked
    def from_table(
        cls,
        table: Any,
        task: str,
        target: str | Sequence[str],
        *,
        inputs: str | Sequence[str] | None = None,
        number: str | Sequence[str] = (),
        category: str | Sequence[str] = (),
        date: str | Sequence[str] = (),
        problem: str | None = None,
        splits: Sequence[float] | Mapping[str, Sequence[Any]] = SHARES,
        seed: int = 0,
        **options: Any,
    ) -> "Tasks":
        """Tasks from a table with one row per point: a .csv or .parquet file, a pandas or pyarrow table, a mapping.

        task:    the column that names a row's task.
        target:  the column to predict: numbers, or classes if it holds text, or only 0 and 1. Of several, all numbers.
        inputs:  the columns to predict it from, by default all others.
        number, category, date: columns to read as this type, whatever their cells hold.
        problem: "classification" or "regression", to override the target's type.
        options: support, query, order and too_small, as for `Tasks`.
        Numbers are standardised and categories one-hot encoded, by what the training tasks have; dates become
        calendar features (`encoding` has all). Rows without a target are left out.

        >>> table = {"user": ["a", "a", "b", "b", "c", "c"], "age": [31, 32, 50, 51, 18, 19], "y": [1.0, 2, 3, 4, 5, 6]}
        >>> family = Tasks.from_table(table, task="user", target="y", support=1)
        >>> family.x.shape, family.names
        (torch.Size([6, 1]), ('a', 'b', 'c'))
        """
        rows = read_table(table)
        if not rows.rows:
            raise CaviaError(f"{rows.where} has no rows")
        settled = settled_types(rows, number, category, date, problem, target)
        owners = rows.names(task)
        unique = tuple(dict.fromkeys(owners))
        divided = split_names(unique, splits, seed)
        training = set(divided["train"])
        in_training = np.array([name in training for name in owners], dtype=bool)
        encoding = fit_encoding(rows, task, target, inputs, settled, in_training)
        x = encoding.encode_inputs(rows)
        y, known = encoding.encode_targets(rows)
        groups = grouped(owners, known)
        family = cls(
            {name: (x[groups[name]], y[groups[name]]) for name in unique}, splits=divided, seed=seed, **options
        )
        family.encoding, family.table = encoding, rows
        return family

    @classmethod
    def reopen(cls, settings: Mapping[str, Any], root: Path) -> "Tasks":
        raise CaviaError("the run was trained on tasks of your own, which it does not hold; score it by cavia.evaluate")

    @property
    def settings(self) -> dict[str, Any]:
        """What config.json says about the data: enough to refuse to resume with other data."""
        digest = hashlib.sha256()
        for tensor in (self.x, self.y, self.sizes, *self.members.values()):
            digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
        counts = {split: len(chosen) for split, chosen in self.splits.items()}
        return {"tasks": counts, "points": len(self.x), "order": self.order, "sha256": digest.hexdigest()}

    @checked
    def sample(
        self, tasks: int, support: int, query: int, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """`tasks` tasks of the split, each once before any comes twice; their number in `names` as attribute "task".

        Points [T, support or query, ...], padded with zeros and masked where a task has fewer.
        """
        require_at_least("tasks", tasks, 1)
        require_at_least("support", support, 1)
        require_at_least("query", query, 1)
        require_one_of("split", split, SPLITS)
        members = self.members[split]
        if not len(members):
            raise CaviaError(
                f"no task is in the split {split!r} (of {len(self.names)} tasks); give it a larger share in splits, or "
                "fit without validation: cavia.Validation(tasks=0)"
            )
        width = self.x[0].numel() + self.y[0].numel()
        require_memory(4 * tasks * (support + query) * width, f"a batch with {tasks=}, {support=}, {query=}")
        rounds = -(-tasks // len(members))
        if rounds <= MOST_ROUNDS:
            drawn = torch.cat([torch.randperm(len(members), generator=generator) for _ in range(rounds)])
        else:
            drawn = torch.rand(rounds, len(members), generator=generator).argsort(1).flatten()
        chosen = members[drawn[:tasks]]
        sizes = self.sizes[chosen]  # [T]
        places = torch.arange(int(sizes.max())).expand(tasks, -1)
        if self.order == "random":  # sorting random keys shuffles; padding gets the largest keys and stays behind
            keys = torch.rand(places.shape, generator=generator).masked_fill(places >= sizes[:, None], 2.0)
            places = keys.argsort(1)
        known = (sizes - 1).clamp(max=support)
        support_part = self._take(chosen, places, torch.zeros_like(known), known, support)
        query_part = self._take(chosen, places, known, (sizes - known).clamp(max=query), query)
        return TaskBatch(
            *support_part[:2], *query_part[:2], support_part[2], query_part[2], attributes={"task": chosen}
        )

    def _take(
        self, chosen: Tensor, places: Tensor, start: Tensor, count: Tensor, width: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """`count` points of each task from place `start` on, each [T]: x and y [T, width, ...], mask or None."""
        steps = torch.arange(width)
        valid = steps < count[:, None]  # [T, width]
        which = places.gather(1, (start[:, None] + steps).clamp(max=places.shape[1] - 1))
        rows = torch.where(valid, self.starts[chosen][:, None] + which, 0)
        x, y = (
            values[rows].masked_fill_(~valid.view(*valid.shape, *(1,) * (values.ndim - 1)), 0)
            for values in (self.x, self.y)
        )
        return x, y, None if bool(valid.all()) else valid


def grouped(owners: Sequence[str], known: Tensor | None = None) -> dict[str, Tensor]:
    """Task → the numbers of its rows, in their order; of rows that count, if `known` [rows] says which."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(owners):
        own = rows.setdefault(name, [])
        if known is None or known[row]:
            own.append(row)
    return {name: torch.tensor(own, dtype=torch.long) for name, own in rows.items()}


def _points(name: str, pair: Any) -> tuple[Tensor, Tensor]:
    """One task's x [n, ...] and y [n, ...] as tensors."""
    try:
        x, y = pair
    except (TypeError, ValueError):
        raise CaviaError(f"tasks[{name!r}] must be a pair (x, y), got {shown(pair)}") from None
    x, y = _tensor(name, x), _tensor(name, y)
    if x.ndim == 1:
        x = x[:, None]
    if y.ndim == 1 and y.is_floating_point():
        y = y[:, None]
    if len(x) != len(y):
        raise CaviaError(f"task {name!r} has {len(x)} inputs {shape(x)} but {len(y)} targets {shape(y)}")
    return _finite(name, x), _finite(name, y)


def _tensor(name: str, values: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values))
    except (TypeError, ValueError) as error:
        raise CaviaError(f"task {name!r} must hold arrays of numbers ({error})") from None
    if tensor.ndim == 0:
        raise CaviaError(f"task {name!r} must hold arrays with one entry per point, got a single number")
    if tensor.is_complex():
        raise CaviaError(f"task {name!r} must hold real numbers, got {tensor.dtype}")
    return tensor


def _finite(name: str, values: Tensor) -> Tensor:
    """values [n, ...] in float32 if they are not whole numbers; an error if one is not finite there."""
    if not values.is_floating_point():
        return values
    rounded = values.float()
    wrong = (~rounded.isfinite()).flatten(1).any(1).nonzero()
    if len(wrong):
        point = int(wrong[0])
        bad = values[point][~rounded[point].isfinite()].flatten()[0].item()
        raise CaviaError(
            f"task {name!r} holds a number that is not finite in float32: {bad:g} at point {point}; at most "
            f"{torch.finfo(torch.float32).max:.1e}; fix it, or leave the point out"
        )
    return rounded


def _check_names(names: Sequence[Any]) -> None:
    """Raise if two names of tasks are the same text, as 1 and "1" are."""
    seen: dict[str, Any] = {}
    for name in names:
        if str(name) in seen:
            raise CaviaError(f"two tasks have the name {str(name)!r}: {seen[str(name)]!r} and {name!r}")
        seen[str(name)] = name


def _check_alike(points: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Raise unless all tasks have points of one shape and type."""
    first, (x, y) = next(iter(points.items()))
    for name, (other_x, other_y) in points.items():
        for what, a, b in (("inputs", x, other_x), ("targets", y, other_y)):
            if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
                raise CaviaError(
                    f"all tasks need points of one shape and type: {what} of {first!r} are {shape(a)} {a.dtype}, of "
                    f"{name!r} {shape(b)} {b.dtype}"
                )


def _check_choices(order: str, too_small: str) -> None:
    for what, value, known in (
        ("order", order, ("random", "ordered")),
        ("too_small", too_small, ("refuse", "drop")),
    ):
        require_one_of(what, value, known)


def _listed(small: Mapping[str, int]) -> str:
    some = ", ".join(f"{name!r} ({count})" for name, count in list(small.items())[:5])
    return some + (f" and {len(small) - 5} more" if len(small) > 5 else "")
