"""A meta-step on two ranks against one process: equal gradients, then times in turns.

    python benchmarks/ranks.py [--rounds 9] [--seconds 1] [--compiled] [--work NAME …] [--out results/benchmarks]

One process has one thread and one core. Two ranks have one thread and one core each; one process with two threads has
the same two cores. Every entrant is in processes of its own that wait while others are timed, so that what else happens
on the machine meets all of them alike. It needs two cores that are free. Times are by the clock on the wall.
--compiled compiles the gradient and the update, which takes minutes.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import cavia
import completion
import fewshot
from cavia.allocator import keep_freed_memory
from cavia.commit import this_commit
from cavia.paper.running.processes import start_process
from cavia.training.launching import MeetingPoint
from cavia.training.ranks import Ranks, joined
from cavia.training.step import MetaStep
from interleaved import publish
from peers.work import WORK

NAMES = ("completion, 100 known pixels", "conv 32, 1-shot")
ONE, THREADS, RANKS = "one process, one thread", "one process, two threads", "two ranks, one thread each"
ENTRANTS = {ONE: (1, 1), THREADS: (1, 2), RANKS: (2, 1)}  # ranks, and threads of each
AIM, AIM_REDUCE = 0.6, 0.05
TOLERANCE = 1e-3  # of the gradient's length; in single precision, rounding decides what some max-pools take
BATCHES = 3


class Timed:
    """Ranks whose sums are timed, waiting for the others included."""

    def __init__(self, ranks: Ranks):
        self.ranks, self.seconds = ranks, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ranks, name)

    def mean(self, means: torch.Tensor, tasks: int) -> torch.Tensor:
        begin = time.perf_counter()
        mean = self.ranks.mean(means, tasks)
        self.seconds += time.perf_counter() - begin
        return mean


def serve(
    environment: dict[str, str], name: str, cores: Sequence[int], threads: int, compiled: bool, orders: Any, _: Any
) -> None:
    """One rank of an entrant: takes steps when it is told to, and says how long they took."""
    os.environ.update(environment)
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)
    keep_freed_memory()
    with joined(torch.device("cpu")) as joined_ranks:
        work = WORK[name]
        learner = work.learner()
        chunk = work.compiled_chunk if compiled else work.chunk
        ranks, step = Timed(joined_ranks), MetaStep(learner, 1e-3, 10.0, chunk, compiled and work.compiled)
        step.ranks = ranks  # type: ignore[assignment]  # it does what they do
        batches = [_share(batch, joined_ranks) for batch in work.batches(BATCHES)]
        vector = torch.cat([step.first_moment, step.first_moment[:1]])

        def steps(count: int) -> None:
            for number in range(count):
                step(batches[number % BATCHES])

        def reduce(count: int) -> None:
            for _ in range(count):
                joined_ranks.mean(vector, 1)

        while order := orders.recv():
            what, count = order
            if what == "gradient":
                step(batches[0])
                orders.send((10 * step.first_moment).tolist())  # after one step, a tenth of the gradient
                continue
            joined_ranks.wait()
            ranks.seconds, begin = 0.0, time.perf_counter()
            {"steps": steps, "reduce": reduce}[what](count)
            orders.send(((time.perf_counter() - begin) / count, ranks.seconds / count))


def _share(batch: Any, ranks: Ranks) -> Any:
    share = ranks.share(len(batch))
    return batch.part(share.start, share.stop)


class Entrant:
    """The processes of one entrant."""

    def __init__(self, name: str, ranks: int, threads: int, compiled: bool):
        self.place = MeetingPoint(ranks)
        free = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.lines, self.processes = [], []
        for rank in range(ranks):
            ours, theirs = get_context("forkserver").Pipe()
            cores = free[rank * threads : (rank + 1) * threads]
            environment = self.place.environment(rank) if ranks > 1 else {}
            process, _ = start_process(serve, environment, name, cores, threads, compiled, theirs)
            theirs.close()
            self.lines.append(ours)
            self.processes.append(process)

    def ask(self, what: str, count: int = 0) -> Any:
        """What the first rank answers, when all have answered."""
        for line in self.lines:
            line.send((what, count))
        first, *_ = [line.recv() for line in self.lines]
        return first

    def close(self) -> None:
        for line in self.lines:
            with suppress(OSError):
                line.send(None)
        for process in self.processes:
            process.join(30)
            process.kill()


def measure(name: str, rounds: int, seconds: float, compiled: bool) -> dict[str, Any]:
    """Times of all entrants, in turns, after a check that they compute the same."""
    made = {entrant: Entrant(name, *how, compiled) for entrant, how in ENTRANTS.items()}
    try:
        gradients = {entrant: torch.tensor(one.ask("gradient")) for entrant, one in made.items()}
        exact = gradients[ONE]
        differences = {entrant: ((one - exact).norm() / exact.norm()).item() for entrant, one in gradients.items()}
        if max(differences.values()) > TOLERANCE:
            raise SystemExit(f"the entrants disagree, nothing was timed: {differences}")
        count = max(1, round(seconds / made[ONE].ask("steps", BATCHES)[0]))
        times: dict[str, list[float]] = {entrant: [] for entrant in made}
        waits, reduces = [], []
        for _ in range(rounds):
            for entrant, one in made.items():
                took, waited = one.ask("steps", count)
                times[entrant].append(took)
                if entrant == RANKS:
                    waits.append(waited / took)
            reduces.append(made[RANKS].ask("reduce", 200)[0])
    finally:
        for one in made.values():
            one.close()
    return summed_up(name, times, waits, reduces, differences)


def summed_up(
    name: str,
    times: dict[str, list[float]],
    waits: list[float],
    reduces: list[float],
    differences: dict[str, float],
) -> dict[str, Any]:
    """What a page says of one kind of step."""
    work, draw = WORK[name], draw_time(name)
    ratios = [two / one for one, two in zip(times[ONE], times[RANKS], strict=True)]
    whole = [(draw + two) / (draw + one) for one, two in zip(times[ONE], times[RANKS], strict=True)]
    numbers = sum(value.numel() for value in work.learner().parameters()) + 2  # with the loss, and the count of tasks
    return {
        "tasks": len(work.batch(0)),
        "milliseconds": {entrant: round(1e3 * statistics.median(seconds), 3) for entrant, seconds in times.items()},
        "of_one": {"median": statistics.median(ratios), "best": min(ratios), "worst": max(ratios)},
        "of_one_with_drawing": statistics.median(whole),
        "drawing_milliseconds": round(1e3 * draw, 3),
        "reduce_milliseconds": round(1e3 * statistics.median(reduces), 3),
        "reduce_share": statistics.median(reduces) / statistics.median(times[RANKS]),
        "reduce_and_waiting_share": statistics.median(waits),
        "bytes": 4 * numbers,
        "largest_difference": max(differences.values()),
    }


def draw_time(name: str) -> float:
    """Seconds of one core to draw a batch, which every rank does in full; to open the pictures is not counted."""
    generator = torch.Generator().manual_seed(0)
    draw: Callable[[], object]
    if name.startswith("completion"):
        draw = partial(completion.faces().sample, completion.PICTURES, 100, 1024, generator)
    elif name.startswith("sine"):
        draw = partial(cavia.Sine().sample, 25, 10, 10, generator)
    else:  # as many pictures as an episode has, from noise
        pictures = torch.randint(256, (600, 84, 84, 3), dtype=torch.uint8, generator=generator).numpy()
        count = 4 * fewshot.WAYS * (1 + fewshot.QUERIES)

        def episode() -> object:
            index = torch.randint(len(pictures), (count,), generator=generator).numpy()
            return torch.from_numpy(pictures[index]).permute(0, 3, 1, 2) / 255

        draw = episode
    took = []
    for _ in range(5):
        begin = time.process_time()
        draw()
        took.append(time.process_time() - begin)
    return statistics.median(took)


def verdict(value: float, aim: float) -> str:
    """In words."""
    return f"met (at most {aim:g})" if value <= aim else f"missed by {value - aim:.3f} (at most {aim:g})"


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    parts = []
    for name, one in result["work"].items():
        rows = "\n".join(f"| {entrant} | {value:.2f} |" for entrant, value in one["milliseconds"].items())
        ratio, share = one["of_one"], one["reduce_share"]
        parts.append(f"""## {name}, {one["tasks"]} tasks a batch

| | milliseconds a step |
|---|---|
{rows}

- Two ranks take {ratio["median"]:.3f} of one process's time (rounds from {ratio["best"]:.3f} to {ratio["worst"]:.3f}):
  {verdict(ratio["median"], AIM)}. With drawing the batch, {one["drawing_milliseconds"]:.2f} ms on every rank,
  {one["of_one_with_drawing"]:.3f}.
- The all-reduce of {one["bytes"]:,} bytes alone takes {one["reduce_milliseconds"]:.3f} ms, {share:.1%} of a step:
  {verdict(share, AIM_REDUCE)}. With waiting for the slower rank it is {one["reduce_and_waiting_share"]:.1%}.
- The gradients of the entrants differ by at most {one["largest_difference"]:.1e} of their length.
""")
    return f"""# A meta-step on two ranks

`{result["command"]}`, commit {result["commit"]}, {result["cores"]} cores, torch {result["torch"]}. Medians of
{result["rounds"]} rounds in turns, by the clock on the wall. One process has one core; two ranks, and two threads, have
two.

{chr(10).join(parts)}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one process in a round")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--work", nargs="+", default=list(NAMES), choices=list(WORK), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    result = {
        "command": "python benchmarks/ranks.py" + " --compiled" * options.compiled,
        "commit": this_commit(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "rounds": options.rounds,
        "work": {name: measure(name, options.rounds, options.seconds, options.compiled) for name in options.work},
    }
    publish(options.out / "ranks", json.loads(json.dumps(result)), markdown(result))


if __name__ == "__main__":
    main()
