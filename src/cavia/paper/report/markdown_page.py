"""The report as Markdown, with the figures as files beside it."""

from collections.abc import Sequence

from cavia.evaluation.verdict import MEANING
from cavia.paper.report.sections import ABOUT_BEYOND, BEYOND, PAGE_TITLE, PAPER, Section, parts
from cavia.paper.report.tables import NOTHING, markdown_table, markdown_text


def markdown_page(sections: Sequence[Section]) -> str:
    """The whole page: a summary, then each experiment with its tables, figures and claims."""
    verdicts = "; ".join(f"**{verdict}**: {meaning}" for verdict, meaning in MEANING.items())
    of_paper, beyond = parts(sections)
    blocks = [f"# {PAGE_TITLE}", f"The paper: {PAPER}."]
    if of_paper:
        blocks += [_summary(of_paper, "reproduces"), f"Verdicts: {verdicts}."]
    for section in of_paper:
        blocks += _section(section)
    if beyond:
        blocks += [f"## {BEYOND}", ABOUT_BEYOND, _summary(beyond, "shows")]
    for section in beyond:
        blocks += _section(section, "###")
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def _summary(sections: Sequence[Section], what: str) -> str:
    """A line per experiment. what: heading of its subject."""
    judged = any(section.verdicts for section in sections)
    headings = ["experiment", what, "budget", *(["cells"] if judged else []), "claims"]
    lines = [headings, ["---"] * len(headings)]
    for section in sections:
        counts = section.verdicts
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MEANING if counts[verdict]) or NOTHING
        texts = [section.result["experiment"], section.reproduces, section.budget, *([verdicts] if judged else [])]
        lines.append([*map(markdown_text, texts), markdown_text(section.claims_in_words or NOTHING)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _section(section: Section, level: str = "##") -> list[str]:
    result = section.result
    blocks = [f"{level} {markdown_text(result['title'])} (`{result['experiment']}`, budget: {section.budget})"]
    blocks.append(markdown_text(section.reproduces))
    if section.warning:
        blocks.append(f"> **{markdown_text(section.warning)}**")
    blocks += [markdown_table(table) for table in result.get("tables", [])]
    for drawing in section.drawings:
        caption = markdown_text(drawing.caption)
        blocks.append(f"![{caption}]({drawing.file})\n\n*{caption}*")
    claims = result.get("claims", [])
    if claims:
        blocks.append("\n".join(_claim(c["claim"], c["holds"], c["evidence"]) for c in claims))
    details = [f"- {markdown_text(name)}: {markdown_text(value)}" for name, value in section.details]
    blocks.append(f"How it was made:\n\n```\n{section.command}\n```\n\n" + "\n".join(details))
    return blocks + [block for other in section.others for block in _section(other, level + "#")]


def _claim(claim: str, holds: bool, evidence: str) -> str:
    """The claim with its evidence one level below, by as many spaces as the site's Markdown asks for."""
    mark = "✓ holds" if holds else "✗ does not hold"
    return f"- {mark}: {markdown_text(claim)}\n    - {markdown_text(evidence)}"
