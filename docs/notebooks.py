"""python docs/notebooks.py: some guides as notebooks, notebooks/*.ipynb. A test asks that they are up to date.

The guides are the source: their text, their Python and their commands, cell by cell, without outputs.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUIDES = ("tour", "condition", "table")
BLOCK = re.compile(r"```(python|console)\n(.*?)```\n?", flags=re.DOTALL)


def notebook(guide: str) -> str:
    """A guide as the JSON of a notebook."""
    pieces = BLOCK.split((ROOT / "docs" / "guides" / f"{guide}.md").read_text())
    cells = []
    for number in range(0, len(pieces), 3):  # text, then the kind and the content of a block
        cells.append(cell("markdown", absolute_links(pieces[number])))
        if number + 2 < len(pieces):
            kind, content = pieces[number + 1 : number + 3]
            cells.append(cell("code", content if kind == "python" else as_shell(content)))
    kept = [one for one in cells if one["source"]]
    for number, one in enumerate(kept):
        one["id"] = f"{guide}-{number}"
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": kept, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def cell(kind: str, text: str) -> dict:
    """kind: markdown or code."""
    lines = text.strip().splitlines(keepends=True)
    extra = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": "", "metadata": {}, **extra, "source": lines}


def as_shell(content: str) -> str:
    """The commands of a console block; what they printed is left out."""
    commands = re.findall(r"^\$ (.*(?:\\\n.*)*)$", content, flags=re.MULTILINE)
    return "\n".join(f"!{command}" for command in commands)


def absolute_links(text: str) -> str:
    """Links of a guide, as seen from notebooks/."""
    text = re.sub(r"\]\(\.\./\.\./", "](../", text)
    text = re.sub(r"\]\(\.\./(?=[a-z]+\.md)", "](../docs/", text)
    return re.sub(r"\]\((?=[a-z]+\.md)", "](../docs/guides/", text)


def main() -> None:
    for guide in GUIDES:
        (ROOT / "notebooks" / f"{guide}.ipynb").write_text(notebook(guide))


if __name__ == "__main__":
    main()
