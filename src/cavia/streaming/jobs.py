"""What is done with each part of a data set: contexts into a store, or predictions into a file.

Doing a part twice has the same effect as doing it once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from cavia.cluster.storage import Storage
from cavia.errors import CaviaError
from cavia.store.contexts import ContextStore
from cavia.streaming.chunks import chunks
from cavia.streaming.files import Part
from cavia.streaming.models import Known, Streamed, open_model


class Done(NamedTuple):
    """How much was done: tasks adapted to or predicted, their rows, and rows left out because they have no target."""

    tasks: int = 0
    rows: int = 0
    left_out: int = 0

    def plus(self, other: "Done") -> "Done":
        return Done(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Job:
    """Work on every part, the same on this machine and on a node.

    model:    the content of its file, `name`.
    store:    a file or a URL.
    out:      where predictions go, a folder or an address; None: contexts go into the store.
    unknown:  what is predicted for tasks without a context.
    interval: a level, for intervals around predictions.
    """

    model: bytes
    name: str
    store: str
    out: str | None = None
    steps: int | None = None
    unknown: str = "refuse"
    interval: float | None = None
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        about = (sha256(self.model).hexdigest(), self.store, self.out, self.steps, self.unknown, self.interval)
        object.__setattr__(self, "digest", sha256(repr(about).encode()).hexdigest())

    def do(self, part: Part) -> Done:
        """Do one part."""
        try:
            model, store = _opened(self)
            return self._adapt(model, store, part) if self.out is None else self._predict(model, store, part)
        except CaviaError as error:
            raise type(error)(f"{part}: {error}") from error

    def _adapt(self, model: Streamed, store: ContextStore, part: Part) -> Done:
        done = Done()
        for table in chunks(part, model.task, model.columns):
            names, adapted, left_out = model.adapt(table, self.steps)
            store.put(names, adapted)
            done = done.plus(Done(len(names), len(table), left_out))
        return done

    def _predict(self, model: Streamed, store: ContextStore, part: Part) -> Done:
        from pyarrow import parquet

        done, content, writer = Done(), BytesIO(), None
        for table in chunks(part, model.task):
            predictions = model.predict(table, Known(store), self.unknown, self.interval)
            writer = parquet.ParquetWriter(content, predictions.schema) if writer is None else writer
            writer.write_table(predictions)
            done = done.plus(Done(len(predictions.column(model.task).unique()), len(predictions)))
        if writer is not None and self.out is not None:
            writer.close()
            Storage(self.out).write({f"part-{part.number:06}.parquet": content.getvalue()})
        return done


_OPEN: dict[str, tuple[Streamed, ContextStore]] = {}  # the last job's model and store: a process does many of its parts


def _opened(job: Job) -> tuple[Streamed, ContextStore]:
    if job.digest not in _OPEN:
        close_job()
        model = open_model(job.model, job.name)
        _OPEN[job.digest] = model, ContextStore(job.store, model.version)
    return _OPEN[job.digest]


def close_job() -> None:
    """Close what the last job has open."""
    for _, store in _OPEN.values():
        store.close()
    _OPEN.clear()


@contextmanager
def opened_job(job: Job) -> Iterator[tuple[Streamed, ContextStore]]:
    """The job's model and its store, which is made if it is to be filled; closed at the end."""
    if job.out is not None and "://" not in job.store and not Path(job.store).is_file():
        raise CaviaError(f"there is no store {job.store}; `cavia adapt MODEL DATA --store …` makes one")
    try:
        yield _opened(job)
    finally:
        close_job()


def as_text(done: Done) -> str:
    left = f" ({done.left_out:,} rows without a target were left out)" if done.left_out else ""
    return f"{done.tasks:,} tasks, {done.rows:,} rows{left}"


def content_of(path: Path) -> bytes:
    """The content of the model's file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CaviaError(f"cannot read {path}: {error.strerror or error}") from error
