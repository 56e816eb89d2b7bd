"""The plan of the published results: which experiments, sets of settings and seeds, in which order."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError, closest, require_at_least
from cavia.paper.catalogue import find
from cavia.paper.experiment import Settings
from cavia.paper.running.orders import Order
from cavia.tensor_file import read_text

KEYS = ("experiment", "set", "seeds", "settings")


def read_plan(path: Path, runs: Path, **how: Any) -> list[Order]:
    """The orders of a plan, to be trained under `runs`; every entry is checked before anything runs.

    how: the device, the data and other arguments that all orders share.
    """
    if not path.exists():
        raise CaviaError(f"there is no plan {path}; call this in a clone of the repository, or name one with --plan")
    try:
        document = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # invalid TOML, or an unreadable file
        raise CaviaError(f"{path} is not a plan: {error}") from error
    for name in document:
        if name != "run":
            raise CaviaError(f"{path} has an unknown key {name!r}; {closest(name, ['run'])}")
    entries = document.get("run", [])
    if not isinstance(entries, list) or not entries:
        raise CaviaError(f"{path} has no [[run]]")
    orders = [_order(values, f"{path}, run {number}", runs, how) for number, values in enumerate(entries, 1)]
    _check_cells(orders, path)
    return orders


def _order(values: Any, where: str, runs: Path, how: dict[str, Any]) -> Order:
    if not isinstance(values, dict):
        raise CaviaError(f"{where} must be a table, got {values!r}")
    for name in values:
        if name not in KEYS:
            raise CaviaError(f"{where} has an unknown key {name!r}; {closest(name, KEYS)}")
    for name in ("experiment", "set"):
        if not isinstance(values.get(name), str):
            raise CaviaError(f'{where} needs {name} = "…", got {values.get(name)!r}')
    experiment, kind, changes = values["experiment"], values["set"], values.get("settings", {})
    try:
        seeds = require_at_least("seeds", values.get("seeds", 1), 1)
        if not isinstance(changes, dict):
            raise CaviaError(f"settings must be a table, got {changes!r}")
        find(experiment).settings(kind, changes)
    except CaviaError as error:
        raise CaviaError(f"{where}: {error}") from error
    return Order(experiment, kind, runs / kind / experiment, changes, seeds, **how)


def _check_cells(orders: Sequence[Order], path: Path) -> None:
    """Raise if two orders train one cell differently."""
    known: dict[Path, tuple[int, dict[str, Any]]] = {}
    for number, order in enumerate(orders, 1):
        settings = find(order.experiment).of_a_cell(order.settings)
        for cell in order.cells:
            other, others = known.setdefault(order.folder(cell), (number, settings))
            if others != settings:
                name = next(name for name in settings if settings[name] != others[name])
                raise CaviaError(
                    f"{path}: runs {other} and {number} train {order.experiment} {cell.name} differently: {name} is "
                    f"{others[name]} and {settings[name]}; keep one of them"
                )


def merged(orders: Sequence[Order]) -> Settings:
    """The settings of all orders of one experiment and set, for its summary: joined lists, otherwise the first's."""
    experiment, settings = find(orders[0].experiment), [order.settings for order in orders]
    names = experiment.lists(settings[0])
    joined = {name: tuple(dict.fromkeys(v for one in settings for v in getattr(one, name))) for name in names}
    return replace(settings[0], **joined)
