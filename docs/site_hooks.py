"""The site holds docs/ and what the guides show from results/: links between the two work in both places."""

from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "benchmarks/users.md")


def on_files(files, config):
    """Add the figures, and the pages that guides link to."""
    results = ROOT / "results"
    for path in [*results.glob("*.svg"), *(results / page for page in PAGES)]:
        if path.exists():
            name = path.relative_to(ROOT).as_posix()
            if path.suffix == ".md":
                files.append(File.generated(config, name, content=_without_links(path.read_text())))
            else:
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """From docs/guides/, results/ is two folders up in the repository and one in the site."""
    return markdown.replace("](../../results/", "](../results/")


def _without_links(text):
    """Pages of results/ link to files that are only in the repository: keep the words."""
    import re

    return re.sub(r"\[([^\]]+)\]\((?!http)[^)]*\)", r"\1", text)
