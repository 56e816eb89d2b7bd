"""Reuse freed memory instead of returning it to the system after every tensor."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # mallopt's names for its settings, from malloc.h
MIB = 1 << 20


@cache
def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next tensor; True if it does.

    glibc gives large blocks back to the system at once, and takes new ones for the next tensor, each of whose pages
    is then faulted in and zeroed; for convolutions on a CPU that can cost more than the arithmetic. It is a setting of
    the whole process, which then keeps its peak of memory. Where there is no glibc, this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_TOP_PAD: 64 * MIB}
    taken = [mallopt(name, value) for name, value in settings.items()]
    return all(taken)
