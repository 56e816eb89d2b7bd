"""Freed memory is kept for the next tensor."""

import subprocess
import sys

import pytest

CODE = """
import resource, torch
from cavia.allocator import keep_freed_memory
kept = {kept} and keep_freed_memory()
for _ in range(20):  # until the heap has settled: at first small blocks are cut off the large ones
    torch.ones(16_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(16_000_000)  # 64 MB, 15,625 pages
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is what returns memory at once")
def test_a_tensor_takes_the_memory_of_the_one_before():
    faults = {}
    for kept in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", CODE.format(kept=kept)], capture_output=True, text=True, check=True
        )
        took_effect, count = done.stdout.split()
        if kept and took_effect == "False":
            pytest.skip("this C library has no mallopt")
        faults[kept] = int(count)
    assert faults[True] < faults[False] / 10
