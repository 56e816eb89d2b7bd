"""Every method has a page, and what the pages say about the code and the commands is true."""

import ast
import re
from pathlib import Path

import pytest

import cavia
from cavia.paper.catalogue import CATALOGUE

DOCS = Path(__file__).parent.parent / "docs"
SOURCE = DOCS.parent / "src" / "cavia"
PAGES = sorted((DOCS / "methods").glob("*.md"))
OVERVIEW = dict(re.findall(r"\[`(\w+)`\]\(\.\./methods/([\w-]+)\.md\)", (DOCS / "guides" / "methods.md").read_text()))
ROW = re.compile(r"^\| .* \| \[`(.+)`\]\((.+)\) \| (.*) \|$", flags=re.MULTILINE)  # equation, file, where in it


def methods():
    """The learners that the reference lists."""
    _, behind = (DOCS / "reference.md").read_text().split("## Learners\n")
    names = re.findall(r"^::: cavia\.(\w+)$", behind.split("## ")[0], flags=re.MULTILINE)
    values = {name: getattr(cavia, name) for name in names if name != "Learner"}
    return [name for name, value in values.items() if isinstance(value, type) and issubclass(value, cavia.Learner)]


def definitions(node, prefix=""):
    """The classes and functions of a file, and of its classes, by their names within it."""
    for part in node.body:
        if isinstance(part, ast.ClassDef | ast.FunctionDef):
            yield prefix + part.name
        if isinstance(part, ast.ClassDef):
            yield from definitions(part, f"{prefix}{part.name}.")


@pytest.mark.parametrize("name", methods())
def test_every_method_has_a_page_that_begins_with_it(name):
    opening = (DOCS / "methods" / f"{OVERVIEW[name]}.md").read_text().split("\n## ")[0]
    assert f"`cavia.{name}`" in opening


def test_every_page_is_in_the_overview_and_on_the_site():
    names = {path.stem for path in PAGES}
    assert names == set(OVERVIEW.values())
    assert names == set(re.findall(r"- methods/([\w-]+)\.md", (DOCS.parent / "mkdocs.yml").read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pages_have_the_same_parts(page):
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == ["Equations", "Example", "Options", "Results"]
    assert "```python" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_equations_are_where_the_page_says(page):
    text = page.read_text()
    rows = ROW.findall(text)
    assert 0 < len(rows) == text.count("/src/")
    for shown, target, where in rows:
        file = (page.parent / target).resolve()
        assert file == (SOURCE / shown).resolve(), shown
        named = re.findall(r"`(.+?)`", where)
        assert named, where
        missing = set(named) - set(definitions(ast.parse(file.read_text())))
        assert not missing, f"{shown} has no {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_results_name_a_command_that_measures_them(page):
    commands = re.findall(r"`cavia run\s(\w+)`", page.read_text().split("## Results")[1])
    assert commands
    assert set(commands) <= set(CATALOGUE)
