"""Which kernel a run uses: a run is only reproducible to the bit with the same kernel."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError, require_one_of
from cavia.kernels.build import library
from cavia.kernels.choice import FUSED, KERNELS, PLAIN, available, using
from cavia.training.checkpoint import RunFolder


@contextmanager
def recorded_kernel(
    has_kernel: bool, there: Mapping[str, Any] | None, folder: RunFolder | None
) -> Iterator[dict[str, str]]:
    """Use the kernel of the resumed run, or else the fastest one; returns its entry for config.json.

    has_kernel: whether a kernel exists for what the run computes.
    there:      the run's config.json; None: a new run.

    A run folder without the entry used no kernel, or predates kernels: it resumes without.
    """
    if not has_kernel:
        yield {}
        return
    if there is None:
        kernel = available()
        entry = {"kernel": kernel}
    else:
        kernel = there.get("kernel", PLAIN)
        entry = {"kernel": kernel} if "kernel" in there else {}
        _require(kernel, folder.config if folder else Path("config.json"))
    with using(kernel):
        yield entry


def _require(kernel: str, where: Path) -> None:
    require_one_of(f"kernel in {where}", kernel, KERNELS)
    if kernel == FUSED and library() is None:
        raise CaviaError(
            f"{where} names the fused kernel, which cannot be built here; install a C++ compiler (g++), or write "
            '"kernel": "plain" there to resume without, equal up to rounding'
        )
