"""Temporary files and folders next to what they will replace; the next writer clears those of killed processes."""

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from cavia.locking import lasts_over_a_rename, try_lock

MOST_BYTES = 200  # of a target's name in a temporary one: file systems allow 255 in all
TRIES = 3
HOUR = 3600.0  # seconds: where a rename ends a lock, no file older than this still has a writer


@contextmanager
def temporary(target: Path, folder: bool = False) -> Iterator[Path]:
    """An empty file or folder next to `target`, to be filled and then renamed; deleted if it is not.

    It is made with the permissions that new files have (umask). A lock that ends with this process says that it is
    in use; what processes that were killed left behind for the same target is cleared first.
    """
    clear_leftovers(target)
    path, lock = _made(target, folder)
    try:
        yield path
    finally:
        _remove(path)
        if lock is not None:
            os.close(lock)


def clear_leftovers(target: Path) -> None:
    """Delete temporary files and folders of the same target whose writers are dead."""
    ours = re.compile(re.escape(_stem(target)) + r"\.[0-9a-f]{12}\.part")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for path in [Path(entry.path) for entry in entries if ours.fullmatch(entry.name)]:
            with suppress(OSError):
                _clear(path)


def _clear(path: Path) -> None:
    """Delete it if nobody is writing it."""
    if not lasts_over_a_rename():
        if time.time() - path.stat().st_mtime > HOUR:
            _remove(path)
        return
    lock = os.open(path, os.O_RDONLY)
    try:
        if try_lock(lock):
            _remove(path)
    finally:
        os.close(lock)


def _made(target: Path, folder: bool) -> tuple[Path, int | None]:
    """A new file or folder, and the descriptor that its lock lasts with, where there are such locks."""
    for last in (*(False,) * (TRIES - 1), True):
        path = target.with_name(f"{_stem(target)}.{secrets.token_hex(6)}.part")
        if folder:
            path.mkdir()
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        if not lasts_over_a_rename():
            return path, None
        lock = None
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY)
            # Another process may have taken it for a leftover in the moment before it was locked.
            if (try_lock(lock) or last) and os.path.samestat(os.fstat(lock), path.stat()):
                return path, lock
        if lock is not None:
            os.close(lock)
    raise FileNotFoundError(f"{path.name} was deleted by another process")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _stem(target: Path) -> str:
    """What the names of all temporaries of this target begin with."""
    name = target.name
    return "." + (name if len(os.fsencode(name)) <= MOST_BYTES else sha256(os.fsencode(name)).hexdigest())
