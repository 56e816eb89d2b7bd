"""The plan of the published results: which experiments, sets of settings and seeds, in which order."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cavia.errors import CaviaError, closest, require_at_least
from cavia.paper.catalogue import find
from cavia.paper.experiment import Data, Settings
from cavia.paper.running.cells import Order

KEYS = ("experiment", "set", "seeds", "settings")


@dataclass(frozen=True)
class Entry:
    """A part of the plan: some cells of an experiment."""

    experiment: str
    set: str
    seeds: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    def order(self, runs: Path, data: Data, device: str = "cpu", remeasure: bool = False) -> Order:
        """The entry as an order that writes under `runs`."""
        out = runs / self.set / self.experiment
        return Order(self.experiment, self.set, out, self.settings, self.seeds, device, data, remeasure=remeasure)


def read_plan(path: Path) -> list[Entry]:
    """The entries of a plan, each checked: nothing runs if one of them is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaviaError(f"cannot read the plan {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CaviaError(f"{path} is not a plan: {error}") from error
    for name in document:
        if name != "run":
            raise CaviaError(f"{path} has an unknown key {name!r}; {closest(name, ['run'])}")
    runs = document.get("run", [])
    if not isinstance(runs, list) or not runs:
        raise CaviaError(f"{path} has no [[run]]")
    entries = [_entry(values, f"{path}, run {number}") for number, values in enumerate(runs, 1)]
    _check_cells(entries, path)
    return entries


def _entry(values: Any, where: str) -> Entry:
    if not isinstance(values, dict):
        raise CaviaError(f"{where} must be a table, got {values!r}")
    for name in values:
        if name not in KEYS:
            raise CaviaError(f"{where} has an unknown key {name!r}; {closest(name, KEYS)}")
    for name in ("experiment", "set"):
        if not isinstance(values.get(name), str):
            raise CaviaError(f'{where} needs {name} = "…", got {values.get(name)!r}')
    try:
        entry = Entry(**values)
        require_at_least("seeds", entry.seeds, 1)
        if not isinstance(entry.settings, dict):
            raise CaviaError(f"settings must be a table, got {entry.settings!r}")
        find(entry.experiment).settings(entry.set, entry.settings)
    except CaviaError as error:
        raise CaviaError(f"{where}: {error}") from error
    return entry


def _check_cells(entries: Sequence[Entry], path: Path) -> None:
    """Raise if two entries train one cell differently."""
    known: dict[tuple[str, str, str], tuple[int, dict[str, Any]]] = {}
    for number, entry in enumerate(entries, 1):
        experiment = find(entry.experiment)
        settings = experiment.of_a_cell(experiment.settings(entry.set, entry.settings))
        for cell in experiment.cells(experiment.settings(entry.set, entry.settings), entry.seeds):
            other, others = known.setdefault((entry.experiment, entry.set, cell.name), (number, settings))
            if others != settings:
                name = next(name for name in settings if settings[name] != others[name])
                raise CaviaError(
                    f"{path}: runs {other} and {number} train {entry.experiment} {cell.name} differently: {name} is "
                    f"{others[name]} and {settings[name]}; keep one of them"
                )


def merged(entries: Sequence[Entry]) -> Settings:
    """The settings of entries of one experiment and set, for its summary: lists of choices joined, else the first's."""
    experiment = find(entries[0].experiment)
    first, *rest = [experiment.settings(entry.set, entry.settings) for entry in entries]
    changes: dict[str, Any] = {}
    for entry in fields(first):
        value = getattr(first, entry.name)
        if entry.name in experiment.chooses and isinstance(value, tuple):
            changes[entry.name] = tuple(dict.fromkeys(v for one in (first, *rest) for v in getattr(one, entry.name)))
    return first.changed(experiment.id, changes)
