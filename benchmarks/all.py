"""Where the speed stands, in one run: every part in a process of its own, one page, one JSON file, one plot.

    python benchmarks/all.py [--quick] [--out results/benchmarks] [--parts FOLDER]

Writes bench.md, bench.json and bench.png. --quick takes a few minutes: sine only, fewer rounds and sizes.
Parts that are measured by their own pages (simulator, TRPO, store) are run too, unless --quick. With --parts a run that
was broken off goes on: what was measured lies there, and is not measured again.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import growth
from bench_page import markdown
from cavia.tensor_file import read_json, write_atomically, write_json
from peers import missing
from peers.work import QUICK, WORK
from steps import machine

HERE = Path(__file__).parent
ROUNDS = 9  # of whatever is not a work with a number of its own
OWN_PAGES = (
    "sine.py",
    "completion.py",
    "fewshot.py",
    "fewshot_memory.py",
    "simulator.py",
    "trpo.py",
    "iteration.py",
    "store.py",
)


def part(folder: Path, script: str, *arguments: str) -> dict[str, Any]:
    """The JSON that one script writes, run in a new process; what it prints is shown."""
    path = folder / f"{Path(script).stem}-{crc32(' '.join(arguments).encode()):08x}.json"
    if not path.exists():
        _run(script, *arguments, "--json", str(path))
    return read_json(path)


def _run(script: str, *arguments: str) -> None:
    print(f"— {script} {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, str(HERE / script), *arguments], check=True)


@dataclass(frozen=True)
class Budget:
    """How much is measured."""

    works: Sequence[str]
    without: Sequence[str]  # entrants
    rounds: int | None  # of each part at most; None: as many as it needs
    seconds: float  # of each entrant in each round
    largest: int  # size of the growth curves
    cold_starts: bool


def measure(budget: Budget, folder: Path) -> dict[str, Any]:
    """All parts, one after another; the folder keeps what each has measured."""
    measured = partial(part, folder)
    seconds = ("--seconds", str(budget.seconds))
    rounds = ("--rounds", str(budget.rounds or ROUNDS))
    without = ("--without", *budget.without)
    starts = ("--compiled", "--work", *budget.works) if budget.cold_starts else ("--work",)

    def step(name: str) -> dict[str, Any]:
        most = WORK[name].rounds
        times = str(min(budget.rounds or most, most))
        return measured("steps.py", "--work", name, "--rounds", times, *seconds, *without)

    return {
        "date": date.today().isoformat(),
        "machine": machine(),
        "missing_peers": missing(),
        "steps": {name: step(name) for name in budget.works},
        "adapting": measured("adapting.py", *rounds, *seconds, *without),
        "growth": measured("growth.py", "--largest", str(budget.largest), *rounds, *seconds)["axes"],
        "startup": measured("startup.py", *rounds, *starts, *without),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few minutes: sine only")
    parser.add_argument("--rounds", type=int, default=None, help="at most; by default 3 if quick, else up to 25")
    parser.add_argument("--seconds", type=float, default=None, help="of each entrant in each round")
    parser.add_argument("--largest", type=int, default=None, help="no size of the growth curves beyond this one")
    parser.add_argument("--work", nargs="*", default=None, choices=list(WORK), help="by default all; sine if quick")
    parser.add_argument("--without", nargs="*", default=[], help="entrants to leave out")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--parts", type=Path, default=None, help="where a run that was broken off goes on")
    options = parser.parse_args()
    budget = Budget(
        works=options.work if options.work is not None else QUICK if options.quick else list(WORK),
        without=options.without,
        rounds=options.rounds or (3 if options.quick else None),
        seconds=options.seconds or (0.05 if options.quick else 0.2),
        largest=options.largest or (64 if options.quick else 4096),
        cold_starts=not options.quick,
    )
    with tempfile.TemporaryDirectory() if options.parts is None else nullcontext(options.parts) as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        result = measure(budget, Path(folder))
    result["quick"] = options.quick
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "bench.json", result)
    growth.draw(result["growth"], options.out / "bench.png")
    page = markdown(result)
    write_atomically(options.out / "bench.md", page.encode())
    print(page)
    if not options.quick:
        for script in OWN_PAGES:
            _run(script, "--out", str(options.out))


if __name__ == "__main__":
    main()
