"""The report as one HTML page that needs nothing else: no script, no font and no picture from outside."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from cavia.evaluation.verdict import MEANING
from cavia.paper.report.html_table import html_table
from cavia.paper.report.sections import PAGE_TITLE, PAPER, Drawing, Section
from cavia.paper.report.tables import NOTHING
from cavia.paper.schema import Claim, Result


def html_page(sections: Sequence[Section]) -> str:
    """The whole page: summary, contents, and a section for each experiment."""
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
{_contents(sections)}
<main>
{_summary(sections)}
{_joined(map(_section, sections))}
</main>
</body>
</html>
"""


def _contents(sections: Sequence[Section]) -> str:
    links = _joined(
        f'<li><a href="#{section.anchor}">{escape(section.result["title"])}'
        f" <small>{escape(section.result['experiment'])}, {section.result['budget']}</small></a></li>"
        for section in sections
    )
    return f'<nav aria-label="Contents">\n<h2>Contents</h2>\n<ol>\n{links}\n</ol>\n</nav>'


def _summary(sections: Sequence[Section]) -> str:
    rows = _joined(map(_summary_row, sections))
    verdicts = _joined(
        f'<span><span class="badge {verdict}">{verdict}</span> {escape(meaning)}</span>'
        for verdict, meaning in MEANING.items()
    )
    return f"""<section id="summary">
<h2>Summary</h2>
<div class="wide"><table class="summary">
<thead><tr><th>Experiment</th><th>Reproduces</th><th>Budget</th><th>Cells</th><th>Claims</th></tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
<p class="key">{verdicts}</p>
</section>"""


def _summary_row(section: Section) -> str:
    result = section.result
    counts = section.verdicts
    nothing = f'<span class="nothing">{NOTHING}</span>'
    badges = " ".join(
        f'<span class="badge {verdict}">{counts[verdict]} {verdict}</span>' for verdict in MEANING if counts[verdict]
    )
    return (
        f'<tr><th><a href="#{section.anchor}">{escape(result["experiment"])}</a></th>'
        f"<td>{escape(section.reproduces)}</td><td>{_pill(result['budget'])}</td>"
        f'<td class="verdicts">{badges or nothing}</td><td>{section.claims_in_words or nothing}</td></tr>'
    )


def _section(section: Section) -> str:
    result = section.result
    parts = [
        f"<h2>{escape(result['title'])} {_pill(result['budget'], ' budget')}</h2>",
        f'<p class="reproduces"><code>{escape(result["experiment"])}</code> {escape(section.reproduces)}</p>',
        _warning(section),
        *(_figure(drawing) for drawing in section.drawings if drawing.opens),
        *map(html_table, result.get("tables", [])),
        *(_figure(drawing) for drawing in section.drawings if not drawing.opens),
        _claims(result.get("claims", [])),
        _details(section),
        *map(_other, section.others),
    ]
    return f'<section id="{section.anchor}">\n{_joined(part for part in parts if part)}\n</section>'


def _other(section: Section) -> str:
    """The same experiment with another set of settings."""
    result = section.result
    parts = [
        f'<h3 id="{section.anchor}">{_set_in_words(result)}</h3>',
        _warning(section),
        *map(html_table, result.get("tables", [])),
        *map(_figure, section.drawings),
        _claims(result.get("claims", [])),
        _details(section),
    ]
    return _joined(part for part in parts if part)


def _warning(section: Section) -> str:
    return f'<p class="warning" role="note">{escape(section.warning)}</p>' if section.warning else ""


def _set_in_words(result: Result) -> str:
    return "The paper's settings, to the letter" if result["budget"] == "full" else f"Settings: {result['budget']}"


def _pill(budget: str, noun: str = "") -> str:
    return f'<span class="budget {budget}">{budget}{noun}</span>'


def _figure(drawing: Drawing) -> str:
    caption = escape(drawing.caption)
    svg = drawing.svg.replace("<svg ", f'<svg role="img" aria-label="{caption}" ', 1)
    return f'<figure>\n<div class="card">{svg.strip()}</div>\n<figcaption>{caption}</figcaption>\n</figure>'


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    items = _joined(map(_claim, claims))
    return f'<h3>Claims</h3>\n<ul class="claims">\n{items}\n</ul>'


def _claim(claim: Claim) -> str:
    mark, words, kind = ("✓", "holds", "holds") if claim["holds"] else ("✗", "does not hold", "fails")
    return (
        f'<li class="{kind}"><span class="mark" aria-hidden="true">{mark}</span><div>{escape(claim["claim"])} '
        f'<span class="outcome">{words}</span><div class="evidence">{escape(claim["evidence"])}</div></div></li>'
    )


def _details(section: Section) -> str:
    rows = _joined(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in section.details)
    return (
        "<details>\n<summary>How it was made: command, settings, machine, time</summary>\n"
        f"<pre><code>{escape(section.result['command'])}</code></pre>\n<dl>\n{rows}\n</dl>\n</details>"
    )


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(parts)
