"""Scales, ticks and labels of the axes of a figure."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cavia.paper.schema import Lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def label_axes(axes: "Axes", figure: Lines) -> None:
    """Give the axes the figure's labels and scales, with ticks as plain numbers: 0.01, not a power of ten."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=figure["x_label"], ylabel=figure["y_label"])
    x = [value for series in figure["series"] for value in series["x"]]
    y = [value for series in figure["series"] for value in series["y"] if value is not None]
    if all(float(value).is_integer() for value in x):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True))
    # A log axis needs a positive value somewhere: a figure in which all diverged has none.
    if figure["x_scale"] == "log" and max(x, default=0) > 0:
        _make_log(axes.xaxis, axes.set_xscale)
    if figure["y_scale"] == "log" and max(y, default=0) > 0:
        _make_log(axes.yaxis, axes.set_yscale)


def _make_log(axis: Any, set_scale: Callable[[str], None]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    set_scale("log")
    low, high = axis.get_view_interval()
    few_decades = high / low < 100
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few_decades else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("e-0", "e-").replace("e+0", "e")))
    axis.set_minor_formatter(NullFormatter())
