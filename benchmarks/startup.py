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
from pathlib import Path
from typing import Any

from cavia.tensor_file import write_json
from interleaved import in_turns, milliseconds, spread
from peers import COMPILED, entrants
from peers.work import WORK

HERE = Path(__file__).parent


def python(*arguments: str, **environment: str) -> str:
    """What a new process of this Python prints."""
    command = [sys.executable, "-W", "ignore", *arguments]
    found = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{found.stderr}")
    return found.stdout


def processor_time_of_children() -> float:
    """Seconds that the processor has worked for processes that we started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def imports(rounds: int) -> dict[str, Any]:
    """`import cavia` against `import torch`."""
    actions = {name: (lambda name=name: python("-c", f"import {name}"), 1) for name in ("torch", "cavia")}
    times = in_turns(actions, rounds + 1, processor_time_of_children)
    times = {name: values[1:] for name, values in times.items()}  # the first round reads the files
    ratio = spread([torch / max(cavia, 1e-9) for torch, cavia in zip(times["torch"], times["cavia"], strict=True)], 3)
    return {
        "milliseconds": {name: milliseconds(values) for name, values in times.items()},
        "cavia_over_torch": {name: round(1 / max(ratio[name], 1e-9), 3) for name in ("median", "worst")},
    }


def first_steps(work: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Entrant → seconds to the end of its first step, peak memory of its process and what the step itself raised."""
    found = {}
    for name in entrants(WORK[work]):
        if name in without:
            continue
        with tempfile.TemporaryDirectory() as cache:
            cold = alone(work, name, cache)
            found[name] = cold | ({"warm": alone(work, name, cache)} if name == COMPILED else {})
    return found


def alone(work: str, name: str, cache: str) -> dict[str, float]:
    """One entrant in a process of its own."""
    begin = time.perf_counter()
    printed = python(str(HERE / "alone.py"), work, name, TORCHINDUCTOR_CACHE_DIR=cache)
    return {"seconds_to_first_step": round(time.perf_counter() - begin, 2)} | json.loads(printed.splitlines()[-1])


def run_start(compiled: bool) -> dict[str, Any]:
    """Seconds from starting `cavia run table1` to the first line of metrics of its first cell.

    Uncompiled that is after one iteration, compiled after 500: only long runs are compiled. The second of two starts is
    reported, for which graphs and files are in their caches.
    """
    length = ["--full"] if compiled else ["--quick", "--set", "iterations=1"]
    command = [sys.executable, "-m", "cavia.cli", "run", "table1", *length, "--set", "contexts=5", "--jobs", "1"]
    seconds = 0.0
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            # Not beside the folders of others: a run takes over what its neighbours have trained.
            seconds = _seconds_to_metrics([*command, "--out", f"{folder}/table1"], Path(folder))
    return {"experiment": "table1", "compiled": compiled, "seconds": round(seconds, 2)}


def _seconds_to_metrics(command: list[str], folder: Path) -> float:
    begin = time.perf_counter()
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not any(folder.rglob("metrics.jsonl")):
            if run.poll() is not None:
                raise SystemExit(f"{' '.join(command[1:])} ended with code {run.returncode} before its first metrics")
            time.sleep(0.02)
        return time.perf_counter() - begin
    finally:
        run.terminate()
        run.wait()


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
    found = {
        "imports": imports(options.rounds),
        "runs": [run_start(compiled) for compiled in ((False, True) if options.compiled else (False,))],
        "first_steps": {work: first_steps(work, tuple(options.without)) for work in options.work},
    }
    print(json.dumps(found, indent=1))
    if options.json:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
