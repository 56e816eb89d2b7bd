"""The table of what φ encodes: `identifiability` of the cells' contexts, from their probes."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cavia.paper.schema import CellResult, ResultTable, Row, TableCell
from cavia.paper.showing import cell, table

WAYS = {"linear": "decoded linearly from φ", "non-linear": "decoded from φ by kernel regression"}
BACK = "predicted from the parameters"


def meaning(groups: Mapping[str, Sequence[CellResult]], what: str = "") -> Iterator[ResultTable]:
    """How well contexts predict the true parameters of their tasks, and vice versa; none if it was not measured.

    groups: label → one result per seed. what: the tasks, if not all tested ones.
    """
    named = [one.probes["linear"] for group in groups.values() for one in group if "linear" in one.probes]
    if not named:
        return
    names = list(named[0])
    rows = [row for label, group in groups.items() for row in _rows(label, group, names)]
    caption = (
        f"What φ encodes{what}: R² of the tasks' true parameters decoded from φ, by a linear map and by kernel "
        "regression, and R² of φ predicted from the parameters by kernel regression. Each task is predicted by a fit "
        "to other tasks. 1 is exact; 0 is no better than the mean."
    )
    yield table(caption, "R²", 3, "Decoded quantity", [*names, "φ"], rows, higher=True, over="seeds")


def _rows(label: str, group: Sequence[CellResult], names: Sequence[str]) -> Iterator[Row]:
    before = f"{label}, " if label else ""
    for kind, words in WAYS.items():
        by_name = [[one.probes.get(kind, {}).get(name) for one in group] for name in names]
        yield {"label": before + words, "cells": [*map(_cell, by_name), None]}
    whole = _cell([one.probes.get("whole") for one in group])
    yield {"label": before + BACK, "cells": [*(None for _ in names), whole]}


def _cell(of_seeds: Sequence[float | None]) -> TableCell | None:
    """The mean over seeds; None if a seed has no score."""
    known = [value for value in of_seeds if value is not None]
    return cell(np.array(known).reshape(-1, 1), None, 3) if len(known) == len(of_seeds) else None
