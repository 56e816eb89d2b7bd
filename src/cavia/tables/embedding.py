"""`cavia embed`: the contexts of a table's tasks in the plane, coloured by a column."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.evaluation.probes import neighbour_r2, plane
from cavia.tables.cells import as_number, is_missing
from cavia.tables.columns import NO_VALUE
from cavia.tables.model import TableModel
from cavia.tables.reading import Table, read_table
from cavia.tables.tasks import grouped
from cavia.tables.values import labels, numbers
from cavia.tables.writing import csv_bytes
from cavia.tensor_file import write_atomically


def embed(model: TableModel, source: Any, colour: str | None, out: Path, steps: int | None = None) -> str:
    """Adapt to every task, plot the contexts, write the PNG and a CSV next to it; returns what to print.

    colour: a column of the table. A task has the mean of its numbers, or the most frequent of its categories.
    """
    table = read_table(source)
    of_rows = None if colour is None else _values(table, colour)
    tasks, adapted, _ = model.adapt(table, steps)
    if len(tasks) < 3:
        raise CaviaError(f"a plane of contexts needs at least 3 tasks, {table.where} has {len(tasks)}")
    contexts = adapted.context[:, : getattr(model.learner.model, "effects", None)]  # [T, C], not how sure they are
    points = plane(contexts)
    if points.shape[1] < 2:
        points = torch.cat([points, torch.zeros(len(points), 1)], 1)
    groups = grouped(table.names(model.encoding.task))
    per_task = None if of_rows is None else [_of_task(of_rows[groups[name].numpy()]) for name in tasks]
    write_atomically(out, _picture(points, per_task, colour))
    header = [model.encoding.task, "first", "second", *([] if colour is None else [colour])]
    write_atomically(out.with_suffix(".csv"), _listing(header, tasks, points, per_task))
    return _text(contexts, points, per_task, colour)


def _values(table: Table, name: str) -> np.ndarray:
    """A column as numbers if it holds nothing else, otherwise as text."""
    values = table.column(name)
    if all(is_missing(value) or as_number(value) is not None for value in values.tolist()):
        return numbers(table, name)
    return np.array([NO_VALUE if label is None else label for label in labels(values)], dtype=object)


def _of_task(values: np.ndarray) -> float | str:
    """The mean of a task's numbers, or the most frequent of its categories."""
    if values.dtype.kind == "f":
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
    return Counter(values.tolist()).most_common(1)[0][0]


def _text(contexts: Tensor, points: Tensor, per_task: list[Any] | None, colour: str | None) -> str:
    """How much of the contexts the plane shows, and whether neighbours are alike in the column."""
    total = (contexts - contexts.mean(0)).square().sum().clamp(min=1e-30)
    shares = (points.square().sum(0) / total).tolist()
    lines = [
        f"{len(contexts)} tasks, {contexts.shape[1]} context parameters; the plane shows "
        f"{100 * shares[0]:.0f} % + {100 * shares[1]:.0f} % of the variance"
    ]
    if per_task is not None and all(isinstance(value, float) for value in per_task):
        r2 = neighbour_r2(contexts, torch.tensor(per_task, dtype=contexts.dtype))
        lines.append(f"R² of {colour} from the five nearest contexts: {r2:.2f}")
    elif per_task is not None:
        number = {value: i for i, value in enumerate(dict.fromkeys(map(str, per_task)))}
        same = torch.tensor([number[str(value)] for value in per_task])
        nearest = torch.cdist(contexts, contexts).fill_diagonal_(float("inf")).argmin(1)
        share = (same[nearest] == same).float().mean().item()
        lines.append(f"the nearest context has the same {colour} in {100 * share:.0f} % of the tasks")
    return "\n".join(lines)


def _picture(points: Tensor, per_task: list[Any] | None, colour: str | None) -> bytes:
    from matplotlib.figure import Figure  # no window system, no global state

    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.add_subplot()
    first, second = points.T.tolist()
    if per_task is None:
        axes.scatter(first, second, s=14)
    elif all(isinstance(value, float) for value in per_task):
        drawn = axes.scatter(first, second, c=per_task, s=14, cmap="viridis")
        figure.colorbar(drawn, label=colour)
    else:
        for value in sorted(set(map(str, per_task)))[:20]:
            chosen = [i for i, other in enumerate(per_task) if str(other) == value]
            axes.scatter([first[i] for i in chosen], [second[i] for i in chosen], s=14, label=value)
        axes.legend(title=colour, frameon=False)
    axes.set_xlabel("first principal component of the context")
    axes.set_ylabel("second")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


def _listing(header: list[str], tasks: list[str], points: Tensor, per_task: list[Any] | None) -> bytes:
    places = [[f"{value:.6g}" for value in point[:2]] for point in points.tolist()]
    colours = [[] for _ in tasks] if per_task is None else [[value] for value in per_task]
    return csv_bytes(header, ([name, *at, *of] for name, at, of in zip(tasks, places, colours, strict=True)))
