"""A table of a result for the terminal and for Markdown: our numbers, the paper's and the verdicts, line by line."""

import re
from typing import TYPE_CHECKING

from cavia.paper.schema import Estimate, ResultTable, Row, TableCell
from cavia.paper.statistics import text

if TYPE_CHECKING:
    from rich.table import Table

NOTHING = "–"
THEIRS = "paper"  # label of the numbers below ours, unless a table says otherwise
_STYLES = {"within": "green", "better": "bold green", "short": "bold red"}


def number(estimate: Estimate | None, digits: int) -> str:
    """A mean with its interval as the paper prints it: `0.20 ± 0.02`; a dash if there is none."""
    return NOTHING if estimate is None else text(estimate, digits)


def reading_key(table: ResultTable) -> str:
    """How to read the numbers: `MSE, lower is better; ± 95 % interval`."""
    direction = "higher" if table["higher_is_better"] else "lower"
    cells = [cell for row in table["rows"] for cell in row["cells"] if cell]
    has_intervals = any(one and one.get("interval") for cell in cells for one in (cell["ours"], cell["paper"]))
    return f"{table['metric']}, {direction} is better" + ("; ± 95 % interval" if has_intervals else "")


def text_table(table: ResultTable) -> "Table":
    """The table for the terminal, printed by `rich`: for each method our numbers, the paper's and the verdicts."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        title=Text(table["caption"], style="bold"),
        caption=Text(f"{reading_key(table)}; columns: {table['column_title']}", style="dim"),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 1, 0, 0),
    )
    shown.add_column("")
    shown.add_column("")
    for column in table["columns"]:
        shown.add_column(Text(column), justify="right")
    for row in table["rows"]:
        lines = [(source, texts) for source, texts in _lines(row, table) if source != "note"]
        for index, (source, texts) in enumerate(lines):
            label = Text(row["label"] if index == 0 else "", style="bold")
            style = "" if source == "ours" else "dim"
            # A narrow terminal breaks lines at spaces: keep ± with its interval.
            cells = [Text(text.replace(" ± ", " ±"), style=_STYLES.get(text, style)) for text in texts]
            shown.add_row(label, Text(source, style="dim"), *cells, end_section=index == len(lines) - 1)
    return shown


def markdown_table(table: ResultTable) -> str:
    """The table in GitHub's Markdown, with a caption above and a reading key below."""
    header = ["", "", *map(markdown_text, table["columns"])]
    lines = [header, ["---", "---", *["---:"] * len(table["columns"])]]
    for row in table["rows"]:
        for index, (source, texts) in enumerate(_lines(row, table)):
            label = f"**{markdown_text(row['label'])}**" if index == 0 else ""
            lines.append([label, source, *map(markdown_text, texts)])
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    reading = f"{markdown_text(reading_key(table))}. Columns: {markdown_text(table['column_title'])}."
    return f"{markdown_text(table['caption'])}\n\n{body}\n\n{reading}\n"


def markdown_text(text: str) -> str:
    """The text on one line, with Markdown's special characters escaped."""
    return re.sub(r"([\\`*\[\]<>|&~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", " ".join(text.split()))


def _lines(row: Row, table: ResultTable) -> list[tuple[str, list[str]]]:
    """The printed lines of a row: a label, and a text per column."""
    digits = table["digits"]
    cells = [cell or TableCell(ours=None, paper=None) for cell in row["cells"]]
    quoted = any(cell["paper"] for cell in cells)
    lines = []
    if not quoted or any(cell["ours"] for cell in cells):
        lines.append(("ours", [number(cell["ours"], digits) for cell in cells]))
    if quoted:
        lines.append((table.get("theirs", THEIRS), [number(cell["paper"], digits) for cell in cells]))
    for name in ("verdict", "note"):
        texts = [str(cell.get(name) or "") for cell in cells]
        if any(texts):
            lines.append((name, texts))
    return lines
