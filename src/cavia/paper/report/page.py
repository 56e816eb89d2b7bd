"""Writes the report: one self-contained HTML page, the same in Markdown, and every figure as SVG."""

from collections.abc import Sequence
from pathlib import Path

from cavia.paper.report.html_page import html_page
from cavia.paper.report.markdown_page import markdown_page
from cavia.paper.report.reading import read_results
from cavia.paper.report.sections import make_sections
from cavia.tensor_file import write_atomically


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Report every result found below `folders` in `out`: `index.html`, `report.md` and an SVG per figure.

    Returns the path of `index.html`. The same results give the same bytes. Everything is drawn before anything is
    written, so a faulty result leaves `out` as it was.
    """
    out = Path(out)
    sections = make_sections(read_results(folders))
    contents = {drawing.file: drawing.svg for section in sections for drawing in section.all_drawings}
    contents["report.md"] = markdown_page(sections)
    contents["index.html"] = html_page(sections)
    for name, content in contents.items():
        write_atomically(out / name, content.encode())
    return out / "index.html"
