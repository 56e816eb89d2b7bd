"""A service from the names of a model and a store."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cavia.learners.saving import load_with_extra
from cavia.serving.computing import Calls
from cavia.serving.limits import Limits
from cavia.serving.points import PointModel, Served
from cavia.serving.rows import RowModel
from cavia.serving.service import Service
from cavia.store.contexts import ContextStore
from cavia.tables.model import load_table_model
from cavia.tools.opening import model_file


class Opened(NamedTuple):
    """A service, and its store opened once more for those who only read."""

    service: Service
    reader: ContextStore


@contextmanager
def opened(model: Path, store: Any, limits: Limits, compiles: bool = True) -> Iterator[Opened]:
    """model: as for `model_file`; store: the name of a file, a URL, or None for contexts that end with the service."""
    file = model_file(model)
    learner, extra = load_with_extra(file)
    served: Served = RowModel(load_table_model(file)) if "table" in extra else PointModel(learner)
    with ExitStack() as stack:
        calls = Calls(served.learner, served.inputs, compiles)
        stack.callback(calls.close)
        if store is None:
            store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cavia-"))) / "contexts"
        version = served.learner.version  # nothing trains the learner meanwhile
        written, read = (stack.enter_context(ContextStore(store, version)) for _ in range(2))
        yield Opened(Service(served, calls, written, limits), read)
