"""The site holds docs/ and what the guides show from results/: links between the two work in both places."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
SHOWN = ("README.md", "claims.md", "report.md", "*.svg", "*/*.svg", "*/*.png", "benchmarks/*.md", "attack/*.md")
ICON = ROOT / "src" / "cavia" / "demo" / "page" / "icon.svg"
LONGEST = 28  # characters of code within a sentence that stay on one line, also on a phone


def on_files(files, config):
    """Add the figures, the pages that docs/ links to, and the demo's icon."""
    shown = {path.relative_to(ROOT).as_posix(): path for pattern in SHOWN for path in (ROOT / "results").glob(pattern)}
    for name, path in sorted(shown.items()):
        if path.suffix == ".md":
            text = for_the_site(path.read_text(encoding="utf-8"), name, shown)
            files.append(File.generated(config, name, content=text))
        else:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    files.append(File.generated(config, "pictures/icon.svg", abs_src_path=str(ICON)))
    return files


def on_page_markdown(markdown, page, config, files):
    """The site has results/ inside of what docs/ is in the repository: one folder less to go up.

    It has no src/: of links to source files only the words stay.
    """
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(rf"\[([^\]]+)\]\(\.\./{re.escape(up)}src/[^)]*\)", r"\1", markdown)
    return markdown.replace(f"](../{up}results/", f"]({up}results/")


def on_page_content(html, page, config, files):
    """Short code in a sentence or a table is not broken: a browser would do so after the hyphens of an option."""
    return re.sub(rf"<code>([^<\n]{{1,{LONGEST}}})</code>", r'<code class="whole">\1</code>', html)


def for_the_site(text, page, shown):
    """A page of results/ with links to what the site has; of links to other files only the words stay."""

    def link(match):
        words, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if place.startswith("docs/") and (ROOT / place).is_file():
            place = place.removeprefix("docs/")
        elif place not in shown:
            return words
        return f"[{words}]({posixpath.relpath(place, posixpath.dirname(page))}{hash_sign}{anchor})"

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!http|#)([^)]*)\)", link, text)
