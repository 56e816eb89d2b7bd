"""From one store into another."""

from os import PathLike
from pathlib import Path

from cavia.errors import CaviaError
from cavia.store.backend import BLOCK
from cavia.store.contexts import ContextStore


def copy_store(source: str | PathLike[str], target: str | PathLike[str]) -> tuple[int, str]:
    """Copy everything from one store to another, created if missing; returns the number of contexts and the target.

    It goes batch by batch, a transaction each. Ids that only the other has stay. Stopped midway, it can be done again.
    """
    with ContextStore(source) as old, ContextStore(target, old.version) as new:
        if old.path == new.path or _same_file(old.path, new.path):
            raise CaviaError(f"{old.path} cannot be copied into itself; name another store")
        copied = 0
        for ids, contexts in old.batches(BLOCK):
            new.put(ids, contexts)
            copied += len(ids)
        return copied, str(new.path)


def _same_file(one: Path | str, other: Path | str) -> bool:
    return isinstance(one, Path) and isinstance(other, Path) and one.samefile(other)
