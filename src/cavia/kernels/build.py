"""Builds the C++ source of this folder at first use and keeps the result in the cache."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import warnings
from functools import cache
from pathlib import Path

import torch

from cavia.cache import cache_folder
from cavia.errors import CaviaError
from cavia.temporaries import temporary
from cavia.tensor_file import write_atomically

SOURCE = Path(__file__).parent / "source"
# The processor's own instructions: the cache is keyed by them. Rounding stays as written, except for fused products.
NATIVE = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
# GCC would carry values from one step of a loop to the next in registers that the loops have other plans for.
REGISTERS = "-fno-predictive-commoning"
FLAGS = ("-O3", NATIVE, REGISTERS, "-std=gnu++17", "-fno-math-errno", "-fPIC", "-shared", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
PATIENCE = 600  # seconds for the compiler


@cache
def library() -> ctypes.CDLL | None:
    """The built kernels; None, after one line of warning, if they cannot be built."""
    try:
        return load(FLAGS)
    except CaviaError as error:
        warnings.warn(f"our own kernels cannot be used, PyTorch's are slower: {error}", stacklevel=2)
        return None


def load(flags: tuple[str, ...]) -> ctypes.CDLL:
    """The kernels built with these flags, from the cache if possible."""
    path = _path(flags)
    if not _is_whole(path):
        build(path, flags)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CaviaError(
            f"the kernels cannot be loaded ({error}); delete {path}, or set CXX to another compiler"
        ) from error


def digest(flags: tuple[str, ...]) -> str:
    """Names what a build depends on: source, flags, PyTorch and the processor."""
    sha256 = hashlib.sha256("\0".join((*flags, torch.__version__, platform.machine(), _processor())).encode())
    for file in sorted(SOURCE.iterdir()):
        sha256.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return sha256.hexdigest()[:32]


def build(path: Path, flags: tuple[str, ...]) -> None:
    """Compile in a temporary folder, then rename: a process that is killed, or builds the same, harms no other."""
    compiler = _compiler()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary(path, folder=True) as folder:
            made = folder / path.name
            _compile([*compiler, *flags, "-o", str(made), *map(str, sorted(SOURCE.glob("*.cpp")))])
            content = made.read_bytes()
    except OSError as error:
        raise CaviaError(
            f"cannot write to the cache {path.parent}: {error.strerror or error}; set CAVIA_CACHE to another folder"
        ) from error
    write_atomically(path, content + hashlib.sha256(content).digest())


def _is_whole(path: Path) -> bool:
    """Whether the file is there and ends with the checksum of the rest: loading a damaged one would end the process."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return content[-32:] == hashlib.sha256(content[:-32]).digest()


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"took more than {PATIENCE} s" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise CaviaError(f"the compiler {command[0]} {why}; set CXX to one that works") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        why = lines[0] if lines else f"exit code {done.returncode}"
        raise CaviaError(f"the compiler {command[0]} failed ({why}); set CXX to one that works")


def without_compiler() -> str | None:
    """Why there is no C++ compiler here, None if there is one."""
    try:
        _compiler()
    except CaviaError as error:
        return str(error)
    return None


def compiler_version() -> str:
    """The first line that the C++ compiler prints about itself; its name if it prints nothing."""
    command = _compiler()
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", timeout=10,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CaviaError(f"the compiler {command[0]} does not start; set CXX to one that works") from error
    return next(iter(done.stdout.splitlines()), command[0])


def is_built() -> bool:
    """Whether the cache holds kernels for this source, compiler flags, PyTorch and processor."""
    return _is_whole(_path(FLAGS))


def _path(flags: tuple[str, ...]) -> Path:
    return cache_folder() / "kernels" / f"kernels-{digest(flags)}.so"


def _compiler() -> list[str]:
    """The C++ compiler's command: $CXX, or the first one installed."""
    if chosen := os.environ.get("CXX"):
        return shlex.split(chosen)
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise CaviaError("there is no C++ compiler; install g++ or clang++, or set CXX")


def _processor() -> str:
    """The CPU's features as Linux reports them; elsewhere its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    own = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(sorted({line for line in lines if line.split(":")[0].strip() in own}))
