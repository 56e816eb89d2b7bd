"""CSV files: what is written is read back as it was, and no spreadsheet computes it."""

import csv
import io

import pytest
from hypothesis import given, settings, strategies as st

import cavia
from cavia.tables.cells import as_number
from cavia.tables.reading import read_table
from cavia.tables.writing import csv_bytes, write_predictions

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("=+-@'\t\r\n\",;0123456789.e"), max_size=8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("csv") / "t.csv"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(text, text), min_size=1, max_size=4))
def test_a_csv_file_is_read_back_as_it_was(path, rows):
    path.write_bytes(csv_bytes(["a", "=b"], rows))
    table = read_table(path)
    assert list(table) == ["a", "=b"]
    assert list(zip(table["a"], table["=b"], strict=True)) == rows


@settings(max_examples=200, deadline=None)
@given(text)
def test_no_cell_is_a_formula(cell):
    (written,) = list(csv.reader(io.StringIO(csv_bytes(["a"], [[cell]]).decode(), newline="")))[1] or [""]
    assert not written.startswith(FORMULAS) or as_number(written) is not None


def test_predictions_stand_beside_the_table(tmp_path):
    table = read_table({"u": ["=1+1", "b"], "x": [1.5, float("nan")]})
    write_predictions(tmp_path / "one.csv", table, {"y": [0.5, -2.0]})
    assert (tmp_path / "one.csv").read_text() == "u,x,prediction\n'=1+1,1.5,0.5\nb,,-2\n"
    write_predictions(tmp_path / "two.csv", table, {"y": [0.5, 1.0], "z": ["-a", "b"]})
    assert (tmp_path / "two.csv").read_text().splitlines()[:2] == ["u,x,prediction_y,prediction_z", "'=1+1,1.5,0.5,'-a"]
    with pytest.raises(cavia.CaviaError, match="has a column 'prediction' already; rename it"):
        write_predictions(tmp_path / "three.csv", read_table(tmp_path / "one.csv"), {"y": [1.0, 2.0]})
