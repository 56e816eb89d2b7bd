"""A fit that can be interrupted: it trains in a folder next to its output, which is deleted at the end."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cavia.errors import Busy, CaviaError, Diverged
from cavia.locking import try_lock
from cavia.tensor_file import read_json, write_json
from cavia.training.checkpoint import RunFolder

SUFFIX = ".run"
ABOUT, LOCK = "table.json", ".fit"  # the first file that is written and the first that is deleted; another's at work
TASKS = ("table", "columns")
OURS = {"config.json", "metrics.jsonl", "checkpoint.safetensors", "before-cooldown.safetensors", "model.cavia", ".lock"}


@contextmanager
def folder_beside(out: Path, about: Mapping[str, Any]) -> Iterator[RunFolder]:
    """The run folder of the fit that writes `out`. A fit found there resumes, if it is the same one.

    about: what makes a fit the same, as JSON values: "table", "columns", and its settings. More iterations are no
           difference.
    When the block ends, the folder is deleted; when it is interrupted, the folder stays if there is a checkpoint in it.
    """
    folder = RunFolder(out.with_name(out.name + SUFFIX), events=False)
    with _locked(folder.path):
        _settle(folder, about)
        try:
            yield folder
        except BaseException as error:
            if isinstance(error, Diverged) or not folder.checkpoint.exists():
                _delete(folder.path)
            raise
        _delete(folder.path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other fits with the same output out."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = (path / LOCK).open("a")
    except OSError as error:
        raise CaviaError(f"cannot write {path}: {error.strerror or error}") from error
    with file:
        if not try_lock(file):
            raise Busy(f"another process is at work in {path}; wait for it, or choose another out")
        yield


def _settle(folder: RunFolder, about: Mapping[str, Any]) -> None:
    """Make the folder this fit's, or raise if another's unfinished work is there."""
    path, note = folder.path, folder.path / ABOUT
    foreign = [name.name for name in path.iterdir() if name.name not in OURS | {ABOUT, LOCK}]
    foreign = [name for name in foreign if not name.startswith(".")]  # those are files that were being written
    if foreign:
        raise CaviaError(f"{path} is not the folder of an unfinished fit: it holds {foreign[0]!r}; move it away")
    if note.exists() and folder.checkpoint.exists():
        there = read_json(note)
        difference = _difference(there if isinstance(there, dict) else {}, about)
        if difference:
            raise CaviaError(
                f"{path} holds an unfinished fit of {difference}; run that one again to finish it, or delete the folder"
            )
    else:  # nothing was learned yet, or the folder of a finished fit was being deleted
        for name in OURS - {".lock"}:
            (path / name).unlink(missing_ok=True)
    write_json(note, about)


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """How two fits differ, in words; None if they do not."""
    for name, value in here.items():  # settings first: some of them change the tasks, too
        before = there.get(name)
        grows = name == "iterations" and isinstance(before, int) and before <= value
        if name not in TASKS and before != value and not grows:
            return f"a table with {name} {_shown(before)}, here it is {_shown(value)}"
    return None if all(there.get(name) == here[name] for name in TASKS) else "another table, or of other columns of it"


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _delete(path: Path) -> None:
    (path / ABOUT).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
