"""python -m attacks [--minutes 60] [--seed 0] [--out results/attack]: attack until the time is over, and count.

The first round is done to its end, however long that takes: everything is attacked at least once. Each round has a seed
of its own, one more than the last; `--seed N --rounds 1` does one again. Every misuse that got a raw error or no word
at all is printed. Exit code 1 if there was one.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attacks import calls, commands, files, own_code
from attacks.outcomes import CLEAR, RAW, RIGHT, SILENT, Case, Outcome, outcomes

KINDS = ("calls", "commands", "files")
MUTATIONS = 300  # of each format in a round


def cases(kind: str, seed: int, folder: Path) -> Iterator[list[Case]]:
    """The misuses of a kind, in lists of one target each; the folder is for files that they need."""
    if kind == "calls":
        for name, get in calls.public_calls():
            yield list(calls.cases(name, get, seed))
        yield list(own_code.cases())
    elif kind == "commands":
        commands.prepare(folder)
        yield list(commands.cases(folder, seed))
    else:
        yield list(files.cases(folder, seed, MUTATIONS))


def attack(kind: str, seed: int, share: float = 1.0, only: str = "") -> Iterator[Outcome]:
    """A round of one kind: all its cases, or a share of them that the seed draws."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder  # what cases need is made there
        try:
            for together in cases(kind, seed, Path(tempfile.mkdtemp())):
                yield from outcomes([case for case in together if only in case.target and chance.random() < share])
        finally:
            tempfile.tempdir = before


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attacks")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="how many of the cases of a round")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--only", default="", help="attack only what has this in its name")
    parser.add_argument("--out", type=Path, help="a folder for attack.md and attack.json")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in options.kinds}
    targets: dict[str, set[str]] = {kind: set() for kind in options.kinds}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped from outside"))
    seed, done = options.seed, False
    try:
        while seed < options.seed + options.rounds and (seed == options.seed or time.monotonic() < end):
            print(f"seed {seed}", flush=True)
            for kind in options.kinds:
                for each in attack(kind, seed, options.share, options.only):
                    counts[kind][each.kind] += 1
                    targets[kind].add(each.target)
                    if each.kind in (RAW, SILENT):
                        print(ascii(str(each)), flush=True)
                    if time.monotonic() > end and seed > options.seed:
                        break
            seed += 1
        done = True
    finally:  # the figures so far, however it ends
        page = as_page(counts, targets, range(options.seed, seed + (not done)), options, done)
        print(page, flush=True)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "attack.md").write_text(page)
            (options.out / "attack.json").write_text(json.dumps(counts, indent=1))
    return int(any(count[RAW] + count[SILENT] for count in counts.values()))


def as_page(
    counts: dict[str, Counter[str]], targets: dict[str, set[str]], seeds: range, options: Any, done: bool = True
) -> str:
    """The figures as a page of Markdown; not `done`: the last round was broken off."""
    lines = [
        "# Misuses tried, and what they got",
        "",
        f"`python -m attacks --minutes {options.minutes:g} --seed {seeds[0]} --share {options.share:g}"
        f" --kinds {' '.join(options.kinds)}`,",
        f"seeds {seeds[0]} to {seeds[-1]}{'' if done else '; the last round was broken off'}.",
        "",
        "- *Right*: the value is one that the call takes.",
        "- *Clear*: one line that names the value.",
        "- *Raw*: any other error, a hang, a crash, more than 6 GiB.",
        "- *Silently wrong*: a value of the wrong kind was taken, numbers are not finite, or a damaged file reads as",
        "  something else.",
        "",
        "| attack on | targets | misuses | right | clear | raw | silently wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, count in counts.items():
        numbers = [len(targets[kind]), count.total(), *(count[each] for each in (RIGHT, CLEAR, RAW, SILENT))]
        lines.append(f"| {kind} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
