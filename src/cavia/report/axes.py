"""Scales, ticks and labels of the axes of a figure."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cavia.report.schema import Lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def label_axes(axes: "Axes", figure: Lines) -> None:
    """Give the axes the figure's labels and scales, with ticks as plain numbers: 0.01, not a power of ten."""
    axes.set(xlabel=figure["x_label"], ylabel=figure["y_label"])
    shown = [value for series in figure["series"] for value in series["x"]]
    _scale(axes.xaxis, axes.set_xscale, figure["x_scale"], whole=all(float(x).is_integer() for x in shown))
    _scale(axes.yaxis, axes.set_yscale, figure["y_scale"], whole=False)


def _scale(axis: Any, set_scale: Callable[[str], None], scale: str, whole: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    set_scale(scale)
    if scale == "linear":
        if whole:
            axis.set_major_locator(MaxNLocator(nbins=11, integer=True))
        return
    low, high = axis.get_view_interval()
    few_decades = high / low < 30
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few_decades else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
