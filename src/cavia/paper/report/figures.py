"""Figures of a result as SVG: reproducible to the byte, with ids that do not clash on one page."""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cavia.paper.report.palette import CLASSES, line_styles
from cavia.paper.report.picture_figures import pictures_svg
from cavia.paper.schema import Curves, Lines, Panel, Paths, Pictures, Portraits, Scatter, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Laid out with matplotlib's own font, shown with the reader's.
_MEASURED_FONT = "DejaVu Sans"
_SHOWN_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_INK = "#333840"

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": [_MEASURED_FONT],
    "font.size": 9.5,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.edgecolor": "#8a9099",
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.7,
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.7,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
}


def figure_svg(figure: Lines | Scatter | Curves | Portraits | Paths | Pictures, prefix: str) -> str:
    """The figure as an `<svg>` element whose ids begin with `prefix`; white background, for light and dark pages."""
    return pictures_svg(figure, prefix) if figure["kind"] == "pictures" else _plot_svg(figure, prefix)


def _plot_svg(figure: Lines | Scatter | Curves | Portraits | Paths, prefix: str) -> str:
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", _STYLE | {"svg.hashsalt": prefix}]):
        drawn = Figure(layout="constrained")
        if figure["kind"] == "lines":
            _draw_lines(drawn, figure)
        elif figure["kind"] == "curves":
            _draw_curves(drawn, figure)
        elif figure["kind"] == "portraits":
            _draw_portraits(drawn, figure)
        elif figure["kind"] == "paths":
            _draw_paths(drawn, figure)
        else:
            _draw_scatter(drawn, figure)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawn.savefig(buffer, format="svg", metadata=nothing)
    return _for_a_page(buffer.getvalue(), prefix)


def _draw_lines(drawn: "Figure", figure: Lines) -> None:
    drawn.set_size_inches(6.4, 3.7)
    axes = drawn.subplots()
    diverged = 0
    for series, style in zip(figure["series"], line_styles([s["label"] for s in figure["series"]]), strict=True):
        if len(series["x"]) == 1:
            style |= {"markersize": 9}  # a point without a line must be seen, too
        axes.plot(series["x"], _gaps(series["y"]), label=series["label"], markeredgecolor="white", **style)
        _draw_band(axes, series, style["color"], is_log=figure["y_scale"] == "log")
        if None in series["y"]:
            _mark_diverged(axes, series, style["color"], row=diverged)
            diverged += 1
    _label_axes(axes, figure)
    if diverged:
        axes.plot([], [], "x", color=_INK, markersize=5, label="diverged")
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        drawn.legend(handles, labels, loc="outside upper center", ncols=_legend_columns(labels))


def _label_axes(axes: "Axes", figure: Lines) -> None:
    """Give the axes the figure's labels and scales, with ticks as plain numbers: 0.01, not a power of ten."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=figure["x_label"], ylabel=figure["y_label"])
    x = [value for series in figure["series"] for value in series["x"]]
    y = [value for series in figure["series"] for value in series["y"] if value is not None]
    if all(float(value).is_integer() for value in x):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True, steps=(1, 2, 5, 10)))
    # A log axis needs a positive value; a figure in which everything diverged has none.
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


def _legend_columns(labels: list[str]) -> int:
    """As many columns as fit above the axes: about eighty characters per line, seven of them for each line symbol."""
    widths = [len(label) + 7 for label in labels]
    return len(labels) if sum(widths) <= 80 else max(1, 80 // max(widths))


def _draw_band(axes: "Axes", series: Series, colour: str, is_log: bool) -> None:
    """Shade the 95 % interval; on a log axis an interval that reaches zero ends at a tenth of the mean."""
    intervals = series.get("interval")
    if not intervals:
        return
    means = _gaps(series["y"])
    widths = [interval or 0.0 for interval in intervals]
    lower = [max(m - w, m / 10) if is_log else m - w for m, w in zip(means, widths, strict=True)]
    upper = [m + w for m, w in zip(means, widths, strict=True)]
    axes.fill_between(series["x"], lower, upper, color=colour, alpha=0.18, linewidth=0)


def _mark_diverged(axes: "Axes", series: Series, colour: str, row: int) -> None:
    """A cross at the top edge for each missing value, with one row per series."""
    x = [x for x, y in zip(series["x"], series["y"], strict=True) if y is None]
    height = [1.0 - 0.045 * row] * len(x)
    transform = axes.get_xaxis_transform()
    axes.plot(x, height, "x", color=colour, markersize=5, transform=transform, clip_on=False, zorder=4)


def _draw_scatter(drawn: "Figure", figure: Scatter) -> None:
    panels = figure["panels"]
    columns = min(len(panels), 2) or 1
    rows = -(-len(panels) // columns) or 1
    drawn.set_size_inches(4.2 if columns == 1 else 7.4, 3.2 * rows)
    every_axes = list(drawn.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(every_axes, panels, strict=False):
        _draw_panel(drawn, axes, panel)
        axes.set(xlabel=figure["x_label"], ylabel=figure["y_label"], title=panel["title"])
    for axes in every_axes[len(panels) :]:
        axes.remove()


def _draw_curves(drawn: "Figure", figure: Curves) -> None:
    panels = figure["panels"]
    drawn.set_size_inches(7.4, 2.7)
    for axes, panel in zip(drawn.subplots(1, len(panels), sharey=True, squeeze=False).flat, panels, strict=True):
        axes.plot(panel["x"], panel["truth"], color="#b8bec6", linewidth=4.5, label="truth")
        axes.plot(panel["x"], panel["before"], color=_INK, linestyle=":", linewidth=1.3, label="before adapting")
        axes.plot(panel["x"], panel["after"], color="#0072b2", label="after adapting")
        x, y = zip(*panel["known"], strict=True)
        axes.plot(x, y, "o", color="#d55e00", markeredgecolor="white", markersize=6.5, label="known points", zorder=5)
        axes.set(xlabel=figure["x_label"], title=panel["title"])
        axes.label_outer()
    drawn.axes[0].set_ylabel(figure["y_label"])
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=4)


def _draw_portraits(drawn: "Figure", figure: Portraits) -> None:
    panels = figure["panels"]
    drawn.set_size_inches(7.4, 2.7)
    for axes, panel in zip(drawn.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        known = {"color": "#d55e00", "markersize": 3.5, "linewidth": 0.6, "label": "known trajectory"}
        axes.plot(*zip(*panel["known"], strict=True), "o-", alpha=0.55, markeredgewidth=0, **known)
        axes.plot(*zip(*panel["truth"], strict=True), color="#b8bec6", linewidth=4.5, label="another, truth")
        axes.plot(
            *zip(*panel["before"], strict=True), color=_INK, linestyle=":", linewidth=1.3, label="before adapting"
        )
        axes.plot(*zip(*panel["after"], strict=True), color="#0072b2", label="after adapting")
        axes.set(xlabel=figure["x_label"])
        axes.set_title(panel["title"], fontsize=8 if len(panels) > 3 else None)
    drawn.axes[0].set_ylabel(figure["y_label"])
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=4)


def _draw_paths(drawn: "Figure", figure: Paths) -> None:
    from matplotlib.patches import Circle

    rows, columns = figure["rows"], figure["columns"]
    drawn.set_size_inches(7.4, 0.4 + 1.7 * len(rows))
    grid = drawn.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
    for row, every_axes in zip(rows, grid, strict=True):
        for axes, panel in zip(every_axes, row["panels"], strict=False):
            x, y = panel["goal"]
            axes.add_patch(Circle((x, y), panel["radius"], color="#f0c9a8", linewidth=0))
            for path in panel["paths"]:
                axes.plot(*zip(*path, strict=True), color="#0072b2", alpha=0.55, linewidth=0.8)
            axes.plot(0, 0, "o", color=_INK, markersize=3)
            axes.set_aspect("equal")
        every_axes[0].set_ylabel(row["label"], fontsize=8)
    for axes, title in zip(grid[0], columns, strict=True):
        axes.set_title(title)


def _draw_panel(drawn: "Figure", axes: "Axes", panel: Panel) -> None:
    """The points, coloured on a scale; a few whole numbers are names of things, each with a colour of its own."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    kinds = sorted(set(panel["colour"]))
    look: dict[str, Any] = {"cmap": "viridis"}
    ticks = None
    if len(kinds) <= len(CLASSES) and kinds == list(range(len(kinds))):
        look = {
            "cmap": ListedColormap(CLASSES[: len(kinds)]),
            "norm": BoundaryNorm([kind - 0.5 for kind in range(len(kinds) + 1)], len(kinds)),
        }
        ticks = kinds
    points = axes.scatter(panel["x"], panel["y"], c=panel["colour"], s=13, linewidths=0, alpha=0.9, **look)
    bar = drawn.colorbar(points, ax=axes, label=panel["colour_label"], shrink=0.9, aspect=24, ticks=ticks)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def _gaps(values: list[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _for_a_page(svg: str, prefix: str) -> str:
    """Only the `<svg>` element, with ids and style that cannot affect the rest of a page."""
    svg = svg[svg.index("<svg") :]
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg)
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = svg.replace('<style type="text/css">*{', f'<style type="text/css">#{prefix} *{{')
    svg = svg.replace(f"'{_MEASURED_FONT}'", _SHOWN_FONTS)
    return svg.replace("<svg ", f'<svg id="{prefix}" ', 1)
