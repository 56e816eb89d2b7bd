"""The report as Markdown, with the figures as files beside it."""

from collections.abc import Sequence

from cavia.evaluation.verdict import MEANING
from cavia.paper.report.sections import PAGE_TITLE, PAPER, Section
from cavia.paper.report.tables import NOTHING, markdown_table, markdown_text


def markdown_page(sections: Sequence[Section]) -> str:
    """The whole page: a summary, and then each experiment with its tables, figures and claims."""
    verdicts = "; ".join(f"**{verdict}**: {meaning}" for verdict, meaning in MEANING.items())
    blocks = [f"# {PAGE_TITLE}", f"The paper: {PAPER}.", _summary(sections), f"Verdicts: {verdicts}."]
    for section in sections:
        blocks += _section(section)
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def _summary(sections: Sequence[Section]) -> str:
    lines = ["| experiment | reproduces | budget | cells | claims |", "| --- | --- | --- | --- | --- |"]
    for section in sections:
        result = section.result
        counts = section.verdicts
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MEANING) if counts else NOTHING
        texts = [result["experiment"], section.reproduces, result["budget"], verdicts]
        texts.append(section.claims_in_words or NOTHING)
        lines.append(f"| {' | '.join(map(markdown_text, texts))} |")
    return "\n".join(lines)


def _section(section: Section, level: str = "##") -> list[str]:
    result = section.result
    blocks = [f"{level} {markdown_text(result['title'])} (`{result['experiment']}`, {result['budget']} budget)"]
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
    command = " ".join(result["command"].split())
    details = [f"- {markdown_text(name)}: {markdown_text(value)}" for name, value in section.details]
    blocks.append(f"How it was made:\n\n```\n{command}\n```\n\n" + "\n".join(details))
    return blocks + [block for other in section.others for block in _section(other, level + "#")]


def _claim(claim: str, holds: bool, evidence: str) -> str:
    mark = "✓ holds" if holds else "✗ does not hold"
    return f"- {mark}: {markdown_text(claim)}\n  - {markdown_text(evidence)}"
