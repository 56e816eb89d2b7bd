"""Tasks from a user's own data: nothing is cut, splits are by task, what is wrong is named."""

import sys

import numpy as np
import pytest
import torch

import cavia
from cavia.tables.encoding import Encoding, fit_encoding
from cavia.tables.reading import read_table

SIZES = (3, 9, 30, 12, 2, 7, 8, 20)


def own(sizes=SIZES, **options):
    """Tasks whose points carry the number of their task and their place in it."""
    generator = torch.Generator().manual_seed(0)
    points = [
        (torch.stack([torch.full((n,), i), torch.arange(n)], 1).float(), torch.rand(n, generator=generator))
        for i, n in enumerate(sizes)
    ]
    return cavia.Tasks(points, **{"splits": {"train": range(len(sizes))}, "support": 5} | options)


def test_every_point_of_a_task_is_used_once_and_padding_is_masked():
    family = own()
    batch = family.sample(8, 5, family.query, torch.Generator().manual_seed(0))
    assert sorted(batch.attributes["task"].tolist()) == list(range(8))
    for row, task in enumerate(batch.attributes["task"].tolist()):
        known, rest = batch.support_x[row][batch.support_mask[row]], batch.query_x[row][batch.query_mask[row]]
        assert len(known) == min(5, SIZES[task] - 1)
        both = torch.cat([known, rest])
        assert (both[:, 0] == task).all()
        assert sorted(both[:, 1].tolist()) == list(range(SIZES[task]))
        assert (batch.support_x[row][~batch.support_mask[row]] == 0).all()


def test_equal_sizes_need_no_mask():
    batch = own((6, 6, 6)).sample(3, 2, 4, torch.Generator())
    assert batch.support_mask is None
    assert batch.query_mask is None


def test_ordered_support_are_the_first_points():
    batch = own(order="ordered").sample(8, 2, 29, torch.Generator())
    for row in range(8):
        known = batch.support_x[row, :, 1]
        assert known.tolist() == ([0, 1] if batch.support_mask[row].all() else [0, 0])
        assert batch.query_x[row, 0, 1] == batch.support_mask[row].sum()


def test_more_tasks_than_there_are_come_in_rounds():
    drawn = own().sample(20, 2, 3, torch.Generator()).attributes["task"]
    assert sorted(drawn[:8].tolist()) == sorted(drawn[8:16].tolist()) == list(range(8))


def test_splits_are_by_task():
    family = cavia.Tasks([(np.zeros((4, 2)), np.zeros(4))] * 40)
    assert {name: len(chosen) for name, chosen in family.splits.items()} == {"train": 28, "val": 6, "test": 6}
    assert len({name for chosen in family.splits.values() for name in chosen}) == 40
    again, other = (cavia.Tasks([(np.zeros((4, 2)), np.zeros(4))] * 40, seed=seed) for seed in (0, 1))
    assert again.splits == family.splits != other.splits
    assert again.settings == family.settings != other.settings


def test_anything_that_can_be_listed():
    pairs = [(np.ones((5, 2)), np.array([0, 1, 2, 1, 0]))] * 4
    for tasks in (iter(pairs), tuple(pairs), dict(zip("abcd", pairs, strict=True))):
        family = cavia.Tasks(tasks, splits=(0.5, 0.25, 0.25))
        assert family.x.dtype == torch.float32
        assert family.y.shape == (20,)  # whole numbers stay labels


def pair(n=4, width=2):
    return np.zeros((n, width)), np.zeros(n)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: cavia.Tasks({"a": pair(), "b": pair(1), "c": pair(0)}),
            r"2 of 3 tasks have fewer than 2 points, .*: 'b' \(1\), 'c' \(0\); leave them out with too_small='drop'",
        ),
        (lambda: cavia.Tasks([]), "there are no tasks with at least 2 points"),
        (lambda: cavia.Tasks([pair(), pair(), pair(4, 3)]), r"inputs of '0' are \[4, 2\] .*, of '2' \[4, 3\]"),
        (lambda: cavia.Tasks([3]), r"tasks\['0'\] must be a pair \(x, y\), got 3"),
        (lambda: cavia.Tasks([(np.zeros(3), np.zeros(4))]), r"has 3 inputs \[3, 1\] but 4 targets"),
        (lambda: cavia.Tasks([(np.array([1, np.nan]), np.zeros(2))]), "task '0' holds a number that is not finite"),
        (lambda: cavia.Tasks([(np.array([1, 1e39]), np.zeros(2))]), r"1e\+39 at point 1; at most 3.4e\+38"),
        (
            lambda: cavia.Tasks([(np.array([1, 2j]), np.zeros(2))]),
            "task '0' must hold real numbers, got torch.complex128",
        ),
        (lambda: cavia.Tasks({1: pair(), "1": pair()}), "two tasks have the name '1': 1 and '1'"),
        (lambda: cavia.Tasks(torch.tensor(1.0)), r"tasks must be pairs \(x, y\)"),
        (
            lambda: own().sample(10**12, 2, 2, torch.Generator()),
            "a batch with tasks=1000000000000, support=2, .* memory",
        ),
        (lambda: cavia.Tasks([pair()] * 2), "2 tasks are too few for the splits"),
        (lambda: cavia.Tasks([pair()] * 9, splits=(0.5, 0.2)), "three shares for train, val and test"),
        (lambda: cavia.Tasks([pair()] * 3, splits={"train": [0, 1]}), "1 tasks are in no split: '2'"),
        (lambda: cavia.Tasks([pair()] * 2, splits={"train": [0, 1], "test": [1]}), "the task '1' is in two splits"),
        (lambda: cavia.Tasks([pair()] * 2, splits={"train": [0, 7]}), "names the task '7', which is not there"),
        (lambda: cavia.Tasks([pair()] * 9, order="sorted"), "unknown order 'sorted'; did you mean 'ordered'"),
        (lambda: own().sample(2, 2, 2, torch.Generator(), "val"), "no task is in the split 'val'"),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(cavia.CaviaError, match=message):
        build()


def test_dropped_tasks_are_named():
    family = cavia.Tasks({"a": pair(), "b": pair(1), "c": pair(3), "d": pair(5)}, too_small="drop")
    assert family.dropped == ("b",)
    assert family.names == ("a", "c", "d")


CSV = """user,age,city,y
007,30,Oslo,1.5
007,,Rome,2.5
8,40,Oslo,
8,50,,4.5
8,50,Rome,3.5
"""


def test_a_csv_file_with_numbers_categories_and_gaps(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(CSV)
    family = cavia.Tasks.from_table(path, "user", "y", splits={"train": ["007", "8"]})
    assert family.names == ("007", "8")
    assert family.sizes.tolist() == [2, 2]  # the row without a target is left out
    assert family.x.shape == (4, 2 + 3)  # age and whether it is there; (missing), Oslo, Rome
    assert family.x[1].tolist() == [0, 1, 0, 0, 1]
    assert family.x[2, 2:].tolist() == [1, 0, 0]
    age = family.encoding.inputs[0]
    assert (age.mean, age.has_missing) == (42.5, True)
    torch.testing.assert_close(family.encoding.decode(family.y), {"y": [1.5, 2.5, 4.5, 3.5]})


def test_an_encoding_survives_json_and_meets_new_categories():
    table = read_table({"u": ["a", "a"], "c": ["x", "y"], "n": [1.0, 3.0], "y": ["no", "yes"]})
    encoding = fit_encoding(table, "u", "y")
    assert Encoding.from_json(encoding.as_json()) == encoding
    assert (encoding.loss, encoding.outputs) == ("cross_entropy", 2)
    new = read_table({"c": ["z", None], "n": [None, 2]})
    assert encoding.encode_inputs(new).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert encoding.decode(torch.tensor([[0.0, 1.0]])) == {"y": ["yes"]}
    with pytest.raises(cavia.CaviaError, match=r"row 0 \(counting from 0\), column 'n': 'many' is not a number; fix"):
        encoding.encode_inputs(read_table({"c": ["x"], "n": ["many"]}))
    with pytest.raises(cavia.CaviaError, match="'perhaps' is not a class of the training tasks: 'no', 'yes'"):
        encoding.encode_targets(read_table({"y": ["perhaps"]}))
    with pytest.raises(cavia.CaviaError, match="has no column 'n'; it has 'c'"):
        encoding.encode_inputs(read_table({"c": ["x"]}))


def test_standardisation_is_by_the_training_tasks_only():
    table = {"u": ["a"] * 2 + ["b"] * 2 + ["c"] * 2, "x": [0, 2, 100, 200, 1000, 2000], "y": [0.0, 2, 9, 9, 9, 9]}
    family = cavia.Tasks.from_table(table, "u", "y", splits={"train": ["a"], "val": ["b"], "test": ["c"]})
    assert (family.encoding.inputs[0].mean, family.encoding.target.scale) == (1.0, 1.0)


def test_data_frames_arrow_tables_and_parquet_files_are_the_same(tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "table.csv").write_text(CSV)
    frame = pandas.read_csv(tmp_path / "table.csv", dtype={"user": str})
    arrow = pyarrow.Table.from_pandas(frame)
    parquet.write_table(arrow, tmp_path / "table.parquet")
    families = [
        cavia.Tasks.from_table(source, "user", "y", splits={"train": ["007", "8"]})
        for source in (tmp_path / "table.csv", frame, arrow, tmp_path / "table.parquet")
    ]
    for family in families[1:]:
        assert family.encoding == families[0].encoding
        assert torch.equal(family.x, families[0].x)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "there is no file"),
        ("empty.csv", "", "is empty; its first line must name the columns"),
        ("header.csv", "user,x,y\n", "header.csv has no rows"),
        ("semicolons.csv", "user;x;y\na;1;1\n", "separates its columns by ';', but a .csv does so by ','"),
        ("tabs.csv", "user\tx\ty\na\t1\t1\n", r"separates its columns by '\\t', but a .csv does so by ','"),
        ("open.csv", 'user,x,y\na,1,1\n"' + "b,2,2\n" * 30_000, "line 3: field larger .*is a quotation mark never cl"),
        ("western.csv", b"user,x,y\n\xfc,1,1\n", "can't decode byte 0xfc .*; save it as UTF-8"),
        ("ragged.csv", "a,b\n1\n", "line 2: 1 values, but the header names 2 columns"),
        ("twice.csv", "a,a\n1,2\n", "every column needs a name of its own; 'a' appears twice"),
        ("table.xls", "a", "tables are .csv, .tsv or .parquet"),
        ("broken.parquet", "a", "is not a Parquet file"),
        ("gap.csv", "user,x,y\na,1,1\n,2,2\n", "line 3, column 'user': no value"),
        ("other.csv", "usr,x,y\na,1,1\n", "has no column 'user'; the nearest are 'usr'"),
        ("alone.csv", "user,y\na,1\nb,2\nc,3\n", "a network needs at least one input"),
        (
            "infinite.csv",
            "user,x,y\na,inf,1\nb,2,2\nc,3,3\nd,1,1\n",
            r"line 2, column 'x': 'inf' is too large a number, at most 1e\+100",
        ),
        ("bare.csv", "user,x,y\na,,1\nb,,2\nc,,3\nd,,1\n", "column 'x' has no values in the training tasks"),
        ("many.csv", "user,x,y\n" + "".join(f"{i},l{i},1\n" for i in range(200)), "140 categories, more than 100"),
    ],
)
def test_bad_tables_are_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.Tasks.from_table(tmp_path / name, "user", "y")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "table.parquet").write_text("")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(cavia.CaviaError, match=r"reading Parquet needs pyarrow: pip install 'cavia-torch\[tables\]'"):
        read_table(tmp_path / "table.parquet")


def test_a_tensor_is_not_taken_for_pairs():
    with pytest.raises(cavia.CaviaError, match=r"pairs \(x, y\), got a Tensor \[4, 2, 4\]"):
        cavia.Tasks(torch.zeros(4, 2, 4))


def test_very_many_tasks_of_few_come_equally_often():
    family = cavia.Tasks([(torch.zeros(2, 1), torch.zeros(2, 1))] * 3, splits=(1, 0, 0))
    batch = family.sample(300_000, 1, 1, torch.Generator().manual_seed(0))
    assert batch.attributes["task"].bincount().tolist() == [100_000] * 3
