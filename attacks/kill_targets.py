"""What is killed: training, fits of tables, experiments and stores, with what each must leave behind."""

import json
import os
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.cli import main as command_line
from cavia.paper.running import processes
from cavia.tensor_file import read_description, read_json
from cavia.training import run

TIMED = {"seconds", "finished", "commits", "curve", "machine"}  # what two runs of the same may differ in
BATCHES, SIZE = 400, 20  # of the store's writer
PLAN = """
[[run]]
experiment = "table1"
set = "quick"
settings = { contexts = [2], iterations = 300, hidden = [8], validation_tasks = 20, test_tasks = 20 }
"""


class Acknowledged:
    """What the processes of one run say that they have done, through a pipe that outlives them."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._rest = b""
        self.highest: dict[str, int] = {}
        self.count = 0

    def say(self, what: object, number: int) -> None:
        """In the process at work: this is done, up to that number."""
        os.write(self._write, f"{what}\t{number}\n".encode())

    def collect(self) -> None:
        """Take note of what was said so far."""
        try:
            while chunk := os.read(self._read, 2**16):
                self._rest += chunk
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            what, number = line.decode().split("\t")
            self.highest[what] = int(number)
            self.count += 1

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@dataclass(frozen=True)
class Target:
    """What is killed.

    work:  does the work in the folder, or goes on with it; called in a process of its own.
    lost:  what was acknowledged, but is not there.
    left:  what is left in the end, as values that can be compared.
    """

    name: str
    work: Callable[[Path, Acknowledged], None]
    lost: Callable[[Path, Acknowledged], list[str]]
    left: Callable[[Path], Any]


def fit_sine(folder: Path, said: Acknowledged) -> None:
    _acknowledge_checkpoints(said)
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), "mse")
    cavia.fit(
        learner, cavia.Sine(), 400, outer=cavia.Adam(compile=False, cooldown=0.3), tasks_per_batch=4, progress=False,
        validation=cavia.Validation(20, every=20), run_dir=cavia.RunFolder(folder / "run", events=False),
    )  # fmt: skip


def fit_table(folder: Path, said: Acknowledged) -> None:
    _acknowledge_checkpoints(said)
    table = folder / "table.csv"
    if not table.exists():
        chance = random.Random(0)
        rows = [(shop, chance.random()) for shop in range(20) for _ in range(12)]
        text = "".join(f"shop {shop},{x:.4f},{shop * x:.4f}\n" for shop, x in rows)
        table.write_text("shop,x,y\n" + text)
    _run("fit", table, "--task", "shop", "--target", "y", "--iterations", 600, "--hidden", 8, "--tasks-per-batch", 4,
         "--support", 5, "--out", folder / "model.cavia")  # fmt: skip


def reproduce(folder: Path, said: Acknowledged) -> None:
    _acknowledge_checkpoints(said)
    (folder / "plan.toml").write_text(PLAN)
    # Cells are forked from here, where all is imported, instead of from a server that would be.
    vars(processes).update(start_server=lambda compiles=False: True, get_context=lambda _: get_context("fork"))
    _run("reproduce", "--plan", folder / "plan.toml", "--runs", folder / "runs", "--jobs", 2)


def write_store(folder: Path, said: Acknowledged) -> None:
    with cavia.ContextStore(folder / "store", "version") as store:
        for batch in range(len(store) // SIZE, BATCHES):
            store.put(_ids(batch), torch.full((SIZE, 50), float(batch)))
            said.say("batch", batch)


def _ids(batch: int) -> list[str]:
    return [f"{batch} {place}" for place in range(SIZE)]


def _run(*arguments: object) -> None:
    code = command_line([str(argument) for argument in arguments])
    if code:
        raise SystemExit(code)


def _acknowledge_checkpoints(said: Acknowledged) -> None:
    run.CHECKPOINT_AFTER = 0.05  # seconds, so that there are many
    save = cavia.RunFolder.save

    def saved(self: Any, state: Any, groups: Any) -> None:
        save(self, state, groups)
        said.say(self.checkpoint, state.iteration)

    cavia.RunFolder.save = saved  # type: ignore[method-assign]


def lost_checkpoints(folder: Path, said: Acknowledged) -> list[str]:
    """Checkpoints that are older than one that was written; a folder that a finished fit has deleted needs none."""
    lost = []
    for name, iteration in said.highest.items():
        path = Path(name)
        if path.exists():
            if read_description(path)["iteration"] < iteration:
                lost.append(f"iteration {iteration} of {path}")
        elif not (folder / "model.cavia").exists():
            lost.append(f"{path}, which was at iteration {iteration}")
    return lost


def lost_batches(folder: Path, said: Acknowledged) -> list[str]:
    if not said.highest:
        return []
    with cavia.ContextStore(folder / "store") as store:
        whole = range(said.highest["batch"] + 1)
        return [f"batch {batch}" for batch in whole if not all(store.get(_ids(batch)).context[:, 0] == batch)]


def files(folder: Path) -> dict[str, Any]:
    """The content of all files by name, without what is different each time."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".html", ".svg"))
    return {str(path.relative_to(folder)): _content(path) for path in paths}


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return _timeless(read_json(path))
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".safetensors":  # holds the seconds
        return read_description(path)["iteration"]
    return path.read_bytes()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(one) for name, one in value.items() if name not in TIMED}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def stored(folder: Path) -> Any:
    """All contexts, whether SQLite finds its file in order, and the names of all files."""
    with cavia.ContextStore(folder / "store") as store:
        rows = {
            one: numbers[0] for ids, some in store.batches() for one, numbers in zip(ids, some.tolist(), strict=True)
        }
    connection = sqlite3.connect(folder / "store")
    order = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return [rows, order, sorted(path.name for path in folder.iterdir())]


TARGETS = (
    Target("cavia.fit", fit_sine, lost_checkpoints, files),
    Target("cavia fit", fit_table, lost_checkpoints, files),
    Target("cavia reproduce", reproduce, lost_checkpoints, files),
    Target("ContextStore.put", write_store, lost_batches, stored),
)
