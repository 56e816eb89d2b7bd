"""Figures of small pictures as SVG: the truth, its known pixels, and every method's completion."""

from html import escape

from cavia.paper.schema import PicturePanel, Pictures

SIDE, GAP, LABEL, HEADER = 72, 5, 165, 24  # pixels of the page
STEP = SIDE + GAP
PANELS_IN_A_ROW = 2


def pictures_svg(figure: Pictures, prefix: str) -> str:
    """The figure as an `<svg>` element with the id `prefix`; white background, for light and dark pages."""
    rows = max(len(panel["rows"]) for panel in figure["panels"])
    panel_width = (1 + len(figure["columns"])) * STEP + 4 * GAP
    panel_height = HEADER + rows * STEP + 3 * GAP
    across = min(PANELS_IN_A_ROW, len(figure["panels"]))
    down = -(-len(figure["panels"]) // across)
    width, height = LABEL + across * panel_width, down * panel_height
    parts = [
        f'<svg id="{prefix}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="13" fill="#333840">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(figure["panels"]):
        column, row = number % across, number // across
        left, top = LABEL + column * panel_width, row * panel_height
        parts += _panel(panel, figure["columns"], left, top)
        if column == 0:
            parts += _labels(panel, top)
    return "\n".join([*parts, "</svg>"])


def _panel(panel: PicturePanel, columns: list[str], left: int, top: int) -> list[str]:
    parts = [_text(name, left + i * STEP + SIDE / 2, top + 16, "middle") for i, name in enumerate(["truth", *columns])]
    parts.append(_image(panel["truth"], left, top + HEADER))
    for down, row in enumerate(panel["rows"]):
        for across, picture in enumerate(row["pictures"], start=1):
            parts.append(_image(picture, left + across * STEP, top + HEADER + down * STEP))
    return parts


def _labels(panel: PicturePanel, top: int) -> list[str]:
    return [
        _text(row["label"], LABEL - 12, top + HEADER + i * STEP + SIDE / 2 + 4, "end")
        for i, row in enumerate(panel["rows"])
    ]


def _text(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _image(png: str, x: int, y: int) -> str:
    return (
        f'<image x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" image-rendering="pixelated" '
        f'href="data:image/png;base64,{escape(png)}"/>'
    )
