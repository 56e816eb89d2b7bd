"""One entrant's first meta-step in this process: prints its peak memory as JSON. Called by startup.py.

    python benchmarks/alone.py "sine, CAVIA" "cavia, compiled" [--seconds 20] [--operators]

With --seconds it goes on, for a profiler (perf record -D 10000 python …). With --operators it prints which of PyTorch's
operators one more step calls, how often and for how long.
"""

import argparse
import json
import resource
import time

from cavia.allocator import keep_freed_memory
from peers import entrants
from peers.work import WORK
from steps import one_core


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", choices=list(WORK))
    parser.add_argument("entrant")
    parser.add_argument("--seconds", type=float, default=0, help="go on for so long")
    parser.add_argument("--operators", action="store_true", help="count PyTorch's operators in one more step")
    options = parser.parse_args()
    one_core()
    work = WORK[options.work]
    known = entrants(work)
    if options.entrant not in known:
        parser.error(f"no entrant {options.entrant!r} for this work; there are {', '.join(known)}")
    make, batches = known[options.entrant], work.batches(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    step = make().prepare(batches)
    step()
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "first_step_seconds": round(seconds, 3),
                "peak_memory_mb": round(after / 1024),
                "raised_by_step_mb": round((after - before) / 1024, 1),
            }
        )
    )
    if options.seconds or options.operators:
        keep_freed_memory()
        end = time.perf_counter() + options.seconds
        while time.perf_counter() < end:
            step()
    if options.operators:
        from torch.profiler import profile

        with profile() as profiled:
            step()
        print(profiled.key_averages().table(sort_by="self_cpu_time_total", row_limit=20))


if __name__ == "__main__":
    main()
