"""How `write_json` lays out its files."""

import json

from cavia.tensor_file import read_json, write_json


def test_lists_of_numbers_stand_on_one_line(tmp_path):
    value = {"curve": [[1, 0.5], [2, 0.25]], "rows": [{"label": "CAVIA", "cells": []}], "none": {}, "text": "é\n"}
    write_json(tmp_path / "value.json", value)
    lines = (tmp_path / "value.json").read_text().splitlines()
    assert lines[1] == '  "curve": [[1, 0.5], [2, 0.25]],'
    assert len(lines) == 11
    assert read_json(tmp_path / "value.json") == value


def test_values_are_those_of_the_json_module(tmp_path):
    value = {True: 1, None: [float("nan"), (1, 2)], 1.5: {"a": [{"b": [{}]}]}}
    write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json") == json.loads(json.dumps({**value, None: [None, (1, 2)]}))
