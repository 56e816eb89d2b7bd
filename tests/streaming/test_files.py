"""Parts of a data set: every task is in exactly one, whole, wherever row groups cut."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from cavia import CaviaError
from cavia.streaming import files
from cavia.streaming.chunks import chunks
from cavia.streaming.files import data_files, find_parts


def write(path, names, rows):
    table = pa.table({"task": names, "x": list(range(len(names)))})
    parquet.write_table(table, path, row_group_size=rows)


NAMES = ["a"] * 3 + ["b"] + ["c"] * 9 + ["d"] * 2 + ["e"]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("of_a_part", [1, 3, 5, 100])
def test_each_task_is_whole_and_there_once(tmp_path, rows, of_a_part):
    write(tmp_path / "one.parquet", NAMES, rows)
    tables = []
    for part in find_parts(data_files(str(tmp_path)), "task", of_a_part):
        for table in chunks(part, "task"):
            tables.append(table.to_pydict())
    for table in tables:
        for name in set(table["task"]):
            assert table["task"].count(name) == NAMES.count(name)
    assert [x for table in tables for x in table["x"]] == list(range(len(NAMES)))


def test_parts_are_row_groups_of_files(tmp_path):
    for name in ("0", "1"):
        write(tmp_path / f"{name}.parquet", [f"{name}{i}" for i in range(10)], 2)
    parts = find_parts(data_files(str(tmp_path)), "task", 4)
    assert [(part.number, part.first, part.last, part.skip) for part in parts] == [
        (0, 0, 2, None),
        (1, 2, 4, "03"),
        (2, 4, 5, "07"),
        (3, 0, 2, None),
        (4, 2, 4, "13"),
        (5, 4, 5, "17"),
    ]


@pytest.mark.parametrize("share", [2**22, 3])  # all names in one pass, and in several
def test_a_task_in_two_places_is_refused(tmp_path, monkeypatch, share):
    monkeypatch.setattr("cavia.streaming.files.AT_ONCE", share)
    write(tmp_path / "0.parquet", [1, 1, 2, 3, 4, 5, 6], 2)
    write(tmp_path / "1.parquet", [7, 8, 2], 2)
    with pytest.raises(CaviaError, match=r"task 2 must stand together, .*0.parquet, row group 1 and in .*1.parq"):
        find_parts(data_files(str(tmp_path)), "task")
    write(tmp_path / "1.parquet", [8, 9, 8], 2)
    with pytest.raises(CaviaError, match="task 8 must stand together"):
        find_parts(data_files(str(tmp_path)), "task")


def test_what_is_no_data_set_is_said(tmp_path):
    with pytest.raises(CaviaError, match="has no Parquet files"):
        data_files(str(tmp_path))
    (tmp_path / "a.parquet").write_text("nothing")
    with pytest.raises(CaviaError, match="cannot read"):
        find_parts(data_files(str(tmp_path)), "task")
    write(tmp_path / "a.parquet", ["a", None], 2)
    with pytest.raises(CaviaError, match="row 1 of row group 0 names no task"):
        find_parts(data_files(str(tmp_path)), "task")
    with pytest.raises(CaviaError, match="no column 'tasks' for the task; the nearest are 'task'"):
        find_parts(data_files(str(tmp_path)), "tasks")


def test_files_of_an_fsspec_address():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://data/part.parquet", "wb") as file:
        parquet.write_table(pa.table({"task": [1, 1, 2], "x": [0, 1, 2]}), file)
    (part,) = find_parts(data_files("memory://data"), "task")
    (table,) = chunks(part, "task")
    assert table.column("x").to_pylist() == [0, 1, 2]


def test_a_folder_of_anything_else_is_refused_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "OTHERS", 3)
    for name in "abc":
        (tmp_path / name).touch()
    (tmp_path / "d.parquet").touch()
    assert [Path(one).name for one in files.data_files(str(tmp_path))] == ["d.parquet"]
    (tmp_path / "e").touch()
    with pytest.raises(CaviaError, match="holds over 3 other files; give the folder of the Parquet files"):
        files.data_files(str(tmp_path))
