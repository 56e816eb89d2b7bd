"""One table of a result as HTML: in each cell our number, the paper's below it, and the verdict as a badge."""

from html import escape

from cavia.paper.report.tables import NOTHING, number, reading_key
from cavia.paper.schema import ResultTable, Row, TableCell


def html_table(table: ResultTable) -> str:
    """The table with its caption and the way to read it; it scrolls sideways where the window is narrow."""
    columns = "".join(f'<th scope="col">{escape(column)}</th>' for column in table["columns"])
    rows = "\n".join(_row(row, table["digits"]) for row in table["rows"])
    return f"""<figure class="table">
<figcaption>{escape(table["caption"])} <small>{escape(reading_key(table))}</small></figcaption>
<div class="wide" tabindex="0"><table class="numbers">
<thead>
<tr><td></td><th colspan="{max(1, len(table["columns"]))}" scope="colgroup">{escape(table["column_title"])}</th></tr>
<tr><td></td>{columns}</tr>
</thead>
<tbody>
{rows}
</tbody>
</table></div>
</figure>"""


def _row(row: Row, digits: int) -> str:
    cells = "".join(_cell(cell, digits) for cell in row["cells"])
    theirs = '<span class="theirs">paper</span>' if any(cell and cell["paper"] for cell in row["cells"]) else ""
    return f'<tr><th scope="row">{escape(row["label"])}{theirs}</th>{cells}</tr>'


def _cell(cell: TableCell | None, digits: int) -> str:
    if cell is None:
        return f'<td class="nothing">{NOTHING}</td>'
    parts = [f'<span class="ours">{number(cell["ours"], digits)}</span>']
    if cell["paper"] is not None:
        parts.append(f'<span class="theirs">{number(cell["paper"], digits)}</span>')
    if verdict := cell.get("verdict"):
        parts.append(f'<span class="badge {verdict}">{verdict}</span>')
    if note := cell.get("note"):
        parts.append(f'<span class="note">{escape(note)}</span>')
    return f"<td>{''.join(parts)}</td>"
