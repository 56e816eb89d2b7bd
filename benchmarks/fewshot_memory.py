"""What a few-shot step costs in memory and in processor time: 32 to 512 filters, all tasks at once or one at a time.

    python benchmarks/fewshot_memory.py [--filters 32 128 512] [--out results/benchmarks]

CAVIA's step of fewshot.py with 4 tasks of 1 shot. Every case runs in a process of its own, twice, on one thread; the
second step is timed, in seconds that the processor worked. Other jobs still slow it where memory is the limit.
"""

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cavia.allocator import keep_freed_memory
from cavia.training.step import MetaStep
from fewshot import learner, our_gradient, pictures
from interleaved import CLIP, LR, publish, raised_peak

SHOTS, TASKS, PAPER_ITERATIONS = 1, 4, 60_000
ALL_AT_ONCE_UP_TO = 128  # filters; 512 would need more memory than a laptop has


def cost(filters: int, chunk: int, first_order: bool) -> tuple[float, float]:
    """MB that a step raises the peak of a new process by, and the processor seconds of the next step."""
    torch.set_num_threads(1)
    keep_freed_memory()
    batch, step = pictures(SHOTS, TASKS), MetaStep(learner(filters, first_order), LR, CLIP)
    raised = raised_peak(partial(our_gradient, step, batch, chunk))
    start = time.process_time()
    our_gradient(step, batch, chunk)
    return raised, round(time.process_time() - start, 2)


def costs(widths: list[int]) -> list[dict[str, Any]]:
    rows = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for filters in widths:
            at_once = [(TASKS, False)] if filters <= ALL_AT_ONCE_UP_TO else []
            for chunk, first_order in (*at_once, (1, False), (1, True)):
                megabytes, seconds = pool.submit(cost, filters, chunk, first_order).result()
                case = {"filters": filters, "chunk": chunk, "first_order": first_order}
                rows.append(case | {"peak_memory_mb": megabytes, "seconds": seconds})
                print(rows[-1], flush=True)
    return rows


def markdown(result: list[dict[str, Any]], widths: list[int]) -> str:
    rows = "\n".join(
        f"| {row['filters']} | {row['chunk']} | {'yes' if row['first_order'] else 'no'} | {row['peak_memory_mb']:.0f} "
        f"| {row['seconds']:g} | {row['seconds'] * PAPER_ITERATIONS / 3600:.0f} |"
        for row in result
    )
    return f"""# Few-shot meta-step: memory and time by width

`python benchmarks/fewshot_memory.py --filters {" ".join(map(str, widths))}`: CAVIA, {TASKS} tasks of 5 ways and
{SHOTS} shot, 84×84 pictures, 15 queries of each class, 2 inner steps.

| filters | tasks at a time | first order | MB | seconds | hours for {PAPER_ITERATIONS:,} |
|---|---|---|---|---|---|
{rows}

MB: how far a step raises the peak of a new process. Seconds: how long one step keeps one core busy.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--filters", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    options = parser.parse_args()
    result = costs(options.filters)
    publish(options.out / "fewshot_memory", {"cases": result}, markdown(result, options.filters))


if __name__ == "__main__":
    main()
