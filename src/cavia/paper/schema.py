"""The types of result files: experiments write them, the report reads them, `checking` checks them.

`Annotated` adds what types cannot say: the range of a number or of a list's length, the pattern of a name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from cavia.evaluation.verdict import Verdict

CELL_FORMAT = 2
Name = Annotated[str, re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")]  # of files and anchors of the page


@dataclass(frozen=True)
class CellResult:
    """A trained and measured cell: the content of its `result.json`.

    choices:    what distinguishes the cell from others of its experiment.
    settings:   of training and measuring.
    diverged:   the error message, if training diverged; the rest is then empty.
    commits:    of cavia, at which it was trained.
    validation: the best score on validation tasks, at `best_iteration` of `iterations`.
    seconds:    of training.
    curve:      [iteration, validation score, seconds so far] at each interval.
    scores:     name of a measure → after 0, 1, … steps → the score of each test task.
    probes:     other measurements.
    """

    choices: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    diverged: str = ""
    commits: Sequence[str] = ()
    validation: float | None = None
    best_iteration: int = 0
    iterations: int = 0
    seconds: float = 0.0
    curve: Sequence[Annotated[Sequence[float | None], range(3, 4)]] = ()
    scores: Mapping[str, Sequence[Sequence[float | None]]] = field(default_factory=dict)
    probes: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, choice: str) -> Any:
        return self.choices[choice]

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return {"format": CELL_FORMAT, **asdict(self)}

    @classmethod
    def of(cls, values: Any) -> "CellResult | None":
        """The result from what `as_json` returned; None for anything else, such as an older version's file."""
        if not isinstance(values, dict) or values.get("format") != CELL_FORMAT:
            return None
        try:
            return cls(**{name: value for name, value in values.items() if name != "format"})
        except TypeError:
            return None


class Estimate(TypedDict):
    """A mean and half the width of its 95 % interval."""

    mean: float
    interval: NotRequired[float | None]


class TableCell(TypedDict):
    """One of our numbers beside the paper's."""

    ours: Estimate | None
    paper: Estimate | None
    verdict: NotRequired[Verdict | None]
    note: NotRequired[str | None]


class Row(TypedDict):
    """One method: a cell per column, null where there is nothing to show."""

    label: str
    cells: list[TableCell | None]


class ResultTable(TypedDict):
    """A table, with the number of decimals to print.

    theirs: whose numbers are printed below ours, "paper" by default.
    """

    caption: str
    metric: str
    higher_is_better: bool
    digits: Annotated[int, range(21)]
    column_title: str
    columns: list[str]
    rows: list[Row]
    theirs: NotRequired[str]


class Figure(TypedDict):
    """The common part of all figures."""

    name: Name
    caption: str


class Plot(Figure):
    """A figure with axes."""

    x_label: str
    y_label: str


class Series(TypedDict):
    """One curve; y is null where the method diverged."""

    label: str
    x: list[float]
    y: list[float | None]
    interval: NotRequired[list[float | None] | None]


class Lines(Plot):
    """A figure of curves with interval bands."""

    kind: Literal["lines"]
    x_scale: Literal["linear", "log"]
    y_scale: Literal["linear", "log"]
    series: Annotated[list[Series], range(1001)]


class Panel(TypedDict):
    """One scatter plot, each point coloured by a number."""

    title: str
    x: list[float]
    y: list[float]
    colour: list[float]
    colour_label: str


class Scatter(Plot):
    """A figure of scatter plots side by side."""

    kind: Literal["scatter"]
    panels: Annotated[list[Panel], range(101)]


class CurvePanel(TypedDict):
    """A one-dimensional function: the truth, the known points, and the predictions before and after adaptation."""

    title: str
    x: list[float]
    truth: list[float]
    before: list[float]
    after: list[float]
    known: list[Annotated[list[float], range(2, 3)]]  # [x, y] of each point


class Curves(Plot):
    """A figure of functions side by side, at the top of its section."""

    kind: Literal["curves"]
    panels: Annotated[list[CurvePanel], range(1, 101)]


Place = Annotated[list[float], range(2, 3)]  # [x, y]


class PortraitPanel(TypedDict):
    """Trajectories in a plane: the true one, a known one, and predictions of the first before and after adaptation."""

    title: str
    truth: list[Place]
    before: list[Place]
    after: list[Place]
    known: list[Place]


class Portraits(Plot):
    """A figure of trajectories side by side."""

    kind: Literal["portraits"]
    panels: Annotated[list[PortraitPanel], range(1, 101)]


class PathPanel(TypedDict):
    """Episodes in a plane, each a list of positions, and a disk around the goal."""

    goal: Place
    radius: float
    paths: list[list[Place]]


class PathRow(TypedDict):
    """One method's episodes, one panel per column."""

    label: str
    panels: list[PathPanel]


class Paths(Plot):
    """A figure of episodes: methods below each other, numbers of updates side by side."""

    kind: Literal["paths"]
    columns: Annotated[list[str], range(1, 11)]
    rows: Annotated[list[PathRow], range(1, 21)]


class PictureRow(TypedDict):
    """One method's pictures, base64 PNGs, one per column."""

    label: str
    pictures: list[str]


class PicturePanel(TypedDict):
    """One true picture, a base64 PNG, and its completions."""

    title: str
    truth: str
    rows: list[PictureRow]


class Pictures(Figure):
    """A figure of small pictures."""

    kind: Literal["pictures"]
    columns: list[str]
    panels: Annotated[list[PicturePanel], range(1, 1001)]


class Claim(TypedDict):
    """A claim, and whether our numbers support it."""

    claim: str
    holds: bool
    evidence: str


class Summary(TypedDict):
    """The conclusions of an experiment, from the results of its cells."""

    tables: NotRequired[list[ResultTable]]
    figures: NotRequired[list[Lines | Scatter | Curves | Portraits | Paths | Pictures]]
    claims: NotRequired[list[Claim]]


class Result(Summary):
    """A finished experiment as readers see it: the content of `result.json`."""

    format: Literal[1]
    experiment: Name
    title: str
    reproduces: str
    budget: Literal["full", "quick", "tuned", "first", "own"]  # own: settings changed on the command line
    differs: NotRequired[str]  # how tuned settings differ from the paper's, in words
    command: str
    settings: dict[str, Any]
    seeds: int
    commits: NotRequired[list[str]]  # of cavia, at which it was trained
    version: str
    machine: dict[str, Any]
    seconds: float
    finished: str
    cells: NotRequired[list[dict[str, Any]]]
    others: NotRequired[list["Result"]]  # of the same experiment, with other sets of settings
