"""python -m attacks.kills [--kills 100] [--seed 0] [--only NAME]: kill -9 at random moments, go on, compare.

Each target works in a process of its own, forked from this one, which has imported everything and computed nothing.
It is killed at a random moment and begun again in the same folder until it finishes; then another is begun, until as
many kills were made as asked for. What a process has acknowledged must be there after its death, and what it finally
leaves must be, to the bit and to the file name, what an undisturbed one leaves. Exit code 1 if it is not.
"""

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import cavia
from cavia.cli import main as command_line
from cavia.paper.running import processes
from cavia.tensor_file import read_description, read_json
from cavia.training import run

WARM = ("cavia.paper.running.cells", "cavia.paper.report.page", "cavia.tables.fitting", "torch._dynamo")
TIMED = {"seconds", "finished", "commits", "curve", "machine"}  # what two runs of the same may differ in
BATCHES, SIZE = 400, 20  # of the store's writer
ALONE = 0.2  # how often the process is killed without those that it started
PLAN = """
[[run]]
experiment = "table1"
set = "quick"
settings = { contexts = [2], iterations = 300, hidden = [8], validation_tasks = 20, test_tasks = 20 }
"""

HEAD = """# Killed by signal 9 at random moments

`python -m attacks.kills --kills {options.kills} --seed {options.seed}`. Each run was killed and begun again until it
ended by itself. *Acknowledged*: iterations, cells or contexts that a process had said were safe before it was killed.
*Lost*: of those, missing afterwards. *Different*: runs whose files in the end were not those of an undisturbed run, to
the bit and to the name. *Failed*: runs that could not go on.
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
    left: what is left in the end, as values that can be compared.
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


@dataclass
class Tally:
    """What came of a target's kills."""

    name: str
    kills: int = 0
    runs: int = 0
    acknowledged: int = 0
    problems: dict[str, list[str]] = field(default_factory=lambda: {"lost": [], "different": [], "failed": []})

    def row(self) -> list[str]:
        counts = [self.kills, self.runs, self.acknowledged, *(len(listed) for listed in self.problems.values())]
        return [self.name, *map(str, counts)]


def attack(target: Target, kills: int, seed: int) -> Tally:
    """Kill the target so many times, and see what is left."""
    tally, chance = Tally(target.name), random.Random(f"{seed} {target.name}")
    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        folder = Path(place)
        log, right, seconds = folder / "log", *_undisturbed(target, folder)
        while tally.kills < kills:
            (folder / "work").mkdir()
            _one_run(target, folder / "work", log, chance, kills, seconds, tally)
            _compare(target.left(folder / "work") if not tally.problems["failed"] else right, right, tally)
            shutil.rmtree(folder / "work")
            if any(tally.problems.values()):
                break
    return tally


def _undisturbed(target: Target, folder: Path) -> tuple[Any, float]:
    """What the target leaves when nobody kills it, and how long it takes."""
    (folder / "work").mkdir()
    begin, said = time.monotonic(), Acknowledged()
    if os.waitpid(_started(target, folder / "work", said, folder / "log"), 0)[1]:
        raise SystemExit(f"{target.name} fails without being killed:\n{_tail(folder / 'log')}")
    seconds = time.monotonic() - begin
    said.close()
    right = target.left(folder / "work")
    shutil.rmtree(folder / "work")
    return right, seconds


def _one_run(
    target: Target, folder: Path, log: Path, chance: random.Random, kills: int, seconds: float, tally: Tally
) -> None:
    """Begin and kill until it is finished; after the last kill it is left alone."""
    said = Acknowledged()
    while True:
        process = _started(target, folder, said, log)
        patience = chance.uniform(0, seconds) if tally.kills < kills else 60 + 20 * seconds
        code = _wait(process, patience)
        if code is None and tally.kills < kills:
            _kill(process, alone=chance.random() < ALONE)
            tally.kills += 1
        elif code != 0:
            tally.problems["failed"].append(f"ended with {code}: {_tail(log)}")
            if code is None:
                _kill(process, alone=False)
        said.collect()
        tally.problems["lost"] += target.lost(folder, said)
        if code is not None or any(tally.problems.values()):
            break
    tally.runs += 1
    tally.acknowledged += said.count
    said.close()


def _kill(process: int, alone: bool) -> None:
    """End it by signal 9, with what it has started unless `alone`. One that has just begun has no group yet."""
    try:
        (os.kill if alone else os.killpg)(process, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def _started(target: Target, folder: Path, said: Acknowledged, log: Path) -> int:
    """The process that works, in a group of its own with all that it starts."""
    if process := os.fork():
        return process
    code = 1
    try:
        os.setsid()
        output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        torch.set_num_threads(1)
        target.work(folder, said)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(process: int, seconds: float) -> int | None:
    """The exit code, or None if it is still at work after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        left = end - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(left, 0.002))


def _compare(actual: Any, right: Any, tally: Tally) -> None:
    if actual == right:
        return
    if isinstance(actual, dict):
        names = [name for name in sorted(actual.keys() | right.keys()) if actual.get(name) != right.get(name)]
        words = [f"{name} ({'left behind' if name not in right else 'differs'})" for name in names]
        tally.problems["different"].append(", ".join(words))
    else:
        tally.problems["different"].append(str(actual)[-200:])


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-600:] if log.exists() else ""


def attacks(kills: int, seed: int, only: str = "") -> Iterator[Tally]:
    """All targets, or those whose name has `only` in it."""
    for name in WARM:
        importlib.import_module(name)
    for target in TARGETS:
        if only in target.name:
            yield attack(target, kills, seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attacks.kills")
    parser.add_argument("--kills", type=int, default=100, help="of each target")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", default="", help="only targets whose name has this in it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(HEAD.format(options=options))
    print("| target | kills | runs | acknowledged | lost | different | failed |")
    print("|---|---|---|---|---|---|---|", flush=True)
    wrong = False
    for tally in attacks(options.kills, options.seed, options.only):
        print(f"| {' | '.join(tally.row())} |", flush=True)
        for kind, problems in tally.problems.items():
            for each in problems:
                wrong = True
                print(f"{kind}: {each}", file=sys.stderr)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
