"""A table's model: rows, by the code of `cavia adapt` and `cavia predict`."""

import csv

import pytest

from cavia.cli import main
from cavia.tables.model import load_table_model
from cavia.tables.reading import read_table

ROWS = [
    {"user_id": "ann", "age": 31, "kind": "home", "y": 1.5},
    {"user_id": "bob", "age": 45.5, "kind": "work", "y": 2.0},
    {"user_id": "ann", "age": None, "kind": "work", "y": 0.25},
    {"user_id": 7, "age": "50", "kind": "boat", "y": 3},
    {"user_id": "ann", "age": 33, "kind": "home", "y": None},
]


def queries():
    return [{name: value for name, value in row.items() if name != "y"} for row in ROWS]


@pytest.fixture
def ask(serving, table_models):
    with serving(table_models / "number.cavia") as ask:
        yield ask


def test_rows_are_adapted_to_and_predicted_as_by_the_commands(ask, table_models, tmp_path):
    status, answer = ask("POST", "/adapt", {"rows": ROWS})
    assert status == 200
    assert set(answer["tasks"]) == {"ann", "bob", "7"}
    assert answer["rows_without_target"] == 1
    assert answer["unknown_categories"] == {"kind": 1}
    assert answer["missing_values"] == {"age": 1}
    status, predicted = ask("POST", "/predict", {"rows": queries()})
    assert status == 200

    write_rows(tmp_path / "rows.csv")
    model, table, contexts, out = (
        str(path)
        for path in (table_models / "number.cavia", tmp_path / "rows.csv", tmp_path / "own", tmp_path / "out.csv")
    )
    assert main(["adapt", model, table, "--out", contexts]) == 0
    assert main(["predict", model, table, "--contexts", contexts, "--out", out]) == 0
    with (tmp_path / "out.csv").open() as file:
        wanted = [float(row["prediction"]) for row in csv.DictReader(file)]
    assert [row["prediction"]["y"] for row in predicted["rows"]] == pytest.approx(wanted, rel=1e-5)
    names, adapted, _ = load_table_model(model).adapt(read_table(table))
    for name, context in zip(names, adapted.context.tolist(), strict=True):
        assert answer["tasks"][name]["context"] == pytest.approx(context, rel=1e-4, abs=1e-6)


def write_rows(path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    return str(path)


def test_intervals_are_those_of_the_commands(ask, table_models, tmp_path):
    assert ask("GET", "/model")[1]["intervals"] is True
    ask("POST", "/adapt", {"rows": ROWS})
    status, answer = ask("POST", "/predict", {"rows": queries(), "interval": 0.8})
    assert status == 200
    model, table, out = str(table_models / "number.cavia"), write_rows(tmp_path / "rows.csv"), tmp_path / "out.csv"
    store = str(tmp_path / "contexts")
    assert main(["predict", model, table, "--contexts", store, "--interval", "0.8", "--out", str(out)]) == 0
    with out.open() as file:
        wanted = [(float(row["low"]), float(row["high"])) for row in csv.DictReader(file)]
    assert [tuple(row["interval"]["y"]) for row in answer["rows"]] == [pytest.approx(ends, rel=1e-4) for ends in wanted]
    for level in (0, 1, "0.9", True, 0.9999):
        assert ask("POST", "/predict", {"rows": queries(), "interval": level})[0] == 422
    assert "interval" not in ask("POST", "/predict", {"rows": queries(), "interval": None})[1]["rows"][0]


def test_classes_have_probabilities(serving, table_models):
    rows = [{**row, "y": "high" if i % 2 else "low"} for i, row in enumerate(ROWS)]
    with serving(table_models / "class.cavia") as ask:
        assert ask("POST", "/adapt", {"rows": rows})[0] == 200
        _, answer = ask("POST", "/predict", {"rows": queries()})
        assert "intervals are for numbers" in ask("POST", "/predict", {"rows": queries(), "interval": 0.9})[1]["detail"]
        about = ask("GET", "/model")[1]
    for row in answer["rows"]:
        shares = row["probabilities"]
        assert set(shares) == {"high", "low"}
        assert sum(shares.values()) == pytest.approx(1)
        assert row["prediction"] == {"y": max(shares, key=shares.get)}
    assert about["targets"] == {"y": {"type": "category", "values": ["high", "low"]}}
    assert about["columns"]["age"] == {"type": "number"}
    assert (about["takes"], about["task"]) == ("rows", "user_id")


def with_cell(name, value, row=1):
    return [{**one, name: value} if i == row else one for i, one in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (with_cell("age", "old"), "row 1 (counting from 0), column 'age': 'old' is not a number"),
        (with_cell("age", 1e300), "row 1 (counting from 0), column 'age'"),
        (with_cell("age", [1]), "row 1, column 'age': must be a number, a text or null, got [1]"),
        (with_cell("y", "high"), "column 'y': 'high' is not a number"),
        (with_cell("user_id", None), "no value; every row must name its task"),
        (with_cell("user_id", "a\0b"), "an id must not hold the character NUL"),
        (with_cell("user_id", "x" * 501), "an id has 1 to 500 characters, got 501"),
        (with_cell("agee", 3), "row 1 has 'agee', row 0 has not; write null where a value is missing"),
        (with_cell("agee", 3, row=0), "row 0 has 'agee', row 1 has not"),
        ([{"user_id": "ann", "y": 1}], "has no column 'age'"),
        ([{**ROWS[0], "y": None}], "have no row with a value in 'y' to adapt on: 'ann'"),
        ([], '"rows" must be a list of objects'),
        ([3], '"rows" must be a list of objects'),
        ({}, '"rows" must be a list of objects'),
    ],
)
def test_wrong_rows_are_named(ask, rows, said):
    status, answer = ask("POST", "/adapt", {"rows": rows})
    assert (status, said in answer["detail"]) == (422, True), answer


def test_a_not_a_number_in_a_row_is_a_missing_value_or_named(ask):
    body = b'{"rows": [{"user_id": "ann", "age": Infinity, "kind": "home", "y": 1}]}'
    status, answer = ask("POST", "/adapt", body)
    assert status == 422
    assert "column 'age'" in answer["detail"]


def test_tasks_are_not_rows(ask):
    said = ask.adapt({"ann": {"x": [[1]], "y": [[1]]}})
    assert said == (422, {"detail": 'this model was trained on a table: send "rows", not "tasks"'})
    status, answer = ask("POST", "/predict", {"rows": queries()[:1]})
    assert (status, answer["detail"]) == (422, "'ann' has no context to predict by; adapt first")
    assert ask("POST", "/predict", {"rows": queries(), "unknown": "start"})[0] == 200
