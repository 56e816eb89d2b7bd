from pathlib import Path
from typing import Any

import pytest

from cavia.errors import CaviaError
from cavia.paper.report.page import write_report
from cavia.paper.report.reading import read_results
from tests.paper.report.results import lines, result, table, write


def test_cells_and_files_of_others_are_left_out(tmp_path):
    write(tmp_path / "run", result())
    write(tmp_path / "run" / "cells" / "one", "not even JSON")
    write(tmp_path / "other", {"loss": 0.2})
    write(tmp_path / "list", [1, 2])
    assert [read["experiment"] for read in read_results([tmp_path])] == ["table1"]


def test_a_folder_inside_cells_can_be_asked_for(tmp_path):
    write(tmp_path / "cells" / "run", result())
    assert len(read_results([tmp_path / "cells"])) == 1


def test_no_result_names_the_folders_and_the_fix(tmp_path):
    folders = [tmp_path / "empty", tmp_path / "missing"]
    folders[0].mkdir()
    with pytest.raises(CaviaError) as error:
        write_report(folders, tmp_path / "out")
    assert all(text in str(error.value) for text in (*map(str, folders), "cavia run table1 --quick"))
    assert not (tmp_path / "out").exists()


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in result().items() if name != key}


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ("{", "not valid JSON"),
        (without("title"), "title is missing"),
        (result(format=2), "format must be 1, got 2"),
        (result(budget="huge"), "budget must be 'full' or 'quick'"),
        (result(seeds="three"), "seeds must be a whole number"),
        (result(seeds=True), "seeds must be a whole number"),
        (result(experiment="../x"), "experiment must be letters"),
        (result(settings=[]), "settings must be an object"),
        (result(tables={}), "tables must be a list"),
        (result(tables=[table() | {"digits": -1}]), "tables[0].digits must be at least 0"),
        (result(tables=[table() | {"columns": ["0"]}]), "tables[0].rows[0].cells must have as many entries as columns"),
        (
            result(
                tables=[table() | {"rows": [{"label": "CAVIA", "cells": [{"ours": {"mean": "x"}, "paper": None}]}]}]
            ),
            "tables[0].rows[0].cells[0].ours.mean must be a finite number, got 'x'",
        ),
        (result(seconds=float("nan")), "seconds must be a finite number"),
        (result(figures=[lines() | {"kind": "pie"}]), "figures[0].kind must be 'lines'"),
        (result(figures=[lines() | {"kind": []}]), "figures[0].kind must be 'lines'"),
        (result(figures=[lines(name="a/b")]), "figures[0].name must be letters"),
        (
            result(figures=[lines() | {"series": [{"label": "CAVIA", "x": [1, 2], "y": [1]}]}]),
            "figures[0].series[0].y must have as many entries as x (2), got 1",
        ),
        (result(claims=[{"claim": "so", "evidence": "see"}]), "claims[0].holds is missing"),
    ],
)
def test_a_malformed_result_names_the_file_and_the_key(content, key, tmp_path: Path):
    path = write(tmp_path / "run", content)
    with pytest.raises(CaviaError) as error:
        write_report([tmp_path], tmp_path / "out")
    assert str(path) in str(error.value)
    assert key in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()
