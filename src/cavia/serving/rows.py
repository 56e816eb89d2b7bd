"""The model of a table, whose requests are rows: {"rows": [{"user_id": "ann", "age": 31, "y": 1.5}, …]}."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, shown
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.serving.limits import Limits, checked_id
from cavia.serving.points import Task
from cavia.tables.model import TableModel
from cavia.tables.posterior import Posterior
from cavia.tables.reading import Table, read_table


class Asked(NamedTuple):
    """Rows to be predicted."""

    table: Table
    rows: dict[str, Tensor]  # task → the numbers of its rows
    level: float | None  # of intervals


class RowModel:
    """A model by `cavia fit`. Columns are decoded by the same code as for the commands."""

    def __init__(self, model: TableModel):
        self.model, self.learner, self.encoding = model, model.learner, model.encoding
        self.inputs = model.encoding.width

    def support(self, body: dict[str, Any], limits: Limits) -> tuple[list[Task], dict[str, Any]]:
        table = self._table(body, limits)
        x, y, groups, left_out = self.model.support(table)
        limits.check("tasks", len(groups))
        tasks = [Task(checked_id(name), x[rows].numpy(), y[rows].numpy()) for name, rows in groups.items()]
        return tasks, {"rows_without_target": left_out, **self._notes(table)}

    def queries(self, body: dict[str, Any], limits: Limits) -> tuple[list[Task], Asked]:
        level = body.get("interval")
        if level is not None:
            self.model.factors(level)
        table = self._table(body, limits)
        x, groups = self.model.queries(table)
        limits.check("tasks", len(groups))
        return [Task(checked_id(name), x[rows].numpy()) for name, rows in groups.items()], Asked(table, groups, level)

    def answer(
        self, asked: Asked, tasks: Sequence[Task], outputs: Sequence[Tensor], contexts: Tensor
    ) -> dict[str, Any]:
        """Every row's prediction in the unit of its target, in the order of the rows."""
        whole = torch.empty(asked.table.rows, self.encoding.outputs)
        for task, output in zip(tasks, outputs, strict=True):
            whole[asked.rows[task.id]] = output.float()
        decoded = self.encoding.decode(whole)
        rows = [
            {"prediction": dict(zip(decoded, values, strict=True))} for values in zip(*decoded.values(), strict=True)
        ]
        for name, values in self._more(asked, tasks, whole, contexts).items():
            for row, value in zip(rows, values, strict=True):
                row[name] = value
        return {"rows": rows, **self._notes(asked.table)}

    def _notes(self, table: Table) -> dict[str, Any]:
        """What of the rows is unlike training: columns, and in how many rows."""
        return {"unknown_categories": self.encoding.unknown(table), "missing_values": self.encoding.filled(table)}

    def _more(self, asked: Asked, tasks: Sequence[Task], outputs: Tensor, contexts: Tensor) -> dict[str, list[Any]]:
        """What each row gets besides its prediction, from outputs [rows, outputs]: probabilities, an interval."""
        if self.encoding.is_classification:
            levels = self.encoding.target.levels
            shares = outputs.double().softmax(1).tolist()
            return {"probabilities": [dict(zip(levels, row, strict=True)) for row in shares]}
        if asked.level is None or not isinstance(self.learner, Posterior):
            return {}
        deviations = torch.empty_like(outputs)
        for task, context in zip(tasks, contexts, strict=True):
            adapted = Adapted({CONTEXT: context[None]})
            deviations[asked.rows[task.id]] = self.learner.deviation(torch.from_numpy(task.x)[None], adapted)[0]
        bands = self.model.bands(outputs, deviations, asked.level).items()
        each = zip(*(zip(band.low, band.high, strict=True) for _, band in bands), strict=True)
        return {"interval": [{name: ends for (name, _), ends in zip(bands, row, strict=True)} for row in each]}

    def about(self) -> dict[str, Any]:
        encoding = self.encoding
        columns = {one.name: {"type": one.kind, **_levels(one)} for one in encoding.inputs}
        targets = {one.name: {"type": one.kind, **_levels(one)} for one in encoding.targets}
        has_intervals = self.model.intervals is not None
        return {
            "takes": "rows",
            "task": encoding.task,
            "columns": columns,
            "targets": targets,
            "intervals": has_intervals,
        }

    def _table(self, body: dict[str, Any], limits: Limits) -> Table:
        if "tasks" in body:
            raise CaviaError('this model was trained on a table: send "rows", not "tasks"')
        rows = body.get("rows")
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise CaviaError(f'"rows" must be a list of objects column → value, at least 1, got {shown(rows)}')
        limits.check("points", len(rows))
        names = rows[0].keys()
        for number, row in enumerate(rows):
            if row.keys() != names:
                name = min(row.keys() ^ names)
                one, other = (number, 0) if name in row else (0, number)
                raise CaviaError(
                    f"all rows must have the same columns: row {one} has {shown(name)}, row {other} has not; "
                    "write null where a value is missing"
                )
            for name, value in row.items():
                if isinstance(value, dict | list):
                    raise CaviaError(
                        f"row {number}, column {shown(name)}: must be a number, a text or null, got {shown(value)}"
                    )
        return read_table({name: _column([row[name] for row in rows]) for name in names})


def _column(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _levels(column: Any) -> dict[str, Any]:
    return {"values": list(column.levels)} if column.levels else {}
