"""The machine's cores and memory."""

import os
from pathlib import Path

from cavia.errors import CaviaError

CGROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # where a container's limit is
NEVER_TOO_MUCH = 2**27  # bytes: not worth a look


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(processes: int) -> int:
    """How many threads each of the processes may have: its share of the cores, or OMP_NUM_THREADS if that is less.

    Threads without a core of their own wait for each other: a step on busy cores then takes ten times as long.
    """
    share, limit = max(1, cores() // processes), os.environ.get("OMP_NUM_THREADS", "")
    return min(share, max(1, int(limit))) if limit.isascii() and limit.isdigit() else share


def memory() -> int | None:
    """How many bytes of memory this machine, the container or the process may use; None: unknown."""
    try:
        known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, ValueError, OSError):
        return None
    for path in CGROUP:
        try:
            known.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no container, or one without a limit ("max")
            continue
    import resource  # not on Windows, where we do not get here

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]  # ulimit -v
    return min(known if limit == resource.RLIM_INFINITY else [*known, limit])


def require_memory(needed: int, what: str) -> None:
    """Raise, before anything is allocated, if `needed` bytes exceed the memory.

    what: what would need them, with the numbers that make it large.
    """
    there = memory() if needed > NEVER_TOO_MUCH else None
    if there is not None and needed > there:
        raise CaviaError(
            f"{what} needs about {gigabytes(needed)} of memory, this machine has {gigabytes(there)}; choose less"
        )


def gigabytes(number: int) -> str:
    """A number of bytes in words: 1.5 GB, 4e+12 GB."""
    return f"{number / 2**30:.2g} GB" if number < 2**1000 else "more than 1e+290 GB"
