"""The definition of an experiment: what to train, on which tasks, how to measure and summarise it."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from cavia.errors import CaviaError, closest, require_at_least, require_positive
from cavia.learners.base import Learner
from cavia.machine import cores, require_memory
from cavia.paper.schema import CellResult, Summary
from cavia.training.progress import Show


class NotTrained(CaviaError):
    """A trained network that an experiment needs does not exist."""


@dataclass(frozen=True)
class Settings:
    """The settings of an experiment. Those named like an argument of `fit` are passed to it.

    Every number is positive, except those that may be zero.
    known: setting → the allowed names of it, or of its entries.
    """

    may_be_zero: ClassVar[Collection[str]] = ("minutes", "cooldown", "contexts")
    known: ClassVar[Mapping[str, Collection[str]]] = {}

    iterations: int = 1
    minutes: float = 0.0  # limit of training per cell, in addition to the iterations; 0: no limit

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, may_be_zero = getattr(self, entry.name), entry.name in self.may_be_zero
            for one in value if isinstance(value, tuple) else (value,):
                if entry.name in self.known and one not in self.known[entry.name]:
                    raise CaviaError(f"{entry.name} has no {one!r}; {closest(one, self.known[entry.name])}")
                if isinstance(one, float) and not (one == 0 and may_be_zero):
                    require_positive(entry.name, one)
                elif isinstance(one, int):
                    most = MOST_ITERATIONS if entry.name == "iterations" else MOST
                    require_at_least(entry.name, one, 0 if may_be_zero else 1, most)
        self._check_memory()

    def _check_memory(self) -> None:
        """Raise if a batch or the network cannot fit into memory: an estimate from the settings with these names."""

        def most(*names: str, default: int = 1) -> int:
            values = [getattr(self, name, default) for name in names]
            return max(max(value) if isinstance(value, tuple) else value for value in values)

        tasks, points = most("tasks_per_batch"), most("support", "query", "shots") * most("rollouts") * most("horizon")
        require_memory(4 * tasks * points * most("image") ** 2, f"a batch of {tasks} tasks")
        filters, context = most("filters", default=0), most("context", default=0)
        widths = [context, *getattr(self, "hidden", ()), *getattr(self, "wave_hidden", ())]
        weights = sum(a * b for a, b in pairwise(widths)) + 9 * filters * (filters + context)
        require_memory(4 * weights, f"a network of {weights} weights")


MOST, MOST_ITERATIONS = 10**6, 10**9  # upper limits of whole numbers among the settings
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Cell:
    """One training run of an experiment: the choices that distinguish it, and the name of its folder."""

    choices: Mapping[str, Any]

    @property
    def name(self) -> str:
        parts = (v if isinstance(v, str) else f"{k}={v:g}" for k, v in self.choices.items())
        return re.sub(r"[^\w.=+-]+", "_", "-".join(parts))

    def __getitem__(self, key: str) -> Any:
        return self.choices[key]


def cells_of(seeds: int, method: str, contexts: Iterable[int], rates: Iterable[float]) -> list[Cell]:
    """One cell of the method per context size, inner learning rate and seed."""
    return [
        Cell({"method": method, "context": context, "inner_lr": float(rate), "seed": seed})
        for context, rate, seed in product(contexts, rates, range(seeds))
    ]


@dataclass(frozen=True)
class Data:
    """The source of an experiment's data: a folder, or synthetic pictures."""

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
class Experiment(Generic[S]):
    """A table or figure of the paper, or an experiment beyond it.

    sets:      name → settings. "quick" takes minutes, "full" is exactly the paper's; "tuned", if there is one, is what
               we found to work better, and `differs` describes the difference.
    minutes:   rough time of each set on 2 cores, if nothing is adopted from another experiment.
    cells:     settings and number of seeds → the cells to train.
    tasks:     settings, cell and data → the tasks to train on; raises if data are missing, and `NotTrained` if a model
               that another experiment trains is missing.
    learner:   settings, cell and tasks → a new learner; called with the cell's seed set.
    measure:   trained learner, tasks, settings, cell → "scores" and "probes" of a CellResult.
    chooses:   the settings that only determine which cells there are.
    fit:       settings and cell → arguments of `fit` that are not named like a setting.
    summarise: settings and the cells' results → tables, figures and claims.
    before:    settings, cell and tasks → earlier stages of training: the tasks and changed settings of each.
    beyond:    not in the paper; the report shows it in a section of its own.
    """

    id: str
    title: str
    reproduces: str
    sets: Mapping[str, S]
    minutes: Mapping[str, float]
    cells: Callable[[S, int], list[Cell]]
    tasks: Callable[[S, Cell, Data], Any]
    learner: Callable[[S, Cell, Any], Learner]
    measure: Callable[[Learner, Any, S, Cell], dict[str, Any]]
    chooses: Sequence[str]
    summarise: Callable[[S, list[CellResult]], Summary]
    fit: Callable[[S, Cell], dict[str, Any]] = lambda settings, cell: {}
    before: Callable[[S, Cell, Any], list[tuple[Any, dict[str, Any]]]] = lambda settings, cell, tasks: []
    differs: str = ""
    beyond: bool = False

    def settings(self, name: str, changes: Mapping[str, Any] | None = None) -> S:
        """A set of settings with changes: {"iterations": 2000}, or text as from --set, {"iterations": "2000"}."""
        if name not in self.sets:
            raise CaviaError(f"{self.id} has no set of settings {name!r}; it has {', '.join(self.sets)}")
        now = asdict(self.sets[name])
        for change in changes or {}:
            if change not in now:
                raise CaviaError(f"{self.id} has no setting {change!r}; {closest(change, now)}")
        parsed = {change: _parse(change, value, now[change]) for change, value in (changes or {}).items()}
        return replace(self.sets[name], **parsed)

    def lists(self, settings: S) -> dict[str, tuple[Any, ...]]:
        """The settings that list choices, one or more cells for each."""
        chosen = {name: getattr(settings, name, None) for name in self.chooses}
        return {name: value for name, value in chosen.items() if isinstance(value, tuple)}

    def seconds(self, name: str) -> float:
        """Rough time of one iteration of a cell with a set of settings, on one core."""
        settings = self.sets[name]
        return 60 * self.minutes[name] * cores() / len(self.cells(settings, 1)) / settings.iterations

    def of_a_cell(self, settings: S) -> dict[str, Any]:
        """The settings for training and measuring a cell, as JSON values."""
        values = {name: value for name, value in asdict(settings).items() if name not in self.chooses}
        return json.loads(json.dumps(values))


def _parse(name: str, value: Any, now: Any) -> Any:
    """`value` converted to the setting's type; text is parsed."""
    if isinstance(now, tuple):
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        if not parts:
            raise CaviaError(f"{name} must have at least one value, got none")
        return tuple(_parse(name, part.strip() if isinstance(part, str) else part, now[0]) for part in parts)
    try:
        if isinstance(value, bool) or (isinstance(now, int) and isinstance(value, float)):
            raise ValueError
        return type(now)(value)
    except (TypeError, ValueError):
        kind = {int: "a whole number", float: "a number", str: "text"}[type(now)]
        raise CaviaError(f"{name} must be {kind}, got {value!r:.80}") from None
