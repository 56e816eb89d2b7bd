"""What an experiment is: cells that are trained and measured one by one, and a summary of them."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from cavia.errors import CaviaError, closest, require_at_least, require_positive
from cavia.training.progress import Show

Settings: TypeAlias = Any  # a frozen dataclass; each experiment has its own
Result: TypeAlias = dict[str, Any]  # JSON values


@dataclass(frozen=True)
class Cell:
    """One training run of an experiment: what sets it apart from the others, and the name of its folder."""

    choices: Mapping[str, Any]

    @property
    def name(self) -> str:
        parts = (v if isinstance(v, str) else f"{k}={v:g}" for k, v in self.choices.items())
        return re.sub(r"[^\w.=+-]+", "_", "-".join(parts))

    def __getitem__(self, key: str) -> Any:
        return self.choices[key]


@dataclass(frozen=True)
class Data:
    """Where an experiment's data are: under a folder, or drawn by ourselves."""

    root: Path = Path("data")
    synthetic: bool = False


@dataclass(frozen=True)
class Place:
    """Where and how a cell runs."""

    folder: Path
    device: str
    show: Show
    data: Data = field(default_factory=Data)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    cells:     settings and number of seeds → what to train.
    train:     trains one cell in its folder and measures it.
    summarise: settings and the cells' results → "tables", "figures" and "claims" for the report.
    chooses_cells: settings that say which cells there are, and change nothing about any of them.
    data:      the data set, where experiments of the same cells and settings have different ones.
    find_data: raises if the data are not there; None for an experiment that needs none.
    minutes:   about how long quick and full take on 2 busy cores, if nothing is taken over from a neighbour.
    quick, full: settings that take minutes, and the paper's to the letter.
    tuned:     settings that we found to work better, if any, and in words how they differ from the paper's.
    """

    id: str
    title: str
    reproduces: str
    quick: Settings
    full: Settings
    minutes: tuple[float, float]
    cells: Callable[[Settings, int], list[Cell]]
    train: Callable[[Cell, Settings, Place], Result]
    summarise: Callable[[Settings, list[Result]], Result]
    chooses_cells: Sequence[str] = ()
    data: str = ""
    find_data: Callable[[Data], None] | None = None
    tuned: tuple[Settings, str] | None = None

    def settings(self, budget: str, changes: Sequence[str] = ()) -> Settings:
        """The settings of a budget ("quick", "full" or "tuned") with changes like "iterations=2000"."""
        if budget == "tuned" and self.tuned is None:
            raise CaviaError(f"{self.id} has no tuned settings, the paper's are all it has; use --full")
        settings = self.tuned[0] if budget == "tuned" and self.tuned else getattr(self, budget)
        for change in changes:
            name, equals, text = change.partition("=")
            known = {entry.name for entry in fields(settings)}
            if not equals:
                raise CaviaError(f"--set takes name=value, got {change!r}")
            if name not in known:
                raise CaviaError(f"{self.id} has no setting {name!r}; {closest(name, known)}")
            settings = replace(settings, **{name: _parse(name, text, getattr(settings, name))})
        return settings


def check_numbers(settings: Settings, may_be_zero: Sequence[str] = ()) -> None:
    """Raise unless every number in the settings is above zero, apart from those of the fields in `may_be_zero`."""
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not (number == 0 and entry.name in may_be_zero):
                require_positive(entry.name, number)
            elif isinstance(number, int):
                require_at_least(entry.name, number, 0 if entry.name in may_be_zero else 1)


def check_choices(settings: Settings, **known: Collection[str]) -> None:
    """Raise unless each named setting, or every entry of it, is one of those known; a setting may be missing."""
    for name, choices in known.items():
        value = getattr(settings, name, ())
        for one in value if isinstance(value, tuple) else (value,):
            if one not in choices:
                raise CaviaError(f"{name} has no {one!r}; {closest(one, choices)}")


def as_json(settings: Settings) -> dict[str, Any]:
    """Settings as JSON values."""
    return asdict(settings)


def _parse(name: str, text: str, now: Any) -> Any:
    """`text` as a value of the type that the setting has now."""
    if isinstance(now, tuple):
        return tuple(_parse(name, part.strip(), now[0]) for part in text.split(","))
    try:
        return type(now)(text)
    except ValueError:
        kind = {int: "a whole number", float: "a number"}[type(now)]
        raise CaviaError(f"{name} must be {kind}, got {text!r}") from None
