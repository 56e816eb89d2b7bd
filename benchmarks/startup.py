"""Start-up: importing, the first step of each entrant in a new process, and `cavia run` to its first iteration.

    python benchmarks/startup.py [--rounds 5] [--work "sine, CAVIA"] [--json FILE]

Imports are timed in turns, in processes of their own, by the processor's clock. An entrant's first step
includes importing and compiling; compiled ones run with an empty compiler cache (cold) and once more with what that
left behind (warm).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from cavia.tensor_file import write_json
from interleaved import in_turns, milliseconds
from peers import COMPILED, entrants
from peers.work import WORK

HERE = Path(__file__).parent


def python(*arguments: str, **environment: str) -> str:
    """What a new process of this Python prints."""
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def processor_time_of_children() -> float:
    """Seconds that the processor has worked for processes that we started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def imports(rounds: int) -> dict[str, Any]:
    """`import cavia` against `import torch`: as it is, every name at its first use, and with all names at once."""
    actions: dict[str, tuple[Any, int]] = {
        "torch": (lambda: python("-c", "import torch"), 1),
        "cavia": (lambda: python("-c", "import cavia"), 1),
        "all of cavia": (lambda: python("-c", "import cavia", EAGER_IMPORT="1"), 1),  # lazy_loader's switch
    }
    times = in_turns(actions, rounds + 1, processor_time_of_children)
    times = {name: values[1:] for name, values in times.items()}  # the first round reads the files
    return {
        "milliseconds": {name: milliseconds(values) for name, values in times.items()},
        "cavia_over_torch": _over(times["cavia"], times["torch"]),
        "all_over_torch": _over(times["all of cavia"], times["torch"]),
    }


def _over(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """The ratio within each round: its median and the worst."""
    ratios = [one / max(other, 1e-9) for one, other in zip(ours, theirs, strict=True)]
    return {"median": round(median(ratios), 3), "worst": round(max(ratios), 3)}


def first_steps(work: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Entrant → seconds to the end of its first step, peak memory of its process and what the step itself raised."""
    by_entrant = {}
    for name in entrants(WORK[work]):
        if name in without:
            continue
        with tempfile.TemporaryDirectory() as cache:
            cold = alone(work, name, cache)
            by_entrant[name] = cold | ({"warm": alone(work, name, cache)} if name == COMPILED else {})
    return by_entrant


def alone(work: str, name: str, cache: str) -> dict[str, float]:
    """One entrant in a process of its own."""
    begin = time.perf_counter()
    printed = python(str(HERE / "alone.py"), work, name, TORCHINDUCTOR_CACHE_DIR=cache)
    return {"seconds_to_first_step": round(time.perf_counter() - begin, 2)} | json.loads(printed.splitlines()[-1])


def run_start(compiled: bool) -> dict[str, Any]:
    """Seconds from starting `cavia run table1` to the line that its first cell has done an iteration.

    The second of two starts is reported, for which graphs and files are in their caches.
    """
    length = ["--full"] if compiled else ["--quick", "--set", "iterations=9999"]  # one less than is compiled
    command = [sys.executable, "-m", "cavia", "run", "table1", *length, "--set", "contexts=5", "--jobs", "1"]
    seconds = 0.0
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            # Not beside the folders of others: a run takes over what its neighbours have trained.
            seconds = _seconds_to_first_iteration([*command, "--out", f"{folder}/table1"])
    return {"experiment": "table1", "compiled": compiled, "seconds": round(seconds, 2)}


def _seconds_to_first_iteration(command: list[str]) -> float:
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        printed = []
        for line in run.stdout or ():
            if "iteration" in line:
                seconds = time.perf_counter() - begin
                run.terminate()
                run.communicate()
                return seconds
            printed.append(line)
    raise SystemExit(f"{' '.join(command[1:])} ended before its first iteration:\n{''.join(printed)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", nargs="*", default=["sine, CAVIA"], choices=list(WORK))
    parser.add_argument("--without", nargs="*", default=[], help="entrants to leave out")
    parser.add_argument(
        "--compiled", action="store_true", help="start a compiled run, too: minutes if nothing is cached"
    )
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    result = {
        "imports": imports(options.rounds),
        "runs": [run_start(compiled) for compiled in ((False, True) if options.compiled else (False,))],
        "first_steps": {work: first_steps(work, tuple(options.without)) for work in options.work},
    }
    print(json.dumps(result, indent=1))
    if options.json:
        write_json(options.json, result)


if __name__ == "__main__":
    main()
