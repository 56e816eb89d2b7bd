import io

import pytest
from rich.console import Console

from cavia.paper.report.tables import markdown_table, markdown_text, number, text_table
from tests.paper.report.results import estimate, table


@pytest.mark.parametrize(
    ("shown", "digits", "expected"),
    [
        (estimate(0.204, 0.0181), 2, "0.20 ± 0.02"),
        (estimate(59.05), 2, "59.05"),
        (estimate(0.024, 0.00031), 3, "0.024 ± 0.0003"),  # not ± 0.000
        (estimate(0.024, 0.0005), 3, "0.024 ± 0.001"),
        (estimate(0.0, 0.00097), 2, "0.00 ± 0.0010"),
        (estimate(1.0, 0.0), 2, "1.00"),
        (estimate(1.5e9), 2, "1.5e+09"),
        ({"mean": 7}, 0, "7"),
        (None, 2, "–"),
    ],
)
def test_numbers_are_printed_like_the_papers(shown, digits, expected):
    assert number(shown, digits) == expected


def test_terminal_shows_ours_above_the_papers_with_the_verdict():
    console = Console(file=io.StringIO(), width=120)
    console.print(text_table(table()))
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["CAVIA", "ours", "–", "0.99", "±0.05", "0.21", "0.19", "±0.02"] in rows
    assert ["paper", "–", "0.84", "±0.06", "0.21", "±0.02", "–"] in rows
    assert ["verdict", "short", "within"] in rows


def test_terminal_does_not_read_markup_in_labels():
    odd = table()
    odd["rows"][0]["label"] = "[red]CAVIA[/]"
    console = Console(file=io.StringIO(), width=120)
    console.print(text_table(odd))
    assert "[red]CAVIA[/]" in console.file.getvalue()


def test_markdown_table_has_one_cell_for_each_column():
    lines = [line for line in markdown_table(table()).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {7}
    assert "| **CAVIA** | ours | – | 0.99 ± 0.05 | 0.21 | 0.19 ± 0.02 |" in lines
    assert "|  | note |  |  | inner_lr 0.01 |  |" in lines


def test_numbers_of_others_have_a_line_only_where_there_are_any_and_say_whose_they_are():
    without = table()
    without["rows"][0]["cells"] = [{"ours": estimate(0.2), "paper": None}] * 4
    assert "paper" not in markdown_table(without)
    assert "95 %" not in markdown_table(without)
    assert "|  | published | – | 0.84 ± 0.06 |" in markdown_table(table() | {"theirs": "published"})


def test_a_method_that_is_only_quoted_has_no_line_of_ours():
    quoted = {"ours": None, "paper": {"mean": 0.5, "interval": None}}
    page = markdown_table(table() | {"columns": ["1"], "rows": [{"label": "VERSA, quoted", "cells": [quoted]}]})
    assert "| **VERSA, quoted** | paper | 0.50 |" in page
    assert "ours" not in page


def test_markdown_signs_are_escaped():
    assert markdown_text("a|b <i>\n_x_ inner_lr") == r"a\|b \<i\> \_x\_ inner_lr"
