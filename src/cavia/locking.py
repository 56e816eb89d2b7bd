"""A lock that ends with the process that holds it, on every system."""

import warnings
from functools import cache
from importlib import import_module
from typing import IO, Any


def try_lock(file: IO[Any] | int) -> bool:
    """Lock the open file, or the one of that descriptor, for as long as it stays open; False if another has it.

    Where there is nothing to lock with, a warning says so once, and the answer is True.
    """
    if unix := _module("fcntl"):
        return _succeeds(unix.flock, file, unix.LOCK_EX | unix.LOCK_NB)
    if windows := _module("msvcrt"):
        return _succeeds(windows.locking, file if isinstance(file, int) else file.fileno(), windows.LK_NBLCK, 1)
    _warn_once()
    return True


def lasts_over_a_rename() -> bool:
    """Whether a locked file, which stays open, can be renamed: not on Windows, nor where there are no locks."""
    return _module("fcntl") is not None


def _module(name: str) -> Any:
    """A module that not every system has, or None."""
    try:
        return import_module(name)
    except ImportError:
        return None


def _succeeds(function: Any, *arguments: Any) -> bool:
    try:
        function(*arguments)
    except OSError:
        return False
    return True


@cache
def _warn_once() -> None:
    warnings.warn("files cannot be locked here: let only one process train in a run folder", stacklevel=4)
