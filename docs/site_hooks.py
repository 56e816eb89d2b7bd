"""The site holds docs/ and what the guides show from results/: links between the two work in both places."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
SHOWN = ("README.md", "claims.md", "report.md", "*.svg", "*/*.svg", "*/*.png", "benchmarks/*.md")


def on_files(files, config):
    """Add the figures, and the pages that docs/ links to."""
    for path in sorted(path for pattern in SHOWN for path in (ROOT / "results").glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".md":
            files.append(File.generated(config, name, content=_without_links(path.read_text())))
        else:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    icon = ROOT / "src" / "cavia" / "demo" / "page" / "icon.svg"
    files.append(File.generated(config, "pictures/icon.svg", abs_src_path=str(icon)))
    return files


def on_page_markdown(markdown, page, config, files):
    """The site has results/ inside of what docs/ is in the repository: one folder less to go up."""
    up = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"](../{up}results/", f"]({up}results/")


def _without_links(text):
    """Pages of results/ link to files that are only in the repository: keep the words, and the figures."""
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!http)[^)]*\)", r"\1", text)
