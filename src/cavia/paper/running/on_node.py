"""A cell on a node of a cluster: trains in a folder of the node; its files are copied to safety."""

import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from cavia.cluster.nodes import require_same_versions, this_node
from cavia.cluster.storage import Storage
from cavia.errors import Busy, CaviaError
from cavia.paper.experiment import Cell
from cavia.paper.running.local import received
from cavia.paper.running.orders import Order
from cavia.paper.running.processes import start_process
from cavia.paper.running.work import work
from cavia.paper.running.workers import Message
from cavia.training.progress import Progress

# In the order of copying: metrics may be ahead of a checkpoint, and the result comes last.
FILES = (
    "config.json",
    "metrics.jsonl",
    "before-cooldown.safetensors",
    "checkpoint.safetensors",
    "model.cavia",
    "result.json",
)
MARKS = ("checkpoint.safetensors", "result.json")  # files are copied when one of these is new


class News(NamedTuple):
    """What happened since the last call.

    files:    name → content of new files, below the folder of all experiments.
    exitcode: of the process; None while it runs.
    """

    messages: list[Message]
    files: dict[str, bytes]
    exitcode: int | None


@dataclass(frozen=True)
class Task:
    """The work for a node.

    files:    existing files of the cell, and of the same cell of other experiments: name → content. Empty if they are
              in the storage.
    versions: of the driver.
    storage:  where files are kept; None: they are sent back to the driver with the news.
    within:   the folder of all experiments in the storage.
    word:     a token in the storage, to check that the node sees the same one.
    """

    order: Order
    cell: Cell
    threads: int
    versions: Mapping[str, str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    storage: str | None = None
    within: str = ""
    word: str = ""


def folders_of(cell: Cell) -> str:
    """The pattern of the folders that a cell may resume from, or adopt."""
    return f"*/cells/{cell.name}"


class CellOnNode:
    """Runs a cell in a process of the node. No call raises: errors are reported in the news."""

    process: Any = None
    messages: Any = None

    def begin(self, task: Task) -> News:
        """Start the cell, if this node is able to."""
        try:
            require_same_versions(task.versions)
            files = task.files
            self.storage = None if task.storage is None else Storage(f"{task.storage}/{task.within}")
            if task.storage and self.storage:
                Storage(task.storage).require_signed(task.word)
                files = self.storage.find(folders_of(task.cell), FILES)
            self.scratch = Storage(tempfile.mkdtemp(prefix="cavia-"))
            self.scratch.write(files)
        except (CaviaError, OSError) as error:
            return News([self._placed(error)], {}, 2)
        order = replace(task.order, out=Path(self.scratch.address, task.order.out.name))
        self.folder = order.folder(task.cell)
        self._seen = self._stamps()
        self.process, self.messages = start_process(work, order, task.cell, task.threads)
        return News([f"on node {this_node()}"], {}, None)

    def news(self, seconds: float) -> News:
        """Wait up to `seconds` or until the process ends, and report what happened."""
        until = time.monotonic() + seconds
        messages: list[Message] = []
        while (ended := not self.process.is_alive()) is False and time.monotonic() < until:
            self.process.join(0.1)
            messages += received(self.messages)
        messages += received(self.messages)
        last = [one for one in messages if isinstance(one, Progress)][-1:]
        said = [one for one in messages if not isinstance(one, Progress)]
        messages = [*(self._placed(one) if isinstance(one, CaviaError) else one for one in said), *last]
        try:
            files = self._new_files()
            if self.storage and files:
                self.storage.write(files)
                files = {}
        except CaviaError as error:
            self.process.terminate()
            return News([self._placed(error)], {}, 2)
        if ended:
            shutil.rmtree(self.scratch.address, ignore_errors=True)
        return News(messages, files, self.process.exitcode if ended else None)

    def stop(self) -> None:
        """Ask the cell to write a checkpoint and exit."""
        if self.process:
            self.process.terminate()

    def _new_files(self) -> dict[str, bytes]:
        """All files that changed since the last copy, if a checkpoint or the result is among them."""
        stamps = self._stamps()
        if all(stamps.get(name) == self._seen.get(name) for name in MARKS):
            return {}
        # Read the checkpoint before the metrics, which are written before it.
        names = [name for name in reversed(FILES) if name in stamps and stamps[name] != self._seen.get(name)]
        self._seen = stamps
        prefix = self.folder.relative_to(self.scratch.address).as_posix()
        read = {name: self.scratch.read(f"{prefix}/{name}") for name in names}
        return {f"{prefix}/{name}": content for name in reversed(names) if (content := read[name]) is not None}

    def _stamps(self) -> dict[str, tuple[int, int]]:
        """File → time of its last change, and its size."""
        stamps = {}
        for name in FILES:
            with suppress(FileNotFoundError):  # the cell may delete one at any moment
                stat = (self.folder / name).stat()
                stamps[name] = (stat.st_mtime_ns, stat.st_size)
        return stamps

    def _placed(self, error: Exception) -> CaviaError:
        return type(error)(error) if isinstance(error, Busy) else CaviaError(f"on node {this_node()}: {error}")
