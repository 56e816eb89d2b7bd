"""One entrant's first meta-step in this process: prints its peak memory as JSON. Called by startup.py.

python benchmarks/alone.py "sine, CAVIA" "cavia, compiled"
"""

import json
import resource
import sys
import time

from peers import entrants
from peers.work import WORK
from steps import one_core


def main() -> None:
    name, entrant = sys.argv[1:]
    one_core()
    work = WORK[name]
    make, batches = entrants(work)[entrant], work.batches(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    make().prepare(batches)()
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


if __name__ == "__main__":
    main()
