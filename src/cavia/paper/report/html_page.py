"""The report as one self-contained HTML page: no scripts, no external fonts or pictures."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from cavia.evaluation.verdict import MEANING
from cavia.paper.report.sections import ABOUT_BEYOND, BEYOND, PAGE_TITLE, PAPER, Drawing, Section, parts
from cavia.paper.report.tables import NOTHING, THEIRS, number, reading_key
from cavia.paper.schema import Claim, ResultTable, Row, TableCell


def html_page(sections: Sequence[Section]) -> str:
    """The whole page: contents, a summary and a section per experiment; those beyond the paper come last."""
    of_paper, beyond = parts(sections)
    style = files("cavia.paper.report").joinpath("page.css").read_text(encoding="utf-8")
    title = escape(PAGE_TITLE)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="paper">{escape(PAPER)}</p>
</header>
{_contents(of_paper, beyond)}
<main>
{_joined([*_paper_part(of_paper), *_beyond_part(beyond)])}
</main>
</body>
</html>
"""


def _contents(of_paper: Sequence[Section], beyond: Sequence[Section]) -> str:
    further = f'\n<h2><a href="#beyond">{BEYOND}</a></h2>\n{_links(beyond)}' if beyond else ""
    return f'<nav aria-label="Contents">\n<h2>Contents</h2>\n{_links(of_paper)}{further}\n</nav>'


def _links(sections: Sequence[Section]) -> str:
    links = _joined(
        f'<li><a href="#{section.anchor}">{escape(section.result["title"])}'
        f" <small>{escape(section.result['experiment'])}, {escape(section.budget)}</small></a></li>"
        for section in sections
    )
    return f"<ol>\n{links}\n</ol>"


def _paper_part(sections: Sequence[Section]) -> Iterator[str]:
    """The paper's experiments, after their summary."""
    if sections:
        verdicts = _joined(
            f'<span><span class="badge {verdict}">{verdict}</span> {escape(meaning)}</span>'
            for verdict, meaning in MEANING.items()
        )
        key = f'<p class="key">{verdicts}</p>'
        yield f'<section id="summary">\n<h2>Summary</h2>\n{_summary(sections, "Reproduces")}\n{key}\n</section>'
    yield from map(_section, sections)


def _beyond_part(sections: Sequence[Section]) -> Iterator[str]:
    """The same for experiments beyond the paper."""
    if sections:
        about = f'<p class="about">{escape(ABOUT_BEYOND)}</p>'
        yield (
            f'<section id="beyond" class="part">\n<h2>{BEYOND}</h2>\n{about}\n{_summary(sections, "Shows")}\n</section>'
        )
    yield from map(_section, sections)


def _summary(sections: Sequence[Section], what: str) -> str:
    """A line per experiment. what: heading of its subject; verdicts are shown only if there are any."""
    judged = any(section.verdicts for section in sections)
    headings = ("Experiment", what, "Budget", *(["Cells"] if judged else []), "Claims")
    rows = _joined(_summary_row(section, judged) for section in sections)
    return f"""<div class="wide"><table class="summary">
<thead><tr>{"".join(f"<th>{heading}</th>" for heading in headings)}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>"""


def _summary_row(section: Section, judged: bool) -> str:
    counts = section.verdicts
    nothing = f'<span class="nothing">{NOTHING}</span>'
    badges = " ".join(
        f'<span class="badge {verdict}">{counts[verdict]} {verdict}</span>' for verdict in MEANING if counts[verdict]
    )
    verdicts = f'<td class="verdicts">{badges or nothing}</td>' if judged else ""
    return (
        f'<tr><th><a href="#{section.anchor}">{escape(section.result["experiment"])}</a></th>'
        f"<td>{escape(section.reproduces)}</td><td>{_pill(section)}</td>"
        f"{verdicts}<td>{section.claims_in_words or nothing}</td></tr>"
    )


def _section(section: Section) -> str:
    result = section.result
    parts = [
        f"<h2>{escape(result['title'])} {_pill(section, 'budget: ')}</h2>",
        f'<p class="reproduces"><code>{escape(result["experiment"])}</code> {escape(section.reproduces)}</p>',
        *_body(section),
    ]
    for other in section.others:  # the same experiment with other sets of settings
        budget = other.result["budget"]
        words = "Exactly the paper's settings" if budget == "full" else f"Settings: {budget}"
        parts += [f'<h3 id="{other.anchor}">{words}</h3>', *_body(other)]
    return f'<section id="{section.anchor}">\n{_joined(parts)}\n</section>'


def _body(section: Section) -> Iterator[str]:
    if section.warning:
        yield f'<p class="warning" role="note">{escape(section.warning)}</p>'
    yield from (_figure(drawing) for drawing in section.drawings if drawing.opens)
    yield from map(_table, section.result.get("tables", []))
    yield from (_figure(drawing) for drawing in section.drawings if not drawing.opens)
    if claims := section.result.get("claims"):
        yield f'<h3>Claims</h3>\n<ul class="claims">\n{_joined(map(_claim, claims))}\n</ul>'
    rows = _joined(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in section.details)
    yield (
        "<details>\n<summary>How it was made: command, settings, machine, time</summary>\n"
        f"<pre><code>{escape(section.command)}</code></pre>\n<dl>\n{rows}\n</dl>\n</details>"
    )


def _pill(section: Section, before: str = "") -> str:
    return f'<span class="budget {section.result["budget"]}">{before}{escape(section.budget)}</span>'


def _table(table: ResultTable) -> str:
    """The table with its caption and reading key; scrolls sideways in narrow windows."""
    columns = "".join(f'<th scope="col">{escape(column)}</th>' for column in table["columns"])
    rows = "\n".join(_row(row, table["digits"], table.get("theirs", THEIRS)) for row in table["rows"])
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


def _row(row: Row, digits: int, whose: str) -> str:
    cells = "".join(_cell(cell, digits) for cell in row["cells"])
    theirs = (
        f'<span class="theirs">{escape(whose)}</span>' if any(cell and cell["paper"] for cell in row["cells"]) else ""
    )
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


def _figure(drawing: Drawing) -> str:
    caption = escape(drawing.caption)
    svg = drawing.svg.replace("<svg ", f'<svg role="img" aria-label="{caption}" ', 1)
    return f'<figure>\n<div class="card">{svg.strip()}</div>\n<figcaption>{caption}</figcaption>\n</figure>'


def _claim(claim: Claim) -> str:
    mark, words, kind = ("✓", "holds", "holds") if claim["holds"] else ("✗", "does not hold", "fails")
    return (
        f'<li class="{kind}"><span class="mark" aria-hidden="true">{mark}</span><div>{escape(claim["claim"])} '
        f'<span class="outcome">{words}</span><div class="evidence">{escape(claim["evidence"])}</div></div></li>'
    )


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(parts)
