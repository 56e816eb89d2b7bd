"""What result files hold, as types: experiments write them, the report reads them, `checking` checks them.

`Annotated` says what the type does not: the range of a number or of the length of a list, the pattern of a name.
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

    choices:    what sets the cell apart from the others of its experiment.
    settings:   that it was trained and measured with.
    diverged:   why there is nothing else, if training diverged.
    commits:    of cavia, that trained it.
    validation: the best score on validation tasks, at `best_iteration` of `iterations`.
    seconds:    of training.
    curve:      [iteration, validation score, seconds so far] at each interval.
    scores:     name of a measure → after 0, 1, … steps → the score of each test task.
    probes:     whatever else was found out.
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
        """What `as_json` gave; None if the values are something else, as written by an older version."""
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
    """One number of ours beside the paper's."""

    ours: Estimate | None
    paper: Estimate | None
    verdict: NotRequired[Verdict | None]
    note: NotRequired[str | None]


class Row(TypedDict):
    """One method: a cell for each column, null where there is nothing to show."""

    label: str
    cells: list[TableCell | None]


class ResultTable(TypedDict):
    """A table of the paper, with the number of decimals that it is printed with.

    theirs: whose numbers stand below ours, "paper" by default.
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
    """What every figure has."""

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
    """A function of one number: what is true, the known points, and what is predicted before and after adapting."""

    title: str
    x: list[float]
    truth: list[float]
    before: list[float]
    after: list[float]
    known: list[Annotated[list[float], range(2, 3)]]  # [x, y] of each point


class Curves(Plot):
    """A figure of functions side by side; it opens its section."""

    kind: Literal["curves"]
    panels: Annotated[list[CurvePanel], range(1, 101)]


Place = Annotated[list[float], range(2, 3)]  # [x, y]


class PortraitPanel(TypedDict):
    """Trajectories in a plane: the true one, a known one, and predictions of the first before and after adapting."""

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
    """Episodes in a plane, each the places that it went through, and a disk around the goal."""

    goal: Place
    radius: float
    paths: list[list[Place]]


class PathRow(TypedDict):
    """One method's episodes, a panel for each column."""

    label: str
    panels: list[PathPanel]


class Paths(Plot):
    """A figure of episodes: methods below each other, numbers of updates side by side."""

    kind: Literal["paths"]
    columns: Annotated[list[str], range(1, 11)]
    rows: Annotated[list[PathRow], range(1, 21)]


class PictureRow(TypedDict):
    """One method's pictures, base64 PNGs, one for each column."""

    label: str
    pictures: list[str]


class PicturePanel(TypedDict):
    """One true picture, a base64 PNG, and what is made of it."""

    title: str
    truth: str
    rows: list[PictureRow]


class Pictures(Figure):
    """A figure of small pictures."""

    kind: Literal["pictures"]
    columns: list[str]
    panels: Annotated[list[PicturePanel], range(1, 1001)]


class Claim(TypedDict):
    """A statement of the paper, and whether our numbers bear it out."""

    claim: str
    holds: bool
    evidence: str


class Summary(TypedDict):
    """What an experiment shows, from the results of its cells."""

    tables: NotRequired[list[ResultTable]]
    figures: NotRequired[list[Lines | Scatter | Curves | Portraits | Paths | Pictures]]
    claims: NotRequired[list[Claim]]


class Result(Summary):
    """All that a finished experiment leaves for its readers: the content of `result.json`."""

    format: Literal[1]
    experiment: Name
    title: str
    reproduces: str
    budget: Literal["full", "quick", "tuned", "first", "own"]  # own: with settings changed on the command line
    differs: NotRequired[str]  # how tuned settings differ from the paper's, in words
    command: str
    settings: dict[str, Any]
    seeds: int
    commits: NotRequired[list[str]]  # of cavia, that trained it
    version: str
    machine: dict[str, Any]
    seconds: float
    finished: str
    cells: NotRequired[list[dict[str, Any]]]
    others: NotRequired[list["Result"]]  # of the same experiment, with other sets of settings
