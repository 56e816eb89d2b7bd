"""Builds the tables and figures of experiments: cells beside the paper's numbers, curves, scatter plots."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from cavia.evaluation.verdict import verdict
from cavia.paper.schema import CellResult, Estimate, Lines, Panel, ResultTable, Row, Scatter, Series, TableCell
from cavia.paper.statistics import Scores, at_rates, estimate, finite, spread

Measure = Callable[[list[CellResult]], Scores]  # of the seeds of one kind of cell


def lines(
    name: str,
    caption: str,
    labels: tuple[str, str],
    series: list[Series],
    x_scale: Literal["linear", "log"] = "linear",
    y_scale: Literal["linear", "log"] = "linear",
) -> Lines:
    """A figure of curves; labels: of its two axes."""
    return {
        "name": name, "caption": caption, "kind": "lines", "x_label": labels[0], "y_label": labels[1],
        "x_scale": x_scale, "y_scale": y_scale, "series": series,
    }  # fmt: skip


def curve(label: str, x: Sequence[float], points: Sequence[Estimate | None]) -> Series:
    """One curve with its intervals; nothing is drawn where a point is None."""
    return {
        "label": label,
        "x": list(x),
        "y": [point and point["mean"] for point in points],
        "interval": [point and point.get("interval") for point in points],
    }


def curve_over_rates(results: Sequence[CellResult], method: str, rates: Sequence[float], measure: Measure) -> Series:
    """The mean of a method's scores at each inner learning rate; nothing is drawn where it diverged."""
    groups = at_rates(results, method)
    return curve(method, rates, [finite(estimate(measure(groups[r]))) if r in groups else None for r in rates])


def learning_curves(
    name: str, caption: str, y_label: str, results: Mapping[str, CellResult], unit: float = 1.0, log: bool = False
) -> Lines:
    """Validation scores during training, times `unit`, over hours of training; one curve per label."""
    series: list[Series] = [
        {
            "label": label,
            "x": [float(seconds or 0) / 3600 for _, _, seconds in run.curve],
            "y": [None if score is None else unit * score for _, score, _ in run.curve],
            "interval": None,
        }
        for label, run in results.items()
    ]
    return lines(name, caption, ("hours of training", y_label), series, y_scale="log" if log else "linear")


def plane(
    name: str, caption: str, points: Sequence[Sequence[float]], colours: Mapping[str, Sequence[float]], axis: str
) -> Scatter:
    """Scatter plots of points [N][2], one per colouring; the axes are called `axis` 1 and `axis` 2."""
    x, y = ([round(float(point[i]), 5) for point in points] for i in (0, 1))
    panels: list[Panel] = [
        {"title": title, "x": x, "y": y, "colour": [round(float(value), 5) for value in values], "colour_label": title}
        for title, values in colours.items()
    ]
    return {
        "name": name, "caption": caption, "kind": "scatter", "x_label": f"{axis} 1", "y_label": f"{axis} 2",
        "panels": panels,
    }  # fmt: skip


def planes(name: str, after: str, results: list[CellResult], key: str, colours: list[dict[str, Any]]) -> list[Scatter]:
    """A figure of the contexts (the probe `key`) for each result; the first one gets the plain name."""
    figures = []
    for one, colour in zip(results, colours, strict=True):
        own = name if one is results[0] else f"{name}-seed-{one['seed']}"
        tasks = f"{len(one.probes[key])} test tasks after {after}, seed {one['seed']}."
        figures.append(
            plane(own, f"The two context parameters of {tasks}", one.probes[key], colour, "context parameter")
        )
    return figures


def several(number: int, noun: str) -> str:
    """A number of things: `1 step`, `5 steps`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def iterations(group: Sequence[CellResult]) -> str:
    """At which iteration each run's best model was: "best at iteration 900 of 1,000"."""
    return ", ".join(dict.fromkeys(f"best at iteration {run.best_iteration:,} of {run.iterations:,}" for run in group))


def cell(
    scores: Scores | None,
    published: tuple[float, float | None] | None,
    digits: int,
    note: str = "",
    higher_is_better: bool = False,
    unit: float = 1.0,
) -> TableCell | None:
    """Our mean over test tasks and seeds [seeds, tasks] beside the paper's number; None if there is nothing to show.

    Only the paper's interval counts for the verdict; where it gives none, its mean as printed.
    """
    if scores is None or not len(scores):
        return None
    ours = estimate(unit * scores)
    shown: TableCell = {
        "ours": finite(ours),
        "paper": None,
        "note": "; ".join(filter(None, (note, spread(unit * scores, digits + 1)))),
    }
    if published:
        shown["paper"] = {"mean": published[0], "interval": published[1]}
        shown["verdict"] = verdict(ours["mean"], None, *published, higher_is_better=higher_is_better, digits=digits)
    return shown


def table(
    caption: str,
    metric: str,
    digits: int,
    title: str,
    columns: list[str],
    rows: list[Row],
    higher: bool = False,
    over: str = "test tasks and seeds",
) -> ResultTable:
    """A table. title: of its columns; higher: higher is better; over: what intervals are over, if it has any."""
    ours = (cell["ours"] for row in rows for cell in row["cells"] if cell)
    has_intervals = any(one and one.get("interval") is not None for one in ours)
    return {
        "caption": caption + (f" Intervals are over {over}." if has_intervals else ""), "metric": metric,
        "higher_is_better": higher, "digits": digits, "column_title": title, "columns": columns, "rows": rows,
    }  # fmt: skip
