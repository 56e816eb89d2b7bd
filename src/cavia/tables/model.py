"""A learner for tables, trained, saved with its encoding, and used on new rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.learners.saving import load, save
from cavia.store.contexts import ContextStore
from cavia.tables.encoding import Encoding
from cavia.tables.reading import Table, column, names, read_table
from cavia.tables.tasks import grouped
from cavia.tensor_file import read_description

POINTS_AT_A_TIME = 2**16  # padded points in one batch of tasks, to bound memory


@dataclass(frozen=True)
class TableModel:
    """A learner and what the columns of its tables mean."""

    learner: Learner
    encoding: Encoding

    def save(self, path: str | PathLike[str]) -> None:
        """Write both to one file."""
        save(self.learner, path, {"table": self.encoding.as_json()})

    def adapt(self, source: Any, steps: int | None = None) -> tuple[list[str], Adapted, int]:
        """Every task of the table, adapted on all its rows: names, what adapted, rows left out.

        source: as for `read_table`. Rows without a target are left out; a task with no others is an error.
        """
        table, where = read_table(source), _where(source)
        owners = names(column(table, self.encoding.task, where), self.encoding.task)
        x = self.encoding.encode_inputs(table, where)
        y, known = self.encoding.encode_targets(table, where)
        groups = grouped(owners, known)
        if not groups:
            raise CaviaError(f"{where} has no rows to adapt on")
        empty = [name for name, rows in groups.items() if not len(rows)]
        if empty:
            raise CaviaError(
                f"{len(empty)} tasks in {where} have no row with a value in {self.encoding.target.name!r} to adapt on: "
                f"{', '.join(map(repr, empty[:5]))}"
            )
        parts: list[tuple[Tensor, Adapted]] = []
        for chosen, rows, mask in _padded(list(groups.values())):
            parts.append((chosen, self.learner.adapt(x[rows], y[rows], mask, steps)))
        back = torch.cat([chosen for chosen, _ in parts]).argsort()
        adapted = Adapted.cat([part for _, part in parts])[back]
        return list(groups), adapted, int((~known).sum())

    @torch.no_grad()
    def predict(self, source: Any, store: ContextStore, unknown: str = "refuse") -> tuple[Table, list[Any], int]:
        """The table, a prediction for each of its rows, and how many rows are of tasks without a context.

        store:   the contexts of tasks by name.
        unknown: "refuse" tasks that have no context, or predict them from the "start", before adaptation.
        """
        table, where = read_table(source), _where(source)
        owners = names(column(table, self.encoding.task, where), self.encoding.task)
        x = self.encoding.encode_inputs(table, where)
        groups = grouped(owners)
        strangers = [name for name in groups if name not in store]
        if strangers and unknown == "refuse":
            raise CaviaError(
                f"{len(strangers)} of {len(groups)} tasks in {where} have no context: "
                f"{', '.join(map(repr, strangers[:5]))}; adapt to them first, or predict them unadapted with "
                "--unknown start"
            )
        if not groups:
            return table, [], 0
        start = self.learner.adapt(x[:1, None], self.encoding.empty_targets(1), steps=0).context[0]
        context = start.repeat(len(groups), 1)  # [T, C]
        missing = set(strangers)
        known = {name: task for task, name in enumerate(groups) if name not in missing}
        if known:
            context[list(known.values())] = store.get(known).context
        predictions = torch.zeros(len(x), self.encoding.outputs)
        for chosen, rows, mask in _padded(list(groups.values())):
            prediction = self.learner.predict(x[rows], Adapted({CONTEXT: context[chosen]}))
            predictions[rows[mask]] = prediction[mask]
        return table, self.encoding.decode(predictions), sum(len(groups[name]) for name in strangers)


def load_table_model(path: str | PathLike[str]) -> TableModel:
    """What `TableModel.save` wrote."""
    learner, extra = load(path).eval(), read_description(Path(path)).get("extra", {})
    if "table" not in extra:
        raise CaviaError(f"{path} was not trained on a table; `cavia fit table.csv --task … --target …` does that")
    return TableModel(learner, Encoding.from_json(extra["table"]))


def _padded(groups: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Tasks of about the same size together: their numbers [T], their rows [T, N] and a mask [T, N]."""
    by_size = sorted(range(len(groups)), key=lambda task: len(groups[task]))
    while by_size:
        longest = len(groups[by_size[-1]])
        count = max(1, POINTS_AT_A_TIME // max(longest, 1))
        chosen, by_size = by_size[-count:], by_size[:-count]
        rows = torch.zeros(len(chosen), longest, dtype=torch.long)
        mask = torch.zeros(len(chosen), longest, dtype=torch.bool)
        for i, task in enumerate(chosen):
            rows[i, : len(groups[task])] = groups[task]
            mask[i, : len(groups[task])] = True
        yield torch.tensor(chosen), rows, mask


def _where(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else "the table"
