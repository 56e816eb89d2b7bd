"""python -m attacks.kills [--kills 100] [--seed 0] [--only NAME]: kill -9 at random moments, go on, compare.

Each target works in a process of its own, forked from this one, which has imported everything and computed nothing.
It is killed at a random moment and begun again in the same folder until it finishes; then another is begun, until as
many kills were made as asked for. What a process has acknowledged must be there after its death, and what it finally
leaves must be, to the bit and to the file name, what an undisturbed one leaves. Exit code 1 if it is not.
"""

import argparse
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from attacks.kill_targets import TARGETS, Acknowledged, Target

WARM = ("cavia.paper.running.cells", "cavia.paper.report.page", "cavia.tables.fitting", "torch._dynamo")
ALONE = 0.2  # how often the process is killed without those that it started

HEAD = """# Killed by signal 9 at random moments

`python -m attacks.kills --kills {options.kills} --seed {options.seed}`. Each run was killed and begun again until it
ended by itself. *Acknowledged*: iterations, cells or contexts that a process had said were safe before it was killed.
*Lost*: of those, missing afterwards. *Different*: runs whose files in the end were not those of an undisturbed run, to
the bit and to the name. *Failed*: runs that could not go on.
"""


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
