"""Learning curves of trained cells, for the report."""

from cavia.experiments.base import Result, Settings


def x_label(settings: Settings) -> str:
    """What the curves are drawn over: time where the budget is one of minutes, else iterations."""
    return "minutes of training" if settings.minutes else "iterations"


def curve(result: Result, label: str, settings: Settings, unit: float = 1.0) -> Result:
    """The validation scores of a cell while it trained, in units of 1 / unit."""
    return {
        "label": label,
        "x": [seconds / 60 if settings.minutes else iteration for iteration, _, seconds in result["curve"]],
        "y": [None if score is None else unit * score for _, score, _ in result["curve"]],
        "interval": None,
    }
