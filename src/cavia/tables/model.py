"""A learner for tables, trained, saved with its encoding, and used on new rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_one_of
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.learners.saving import load_with_extra, save
from cavia.tables.encoding import Encoding
from cavia.tables.intervals import Band, Intervals, require_level
from cavia.tables.posterior import Posterior
from cavia.tables.reading import Table, read_table
from cavia.tables.tasks import grouped

POINTS_AT_A_TIME = 2**16  # padded points in one batch of tasks, to bound memory


class Contexts(Protocol):
    """The contexts of tasks by name: a `cavia.ContextStore`, or `KnownTasks` in memory."""

    def __contains__(self, name: object) -> bool: ...

    def get(self, ids: Iterable[str]) -> Adapted: ...


class KnownTasks(dict[str, Tensor]):
    """Contexts in memory, name → [C]."""

    def put(self, names: Sequence[str], adapted: Adapted) -> None:
        """Keep the contexts of T tasks, replacing those that these names had."""
        self.update(zip(names, adapted.context, strict=True))

    def get(self, ids: Iterable[str]) -> Adapted:  # type: ignore[override]  # of several, as in a store
        """These T tasks, in this order."""
        return Adapted.of({CONTEXT: torch.stack([self[name] for name in ids])})


@dataclass(frozen=True)
class TableModel:
    """A learner and what the columns of its tables mean."""

    learner: Learner
    encoding: Encoding
    intervals: Intervals | None = None  # for numbers, if the learner tells deviations

    def save(self, path: str | PathLike[str], extra: Mapping[str, Any] | None = None) -> None:
        """Write both to one file, with more JSON values by name if there are any."""
        intervals = {} if self.intervals is None else {"intervals": self.intervals.as_json()}
        save(self.learner, path, {"table": self.encoding.as_json(), **intervals, **(extra or {})})

    def adapt(
        self, source: Any, steps: int | None = None, start: Contexts | None = None
    ) -> tuple[list[str], Adapted, int]:
        """Every task of the table, adapted on all its rows: names, what adapted, rows left out.

        source: as for `read_table`. Rows without a target are left out; a task with no others is an error.
        start:  the contexts to continue from, one for each task; by default the learner's own start.
        """
        x, y, groups, left_out = self.support(read_table(source))
        parts: list[tuple[Tensor, Adapted]] = []
        begin = None if start is None else start.get(groups)
        for chosen, rows, mask in _padded(list(groups.values())):
            own = None if begin is None else begin[chosen]
            parts.append((chosen, self.learner.adapt(x[rows], y[rows], mask, steps, own)))
        back = torch.cat([chosen for chosen, _ in parts]).argsort()
        adapted = Adapted.cat([part for _, part in parts])[back]
        wrong = (~adapted.context.isfinite().all(1)).nonzero()
        if len(wrong):
            name = list(groups)[int(wrong[0])]
            raise CaviaError(
                f"the context of task {name!r} is not finite: its rows are too far from training, fix them"
            )
        return list(groups), adapted, left_out

    def support(self, table: Table) -> tuple[Tensor, Tensor, dict[str, Tensor], int]:
        """What to adapt on: x [rows, width], y [rows, ...], task → the numbers of its rows, and rows left out."""
        owners = table.names(self.encoding.task)
        x = self.encoding.encode_inputs(table)
        y, known = self.encoding.encode_targets(table)
        groups = grouped(owners, known)
        if not groups:
            raise CaviaError(f"{table.where} has no rows to adapt on")
        empty = [name for name, rows in groups.items() if not len(rows)]
        if empty:
            raise CaviaError(
                f"{len(empty)} tasks in {table.where} have no row with a value in "
                f"{', '.join(map(repr, self.encoding.target_names))} to adapt on: {', '.join(map(repr, empty[:5]))}"
            )
        return x, y, groups, int((~known).sum())

    def queries(self, table: Table) -> tuple[Tensor, dict[str, Tensor]]:
        """What to predict: x [rows, width], and task → the numbers of its rows."""
        return self.encoding.encode_inputs(table), grouped(table.names(self.encoding.task))

    def predict(self, source: Any, store: Contexts, unknown: str = "refuse") -> tuple[Table, dict[str, list[Any]], int]:
        """The table, target → a prediction for each row, and how many rows are of tasks without a context."""
        table = read_table(source)
        outputs, strangers = self.outputs(table, store, unknown)
        return table, self.encoding.decode(outputs), strangers

    def predict_intervals(
        self, source: Any, store: Contexts, level: float, unknown: str = "refuse"
    ) -> tuple[Table, dict[str, Band], int]:
        """As `predict`, with an interval of this level around each prediction of a number."""
        self.factors(level)
        table = read_table(source)
        outputs, strangers, deviations = self._answers(table, store, unknown, with_deviation=True)
        return table, self.bands(outputs, deviations, level), strangers

    def bands(self, outputs: Tensor, deviations: Tensor, level: float) -> dict[str, Band]:
        """Target → predictions with intervals of this level, from outputs and their deviations, [rows, outputs]."""
        bands, factors = {}, self.factors(level)
        for place, (target, values) in enumerate(self.encoding.decode(outputs).items()):
            unit = self.encoding.targets[place].scale  # type: ignore[union-attr]  # a number, or there are no factors
            half = (factors[place] * unit * deviations[:, place].double()).tolist()
            low, high = ([a + sign * b for a, b in zip(values, half, strict=True)] for sign in (-1, 1))
            bands[target] = Band(values, low, high)
        return bands

    def factors(self, level: float) -> list[float]:
        """Deviations of an interval, for each target; an error if the model has no intervals of this level."""
        require_level(level)
        if self.encoding.is_classification:
            raise CaviaError("intervals are for numbers; a class has probabilities instead (predict_proba)")
        if self.intervals is None:
            raise CaviaError("the model has no intervals: method='posterior' makes them; fit it again")
        return self.intervals.factors(level)

    def outputs(self, table: Table, store: Contexts, unknown: str = "refuse") -> tuple[Tensor, int]:
        """What the network says of each row, [rows, outputs], and how many rows are of tasks without a context.

        store:   the contexts of tasks by name.
        unknown: "refuse" tasks that have no context, or predict them from the "start", before adaptation.
        """
        return self._answers(table, store, unknown)[:2]

    @torch.no_grad()
    def _answers(
        self, table: Table, store: Contexts, unknown: str, with_deviation: bool = False
    ) -> tuple[Tensor, int, Tensor]:
        """As `outputs`, and the deviation of each, [rows, outputs]; zeros if it is not asked for."""
        require_one_of("unknown", unknown, ("refuse", "start"))
        x, groups = self.queries(table)
        strangers = [name for name in groups if name not in store]
        if strangers and unknown == "refuse":
            raise CaviaError(
                f"{len(strangers)} of {len(groups)} tasks in {table.where} have no context: "
                f"{', '.join(map(repr, strangers[:5]))}; adapt to them first, or predict them unadapted with "
                "unknown='start'"
            )
        predictions = torch.zeros(len(x), self.encoding.outputs)
        deviations = torch.zeros_like(predictions)
        if not groups:
            return predictions, 0, deviations
        start = self.learner.adapt(x[:1, None], self.encoding.empty_targets(1), steps=0).context[0]
        context = start.repeat(len(groups), 1)  # [T, C]
        missing = set(strangers)
        known = {name: task for task, name in enumerate(groups) if name not in missing}
        if known:
            context[list(known.values())] = store.get(known).context
        for chosen, rows, mask in _padded(list(groups.values())):
            adapted = Adapted({CONTEXT: context[chosen]})
            predictions[rows[mask]] = self.learner.predict(x[rows], adapted)[mask]
            if with_deviation and isinstance(self.learner, Posterior):
                deviations[rows[mask]] = self.learner.deviation(x[rows], adapted)[mask]
        wrong = (~predictions.isfinite().all(1)).nonzero()
        if len(wrong):
            raise CaviaError(
                f"{table.place(int(wrong[0]))}: the prediction is not finite: its inputs are too far from training"
            )
        return predictions, sum(len(groups[name]) for name in strangers), deviations


def load_table_model(path: str | PathLike[str]) -> TableModel:
    """What `TableModel.save` wrote."""
    return load_table_with_extra(path)[0]


def load_table_with_extra(path: str | PathLike[str]) -> tuple[TableModel, dict[str, Any]]:
    """What `TableModel.save` wrote, and all JSON values by name."""
    learner, extra = load_with_extra(path)
    if "table" not in extra:
        raise CaviaError(f"{path} was not trained on a table; `cavia fit table.csv --task … --target …` does that")
    try:
        encoding = Encoding.from_json(extra["table"])
        _check_fit(learner, encoding)
        stored = extra.get("intervals")
        intervals = None if stored is None else Intervals.from_json(stored, len(encoding.targets))
    except CaviaError as error:
        raise CaviaError(f"{path} does not describe a table: {error}") from error
    return TableModel(learner, encoding, intervals), extra


def _check_fit(learner: Learner, encoding: Encoding) -> None:
    """Raise if the network does not fit these columns."""
    for name, has, wanted in (
        ("inputs", getattr(learner.model, "inputs", None), encoding.width),
        ("outputs", getattr(learner.model, "outputs", None), encoding.outputs),
        ("loss", learner.loss, encoding.loss),
    ):
        if has != wanted:
            raise CaviaError(f"the {name} of its network are {has!r}, its columns need {wanted!r}")


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
