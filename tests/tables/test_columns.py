"""What a column is: number, category or date, by all of its cells; what fits none is named with its place."""

import math
from datetime import UTC, date, datetime

import numpy as np
import pytest
import torch

import cavia
from cavia.tables.columns import Category, Date, Number
from cavia.tables.deciding import decide
from cavia.tables.encoding import fit_encoding
from cavia.tables.reading import Table, read_table


def tasks(values, target=None, **options):
    """Three tasks of a table with a column `x` of these values, repeated so that each task has some."""
    values = list(values)
    count = 3 * len(values)
    table = {"u": sorted(["a", "b", "c"] * len(values)), "x": values * 3}
    table["y"] = [0.5 * i for i in range(count)] if target is None else list(target) * 3
    splits = {"train": ["a"], "val": ["b"], "test": ["c"]}
    return cavia.Tasks.from_table(table, "u", "y", splits=splits, **options)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, 2.5, None], "number"),
        (["1", " -2.5 ", "NA", "1e-3", "+.5"], "number"),
        (["01234", "12345"], "category"),
        (["007", "b7", "12"], "category"),
        (["red", "", "blue"], "category"),
        ([True, False], "category"),
        (["2024-03-31", "1999/1/2", None], "date"),
        (["2024-03-31T17:45", "2024-03-31 17:45:10.5+02:00"], "date"),
        ([date(2024, 1, 2), datetime(2024, 1, 2, 3)], "date"),
        (["18-25", "26-40"], "category"),
        (["1.2.3", "1.10.0"], "category"),
    ],
)
def test_a_type_is_that_of_all_cells(cells, kind):
    assert decide(read_table({"x": cells}), "x") == kind


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["1.5"] * 3 + ["1.5x"],
            r"row 3 \(counting from 0\), column 'x': '1.5x' is not a number, but 3 of 4 values are",
        ),
        (["a", "b", "3"], r"row 2 .*: '3' is not text, but 2 of 3 values are text; fix it, or make the column a cat"),
        (["2024-01-01", "2024-01-02", "2024-02-31"], "row 2 .*: '2024-02-31' looks like a date, but is not written"),
        (["2024-01-01", "2024-01-02", "soon"], "row 2 .*: 'soon' is not a date, but 2 of 3 values are dates"),
        (["1,5", "2,5"], r"row 0 .*: '1,5' looks like a number, .* like 1234.5, or .* with category=\['x'\]"),
        (["$5", "7"], "row 0 .* looks like a number"),
        (["03/04/2024"], "looks like a date, but is not written as one; write it year first"),
        (["31. Dec 2024"], "looks like a date"),
        (["01", "1.5"], r"with category=\['x'\], or a number with number=\['x'\]"),
        ([[1], 2.0], r"row 0 .* \(list\) is neither a number nor text nor a date"),
        ([1 + 2j], "complex"),
        (["a\ud800"], "half a character"),
    ],
)
def test_a_column_that_is_none_is_named_with_its_cell(cells, message):
    with pytest.raises(cavia.CaviaError, match=message):
        decide(read_table({"x": cells}), "x")


def test_the_line_of_a_file_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('u,x,y\n\na,"two\nlines",1\nb,c,2x\nc,d,3\n')
    table = read_table(path)
    assert table.lines == [3, 5, 6]
    with pytest.raises(cavia.CaviaError, match=r"t.csv, line 5, column 'y': '2x' is not a number"):
        decide(table, "y")


def test_types_can_be_settled():
    assert isinstance(tasks(["1", "2", "x"], category="x").encoding.inputs[0], Category)
    assert isinstance(tasks(["01", "02"], number=["x"]).encoding.inputs[0], Number)
    assert isinstance(tasks([20240101, 20240102], date="x").encoding.inputs[0], Date)
    with pytest.raises(cavia.CaviaError, match=r"column 'x': '1.5x' is not a number"):
        tasks(["1", "1.5x"], number="x")
    with pytest.raises(cavia.CaviaError, match=r"column 'x': 'soon' is not a date like 2024-03-31"):
        tasks(["2024-01-01", "soon"], date="x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": "x", "category": ["x"]}, "column 'x' cannot be a number and a category"),
        ({"category": "y", "problem": "regression"}, "'y' cannot be a category and the target of a regression"),
        ({"problem": "classify"}, "unknown problem 'classify'; did you mean 'classification'"),
        ({"category": "z"}, "has no column 'z'"),
        ({"category": "u"}, "column 'u' has no type to settle"),
        ({"inputs": ["x", "x"]}, "inputs names the column 'x' twice"),
        ({"inputs": "xy"}, "has no column 'xy'"),
    ],
)
def test_settling_is_checked(options, message):
    with pytest.raises(cavia.CaviaError, match=message):
        tasks([1, 2], **options)


def test_digits_that_float64_cannot_hold_are_named():
    far = 2**60
    for cells in ([far + 1, far, far + 2], [f"{far}", f"{far + 1}", f"{far + 2}"], [far + 1] * 3):
        with pytest.raises(cavia.CaviaError, match=r"column 'x': .* has more digits than .* with category=\['x'\]"):
            tasks(cells)
    nanoseconds = [1_700_000_000_000_000_001 + 3_600_000_000_000 * hour for hour in range(3)]
    assert tasks(nanoseconds).encoding.inputs[0].scale > 1e12  # what is lost is nothing beside the spread
    assert isinstance(tasks([far + 1, far, far + 2], category="x").encoding.inputs[0], Category)


def test_times_with_and_without_a_zone_are_not_mixed():
    with pytest.raises(cavia.CaviaError, match=r"row 1 .*Z' has a time zone, but row 0 .* has none"):
        tasks(["2024-01-01 10:00", "2024-01-02T10:00Z"])
    with pytest.raises(cavia.CaviaError, match="has a time zone"):
        tasks([datetime(2024, 1, 2, 3, tzinfo=UTC), datetime(2024, 1, 2, 3)])
    summer_and_winter = ["2024-03-30T10:00+01:00", "2024-03-31T10:00+02:00", "2024-04-01"]
    assert isinstance(tasks(summer_and_winter).encoding.inputs[0], Date)


def test_one_class_is_none():
    with pytest.raises(cavia.CaviaError, match="column 'y' holds only the class 'cat'; at least 2 are needed"):
        tasks([1, 2], ["cat", "cat"])


def test_values_that_are_missing_as_never_in_training_are_counted():
    cells = {"n": [1.0, 2.0], "c": ["a", "b"], "d": ["2024-01-01", "2024-01-02"]}
    gaps = {"n": [1.0, None], "c": [None, None], "d": [None, "2024-01-01"]}
    encoding = fit_encoding(read_table({"u": ["a", "a"], "y": [1.0, 2.0], **cells}), "u", "y")
    assert encoding.filled(read_table(cells)) == {}
    assert encoding.filled(read_table(gaps)) == {"n": 1, "c": 2, "d": 1}
    with_gaps = fit_encoding(read_table({"u": ["a", "a"], "y": [1.0, 2.0], "n": gaps["n"]}), "u", "y")
    assert with_gaps.filled(read_table(gaps)) == {}


def test_a_string_is_one_column():
    table = {"u": ["a", "a", "b", "b", "c", "c"], "va": [1, 2, 3, 4, 5, 6], "y": [0.5, 1, 2, 3, 4, 5]}
    assert cavia.Tasks.from_table(table, "u", "y", inputs="va").encoding.inputs[0].name == "va"


@pytest.mark.parametrize("target", [[0, 1, 1], [0.0, 1.0, None], ["0", "1", "1"], [1, 0, 1]])
def test_zero_and_one_are_two_classes(target):
    family = tasks([1, 2, 3], target)
    assert family.encoding.targets == (Category("y", ("0", "1")),)
    assert family.y.dtype == torch.int64
    family = tasks([1, 2, 3], target, problem="regression")
    assert isinstance(family.encoding.target, Number)
    assert isinstance(tasks([1, 2, 3], target, number="y").encoding.target, Number)


def test_whole_numbers_are_a_regression_unless_said_otherwise():
    assert isinstance(tasks([1, 2, 3], [0, 1, 2]).encoding.target, Number)
    assert tasks([1, 2, 3], [0, 1, 2], problem="classification").encoding.target.levels == ("0", "1", "2")


def test_categories_of_numbers_are_the_same_however_they_are_written():
    encoding = tasks([1, 2, 10], category="x").encoding
    for cells in ([1, 2, 10], [1.0, 2.0, 10.0], ["1", "2.0", "10.00"]):
        assert encoding.encode_inputs(read_table({"x": cells})).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_pandas_categories_are_categories():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": pandas.Categorical([10, 20]), "z": pandas.Categorical(["01234", "1"])})
    table = read_table(frame)
    assert [decide(table, name) for name in frame] == ["category", "category"]
    arrow = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    assert decide(read_table(arrow), "x") == "category"


def test_several_targets():
    table = {"u": list("aabbcc"), "x": [1, 2, 3, 4, 5, 6], "y": [1.0, 2, 3, 4, 5, 7], "z": [10.0, None, 30, 40, 50, 60]}
    family = cavia.Tasks.from_table(table, "u", ["y", "z"], too_small="drop", splits={"train": ["a", "b", "c"]})
    assert family.y.shape == (4, 2)  # without the row that has no z, a is too small
    assert family.encoding.outputs == 2
    assert family.encoding.decode(family.y)["z"] == pytest.approx([30, 40, 50, 60])
    table["z"] = [0, 1, 1, 0, 0, 1]
    with pytest.raises(cavia.CaviaError, match=r"all be numbers, 'z' holds classes; fit it alone, or .*number=\['z'\]"):
        cavia.Tasks.from_table(table, "u", ["y", "z"])
    for wrong, message in (
        (["y", "y"], "twice"),
        ([], "one or more"),
        ("u", "besides the task"),
        (["y", "x"], "least one"),
    ):
        with pytest.raises(cavia.CaviaError, match=message):
            cavia.Tasks.from_table(table | {"z": table["x"]}, "u", wrong, inputs=[] if "x" in wrong else None)


def test_a_date_is_what_a_calendar_says():
    column = Date.fit(read_table({"d": ["2023-01-01", "2025-01-01"]}), "d", np.ones(2, dtype=bool))
    assert (column.mean, column.scale, column.has_time, column.width) == (2024.0, 1.0, False, 22)
    row = column.encode(read_table({"d": ["2025-04-02"]}))[0].tolist()  # a Wednesday, 91 days after new year
    assert row[0] == pytest.approx(1 + 91 / 365)
    angle = 2 * math.pi * 91 / 365
    assert row[1:3] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-9)
    assert row[3:15].index(1) == 3
    assert row[15:22].index(1) == 2
    assert sum(row[3:]) == 2


def test_dates_with_a_time_have_an_hour_and_missing_ones_say_so():
    table = read_table({"d": ["2023-01-01 06:00", None, "2024-01-01"]})
    column = Date.fit(table, "d", np.ones(3, dtype=bool))
    encoded = column.encode(table)
    assert encoded.shape == (3, column.width) == (3, 25)
    assert encoded[0, 22:].tolist() == pytest.approx([1, 0, 0], abs=1e-9)
    assert encoded[1].tolist() == [0] * 24 + [1]


@pytest.mark.parametrize("large", ["1e160", 1e308, float("inf"), 10**400, "1" + "0" * 400, -(10**400), "1e101"])
def test_numbers_that_cannot_be_computed_with_are_named(large):
    with pytest.raises(cavia.CaviaError, match=r"row 2 .*, column 'x': .*1.* is too large a number, at most 1e\+100"):
        tasks([1, 2, large, 3]) if large != float("inf") else tasks([1, 2, "1e999", 3])


def test_one_large_number_that_hides_the_others_is_named():
    with pytest.raises(
        cavia.CaviaError, match=r"row 2 .*, column 'x': 1e\+30 is so large that a network could not tell"
    ):
        tasks([1.0, 2.0, 1e30, 3.0])
    assert tasks([1.0, 2.0, 1e4, 3.0]).x.unique().numel() == 4


@pytest.mark.parametrize("unit", [1e-300, 1e-120, 1.0, 1e90])
def test_numbers_of_any_size_are_standardised(unit):
    x = tasks([unit, 2 * unit, 3 * unit]).x[:3, 0]
    torch.testing.assert_close(x, torch.tensor([-1.2247449, 0, 1.2247449]), rtol=1e-5, atol=1e-6)


def test_equal_numbers_become_zero_whatever_they_are():
    family = tasks([0.1] * 10)
    assert (family.encoding.inputs[0].scale, family.x.abs().max().item()) == (1.0, 0.0)


def test_numbers_far_from_training_are_named():
    encoding = tasks([1.0, 2.0]).encoding
    with pytest.raises(
        cavia.CaviaError, match=r"row 1 .*, column 'x': 1e\+39 is too far .*, at most 1e\+09 deviations"
    ):
        encoding.encode_inputs(read_table({"x": [1.0, 1e39]}))
    with pytest.raises(cavia.CaviaError, match="column 'y'"):
        encoding.encode_targets(read_table({"y": [1e39]}))


def test_na_is_a_name_but_no_number():
    table = {"u": ["NA", "NA", "null", "null", "None", "None"], "x": ["1", "NA", "2", "3", "4", "5"], "y": [1.5] * 6}
    family = cavia.Tasks.from_table(table, "u", "y", number="y")
    assert family.names == ("NA", "null", "None")


def test_the_table_itself_is_checked():
    for source, message in (
        ({1: [1], "1": [2]}, "'1' appears twice"),
        ({"x": [1], "y": [1, 2]}, "of one length"),
        ({"x": [[1, 2], [3, 4]]}, "column 'x' must have one axis"),
        (3, "a table is a file, a data frame, a mapping of columns or a list of rows, got int"),
    ):
        with pytest.raises(cavia.CaviaError, match=message):
            read_table(source)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(cavia.CaviaError, match="'a' appears twice"):
        read_table(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


def test_an_encoding_is_fitted_to_all_rows_by_default():
    encoding = fit_encoding(Table(read_table({"u": ["a"], "x": [1], "y": [2.0]})), "u", "y")
    assert (encoding.target.mean, encoding.inputs[0].mean) == (2.0, 1.0)
