"""Omniglot beyond the paper: every method with equal training time, each at its best inner learning rate."""

from itertools import product

from cavia.paper.experiment import Cell
from cavia.paper.fewshot.training import FewShotSettings
from cavia.paper.schema import CellResult, Row, Summary, TableCell
from cavia.paper.showing import cell, iterations, learning_curves, table
from cavia.paper.statistics import best, grouped, scores

# Method → factors of the settings' inner learning rate; the best on validation tasks is reported.
TRIED: dict[str, tuple[float, ...]] = {
    "CAVIA": (1.0, 10.0),
    "MAML": (1.0, 4.0),
    "ANIL": (1.0, 4.0),
    "Meta-SGD": (1.0, 4.0),
    "Reptile": (0.1, 1.0),
    "CAVIA + MAML": (1.0,),
    "MAML++": (1.0, 4.0),
    "iMAML": (1.0, 4.0),
    "MT-net": (1.0, 4.0),
    "Meta-LSTM": (0.5, 2.0),
    "ProtoNets": (1.0,),
    "Matching Networks": (1.0,),
    "Relation Networks": (1.0,),
    "VERSA": (1.0,),
    "LEO": (1.0, 10.0),
}


def cells(settings: FewShotSettings, seeds: int) -> list[Cell]:
    return [
        Cell({"method": method, "filters": filters, "ways": ways, "shots": shots, "scale": scale, "seed": seed})
        for shots, ways, filters, method in product(settings.shots, settings.ways, settings.filters, settings.methods)
        for scale, seed in product(TRIED.get(method, (1.0,)), range(seeds))
    ]


def summarise(settings: FewShotSettings, results: list[CellResult]) -> Summary:
    columns = list(product(settings.ways, settings.shots))
    rows: list[Row] = [
        {"label": f"{method} ({filters})", "cells": [_cell(results, method, filters, *column) for column in columns]}
        for filters in settings.filters
        for method in settings.methods
    ]
    caption = (
        f"Accuracy (%) on {settings.test_tasks} tasks of unseen characters, after {settings.minutes:g} minutes of "
        "training on one core for each method. In brackets: filters per convolution. Where several inner rates were "
        "tried, the note names the best on validation tasks."
    )
    ways, shots = columns[0]
    chosen = {method: _best(results, method, settings.filters[0], ways, shots) for method in settings.methods}
    runs = {method: group[0] for method, group in chosen.items() if group and group[0].curve}
    words = f"Validation accuracy during training, {ways}-way {shots}-shot, seed 0."
    figure = learning_curves("omniglot-methods", words, "accuracy (%)", runs, unit=100)
    names = [f"{ways}-way {shots}-shot" for ways, shots in columns]
    return {
        "tables": [table(caption, "accuracy", 2, "Task", names, rows, higher=True)],
        "figures": [figure] if runs else [],
    }


def _best(results: list[CellResult], method: str, filters: int, ways: int, shots: int) -> list[CellResult]:
    chosen = {"method": method, "filters": filters, "ways": ways, "shots": shots}
    return best(grouped(results, lambda one: one["scale"], **chosen).values(), higher_is_better=True)


def _cell(results: list[CellResult], method: str, filters: int, ways: int, shots: int) -> TableCell | None:
    group = _best(results, method, filters, ways, shots)
    if not group:
        return None
    tried = TRIED.get(method, ())
    note = f"inner rate × {group[0]['scale']:g}; " if len(tried) > 1 else ""
    return cell(scores(group, "accuracy"), None, 2, note + iterations(group), higher_is_better=True, unit=100)
