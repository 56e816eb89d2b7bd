"""What a trained model does with a chunk of whole tasks: rows of a table, or lists of points."""

import tempfile
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch

from cavia.errors import CaviaError, shown
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.learners.compiled import compiled
from cavia.learners.gradient import GradientLearner
from cavia.learners.saving import load_with_extra
from cavia.store.contexts import ContextStore
from cavia.streaming.points import Lists, batches
from cavia.tables.model import KnownTasks, TableModel, load_table_model
from cavia.tables.reading import read_table
from cavia.tables.writing import PREDICTION, prediction_columns

TASK, X, Y = "task", "x", "y"  # the columns of a learner that was not trained on a table


class Streamed(ABC):
    """A model over chunks.

    task:    the column that names the task.
    columns: those that adaptation reads.
    """

    task: str
    columns: list[str]
    learner: Learner

    @property
    def version(self) -> str:
        return self.learner.version

    @abstractmethod
    def adapt(self, table: Any, steps: int | None) -> tuple[list[Any], Adapted, int]:
        """The tasks of a pyarrow table: names, what adapted, rows left out because they have no target."""

    @abstractmethod
    def predict(self, table: Any, contexts: "Known", unknown: str, interval: float | None = None) -> Any:
        """The table with predictions, and with an interval of that level around each."""


class StreamedTable(Streamed):
    """A model by `cavia fit`: rows with columns of its own."""

    def __init__(self, model: TableModel):
        self.learner, self.encoding = model.learner, model.encoding
        self.model, self.quick = model, TableModel(_quick(model.learner), model.encoding)
        self.task = model.encoding.task
        self.columns = [self.task, *model.encoding.target_names, *(one.name for one in model.encoding.inputs)]

    def adapt(self, table: Any, steps: int | None) -> tuple[list[Any], Adapted, int]:
        return self.quick.adapt(read_table(table), steps)

    def predict(self, table: Any, contexts: "Known", unknown: str, interval: float | None = None) -> Any:
        rows = read_table(table)
        known = KnownTasks()
        names = contexts.among(list(dict.fromkeys(rows.names(self.task))), unknown)
        if names:
            known.put(names, contexts.store.get(names))
        predictions: Any
        if interval is None:
            _, predictions, _ = self.quick.predict(rows, known, unknown)
        else:
            _, predictions, _ = self.model.predict_intervals(rows, known, interval, unknown)
        for name, values in prediction_columns(predictions, table.column_names, "the table").items():
            table = table.append_column(name, [values])
        return table


class StreamedLists(Streamed):
    """Any other learner: one row a task, with its points in lists."""

    columns = [TASK, X, Y]  # noqa: RUF012  # never changed
    task = TASK

    def __init__(self, learner: Learner):
        self.learner, self.quick = learner, _quick(learner)

    def adapt(self, table: Any, steps: int | None) -> tuple[list[Any], Adapted, int]:
        names = table.column(TASK).to_pylist()
        padded = list(batches(Lists.of(table, X), Lists.of(table, Y), self.learner.loss == "cross_entropy"))
        adapted = self.quick.adapt(((one.x, one.y, one.mask) for one in padded), steps=steps)
        back = torch.cat([one.tasks for one in padded]).argsort()
        whole = Adapted.cat(list(adapted))[back]
        if not whole.finite.all():
            name = names[int((~whole.finite).nonzero()[0])]
            raise CaviaError(f"the context of task {shown(name)} is not finite: its points are too far from training")
        return names, whole, 0

    def predict(self, table: Any, contexts: "Known", unknown: str, interval: float | None = None) -> Any:
        import pyarrow as pa

        if interval is not None:
            raise CaviaError("intervals are for models by `cavia fit`; leave out --interval")
        names = table.column(TASK).to_pylist()
        known = set(contexts.among(names, unknown))
        rows = {name: i for i, name in enumerate(names) if name in known}
        padded = list(batches(Lists.of(table, X)))
        context = torch.zeros(len(names), self.learner.model.context)
        if len(rows) < len(names):
            context = self._start(len(names))
        if rows:
            context[list(rows.values())] = contexts.store.get(rows).context
        predictions: list[Any] = [None] * len(names)
        for one in padded:
            said = self.quick.predict(one.x, Adapted.of({CONTEXT: context[one.tasks]}))
            counts = torch.full((len(said),), said.shape[1]) if one.mask is None else one.mask.sum(1)
            for task, values, count in zip(one.tasks.tolist(), said, counts.tolist(), strict=True):
                predictions[task] = values[:count].tolist()
        return table.append_column(PREDICTION, pa.array(predictions))

    def _start(self, tasks: int) -> torch.Tensor:
        """The contexts of tasks before adaptation, [T, C]."""
        if not isinstance(self.learner, GradientLearner):
            raise CaviaError(f"{type(self.learner).__name__} has no start to predict tasks without a context from")
        return self.learner.start(tasks).context.detach().clone()


class Known:
    """The contexts of a store, read many at a time."""

    def __init__(self, store: ContextStore):
        self.store = store

    def among(self, names: list[Any], unknown: str) -> list[Any]:
        """Those that have a context; with "refuse" an error if one has none."""
        try:
            self.store.get(names)
            return names
        except CaviaError:
            known = [name for name in names if name in self.store]
            if len(known) == len(names):
                raise
            if unknown == "refuse":
                missing = next(name for name in names if name not in set(known))
                raise CaviaError(
                    f"{len(names) - len(known)} of {len(names)} tasks have no context: {shown(missing)}, …; adapt to "
                    "them first, or predict them unadapted with unknown='start'"
                ) from None
            return known


def open_model(content: bytes, name: str) -> Streamed:
    """The model in a file of that content. name: of the file, for messages."""
    with tempfile.TemporaryDirectory(prefix="cavia-") as folder:
        path = Path(folder, "model.cavia")
        path.write_bytes(content)
        try:
            learner, extra = load_with_extra(path)
            return StreamedTable(load_table_model(path)) if "table" in extra else StreamedLists(learner)
        except CaviaError as error:
            raise CaviaError(str(error).replace(str(path), name)) from error


def _quick(learner: Learner) -> Learner:
    """The learner, compiled where it can be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is not compiled is no news here
        return compiled(learner)
