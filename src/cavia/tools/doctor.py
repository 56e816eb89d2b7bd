"""What is installed and what this machine offers, with advice: the first part of an issue report."""

import getpass
import os
import platform
import re
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import NamedTuple

import torch

from cavia import __version__
from cavia.cache import cache_folder
from cavia.commit import this_commit
from cavia.compiler.obstacles import TESTED
from cavia.errors import CaviaError
from cavia.kernels.build import compiler_version, is_built
from cavia.machine import cores, gigabytes, memory

DISTRIBUTION = "cavia-torch"
NOT_FOR_USERS = {"dev", "docs", "bench", "all"}
REPORTING = """\
To report a problem, open an issue with
  - all lines above,
  - the shortest code or command that shows the problem,
  - what you expected, and the whole error message.
"""


class Finding(NamedTuple):
    """One check: its result, and advice if there is a problem."""

    name: str
    value: str
    advice: str = ""


def examine() -> list[Finding]:
    """Every finding, in the order of the report."""
    there = memory()
    return [
        Finding("cavia", f"{__version__} ({this_commit()}), in {Path(__file__).parent.parent}"),
        Finding("Python", f"{platform.python_version()}, {sys.executable}"),
        Finding("system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        _pytorch(),
        *_compiler(),
        _gpu(),
        _threads(),
        Finding("memory", gigabytes(there) if there else "unknown"),
        _cache("cache", cache_folder(), "CAVIA_CACHE"),
        _cache("graphs", graphs_folder(), "TORCHINDUCTOR_CACHE_DIR"),
        *(_extra(name, packages) for name, packages in extras().items()),
    ]


def as_text(findings: list[Finding]) -> str:
    """One line per finding, with its advice below it."""
    width = max(len(one.name) for one in findings)
    lines = []
    for one in findings:
        lines.append(f"{one.name:<{width}}  {one.value}")
        if one.advice:
            lines.append(f"{'':<{width}}  → {one.advice}")
    return "\n".join(lines)


def extras() -> dict[str, list[str]]:
    """Extra → the packages that it requires, by the installed distribution's metadata; empty if not installed."""
    try:
        asked = metadata(DISTRIBUTION).get_all("Requires-Dist") or []
    except PackageNotFoundError:  # the code is on the path but not installed
        return {}
    packages: dict[str, list[str]] = {}
    for line in asked:
        package, _, condition = line.partition(";")
        match = re.search(r"extra == ['\"](.+?)['\"]", condition)
        name = re.split(r"[\[<>=!~ ]", package.strip())[0]
        if match and match[1] not in NOT_FOR_USERS and name != DISTRIBUTION:
            packages.setdefault(match[1], []).append(name)
    return packages


def graphs_folder() -> Path:
    """Where PyTorch keeps compiled graphs. Its own function says the same, but takes seconds to import."""
    if chosen := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(chosen).absolute()
    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):  # no name: a container run as a number
        user = f"uid_{os.getuid()}" if hasattr(os, "getuid") else "unknown_user"
    return Path(tempfile.gettempdir()) / f"torchinductor_{user}"


def _pytorch() -> Finding:
    is_tested = torch.__version__.startswith(f"{TESTED}.")
    advice = f"compiled steps were tested with {TESTED} only; others run uncompiled" if not is_tested else ""
    return Finding("PyTorch", torch.__version__, advice)


def _compiler() -> list[Finding]:
    """The C++ compiler, and what it has built."""
    try:
        version = compiler_version()
    except CaviaError as error:
        advice = "training runs several times slower without one; install g++"
        return [Finding("C++ compiler", f"none: {error}", advice)]
    built = "built" if is_built() else "not built yet; the first run that needs them builds them in seconds"
    return [Finding("C++ compiler", version), Finding("kernels", built)]


def _gpu() -> Finding:
    if torch.cuda.is_available():
        return Finding("GPU", ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())))
    return Finding("GPU", "none that PyTorch can use; cavia runs on the processor")


def _threads() -> Finding:
    threads, ours, all_cores = torch.get_num_threads(), cores(), os.cpu_count()
    of_all = f" of {all_cores}" if all_cores and all_cores > ours else ""
    value = f"{ours}{of_all}; PyTorch uses {threads} thread{'s' * (threads != 1)}"
    if threads > ours:
        return Finding("cores", value, f"more threads than cores slow everything down; set OMP_NUM_THREADS={ours}")
    return Finding("cores", value)


def _cache(name: str, folder: Path, variable: str) -> Finding:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if os.access(nearest, os.W_OK):
        return Finding(name, f"{folder}, {_size(folder) / 2**20:,.0f} MB")
    return Finding(name, f"{folder}, which cannot be written to", f"set {variable} to a folder that can")


def _size(folder: Path) -> int:
    """The bytes of all its files; other processes may delete some in the meantime."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += (Path(parent) / name).stat().st_size
    return size


def _extra(name: str, packages: list[str]) -> Finding:
    """Whether the packages of an extra are installed, with their versions."""
    have, lack = [], []
    for package in packages:
        try:
            have.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lack.append(package)
    if not lack:
        return Finding(f"[{name}]", ", ".join(have))
    return Finding(f"[{name}]", f"without {', '.join(lack)}", f"pip install '{DISTRIBUTION}[{name}]'")
