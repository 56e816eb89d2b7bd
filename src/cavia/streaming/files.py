"""The Parquet files of a data set, in a folder or at any fsspec address, and the parts that work is cut into.

A task's rows stand next to each other in one file: nothing has to be sorted or moved between machines then, and memory
is that of a few row groups. `find_parts` looks through the names of tasks, and refuses one that is in two places.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cavia.errors import CaviaError, missing_package, named, nearest, shown

ENDINGS = (".parquet", ".pq")
ROWS = 2**15  # of a part, about; a row group is never cut
OTHERS = 50_000  # files and folders beside the Parquet files, after which it is no folder of data
AT_ONCE = 2**22  # names of tasks in memory, in the search for one that is in two places


@dataclass(frozen=True)
class Part:
    """Some row groups of a file: the tasks that begin in them.

    number:      of the part, counting from 0.
    first, last: row groups, `last` not included. Its last task may continue after them.
    skip:        the task that began before, whose rows are not this part's; None: there is none.
    """

    number: int
    file: str
    first: int
    last: int
    skip: Any = None

    def __str__(self) -> str:
        return f"{named(self.file)}, row groups {self.first} to {self.last - 1}"


def data_files(data: str) -> list[str]:
    """The Parquet files below a folder or an address, or a single file, in the order of their names."""
    if "://" in data:
        system, path = _remote(data)
        paths = [path] if path.endswith(ENDINGS) else sorted(system.find(path))
        files = [system.unstrip_protocol(one) for one in paths if one.endswith(ENDINGS)]
    else:
        place = Path(data).absolute()
        files = [str(one) for one in ([place] if place.is_file() else _below(place)) if one.suffix in ENDINGS]
    if not files:
        raise CaviaError(f"{named(data)} has no Parquet files (*.parquet)")
    return files


def _below(folder: Path) -> list[Path]:
    """The Parquet files in a folder and its folders, in the order of their names; an error if it is full of others."""
    files, others = [], 0
    try:
        for path in folder.rglob("*"):
            if path.suffix in ENDINGS and not path.name.startswith((".", "_")):
                files.append(path)
            elif (others := others + 1) > OTHERS:
                raise CaviaError(
                    f"{named(folder)} holds over {OTHERS:,} other files; give the folder of the Parquet files"
                )
    except OSError as error:
        raise CaviaError(f"cannot look through {named(folder)}: {error.strerror or error}") from error
    return sorted(files)


def opened(file: str) -> Any:
    """A Parquet file, open."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise missing_package("reading Parquet", "pyarrow", "tables") from None
    try:
        if "://" in file:
            system, path = _remote(file)
            return parquet.ParquetFile(system.open(path, "rb"))
        return parquet.ParquetFile(file)
    except Exception as error:  # of any file system, or of a file that is no Parquet
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CaviaError(f"cannot read {named(file)}: {why}") from error


def find_parts(files: Sequence[str], task: str, rows: int = ROWS) -> list[Part]:
    """All parts of the files; raises if the rows of a task are in two places.

    task: the column that names the task.
    rows: the least number of rows in a part, if its file has that many.
    """
    parts: list[Part] = []
    tasks = 0
    for file in files:
        with opened(file) as there:
            _require_column(there, file, task)
            first, count, skip, last = 0, 0, None, None
            for group, begun in _begun(there, task):
                tasks, last = tasks + len(begun), begun[-1] if begun else last
                count += there.metadata.row_group(group).num_rows
                if count and (count >= rows or group == there.num_row_groups - 1):
                    parts.append(Part(len(parts), file, first, group + 1, skip))
                    first, count, skip = group + 1, 0, last
    _require_together(files, task, passes=1 + tasks // AT_ONCE)
    return parts


def _require_together(files: Sequence[str], task: str, passes: int) -> None:
    """Raise if a task begins twice. Each pass holds one share of all names in memory, as 64-bit numbers."""
    for turn in range(passes):
        keys = array("q")
        for file in files:
            with opened(file) as there:
                for _, begun in _begun(there, task):
                    keys.extend(key for key in map(hash, begun) if key % passes == turn)
        unique, counts = np.unique(np.frombuffer(keys, dtype=np.int64), return_counts=True)
        if (counts > 1).any():
            _refuse(files, task, set(unique[counts > 1].tolist()))


def _refuse(files: Sequence[str], task: str, twice: set[int]) -> None:
    """Raise with the task and both places. twice: hashes of names, which two names may share."""
    known: dict[Any, str] = {}
    for file in files:
        with opened(file) as there:
            for group, begun in _begun(there, task):
                here = f"{named(file)}, row group {group}"
                for name in (name for name in begun if hash(name) in twice):
                    if name in known:
                        raise CaviaError(
                            f"the rows of task {shown(name)} must stand together, they are in {known[name]} and in "
                            f"{here}; sort the data by {task!r} and write them again"
                        )
                    known[name] = here


def _begun(there: Any, task: str) -> Iterator[tuple[int, list[Any]]]:
    """Each row group, and the names of the tasks that begin in it."""
    from pyarrow import compute

    before: Any = None
    for group in range(there.num_row_groups):
        names = there.read_row_group(group, columns=[task]).column(task).combine_chunks()
        if names.null_count:
            row = names.is_null().to_pylist().index(True)
            raise CaviaError(f"row {row} of row group {group} names no task in {task!r}")
        if not len(names):
            yield group, []
            continue
        changes = compute.indices_nonzero(compute.not_equal(names[1:], names[:-1]))
        begun = [names[0].as_py(), *names[1:].take(changes).to_pylist()]
        yield group, begun[begun[0] == before :]
        before = begun[-1]


def _require_column(there: Any, file: str, task: str) -> None:
    names = there.schema_arrow.names
    if task not in names:
        raise CaviaError(f"{named(file)} has no column {task!r} for the task; {nearest(task, names)}")


def _remote(address: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise missing_package(named(address), "fsspec", "ray") from None
    try:
        return url_to_fs(address)
    except Exception as error:
        raise CaviaError(f"cannot reach {named(address)}: {error}") from error
