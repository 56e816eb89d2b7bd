"""Guides and pages of methods run: their Python in order, their commands, and their links exist."""

import re
import shlex
from pathlib import Path

import pytest

import cavia
from cavia.cli import main

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
METHODS = sorted((ROOT / "docs" / "methods").glob("*.md"))
BLOCK = re.compile(r"```(python|console)\n(.*?)```", flags=re.DOTALL)


SLOW = (
    "images",
    "table",
    "estimator",
    "policies",
    "online",
    "tour",
    "export",
    "methods",
    "library",
    "dynamics",
    "serve",
    "tracking",
)  # they draw pictures, train or compile


@pytest.mark.parametrize(
    "guide",
    [
        *(pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in SLOW)) for path in GUIDES),
        *(pytest.param(path, id=path.stem, marks=pytest.mark.slow) for path in METHODS),
    ],
)
def test_a_guide_runs_from_top_to_bottom(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "cache"))
    names: dict = {}
    blocks = BLOCK.findall(guide.read_text())
    assert blocks
    for number, (kind, text) in enumerate(blocks):
        if kind == "python":
            exec(compile(text, f"{guide.name}, block {number}", "exec"), names)
        else:
            for command in re.findall(r"^\$ cavia (.*)$", text, flags=re.MULTILINE):
                assert main(shlex.split(command)) == 0, command


def test_links_of_the_guides_exist():
    for document in (*GUIDES, *METHODS, ROOT / "docs" / "index.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
    assert len(GUIDES) >= 5


def test_everything_public_is_in_the_reference():
    reference = (ROOT / "docs" / "reference.md").read_text()
    environments = {f"envs.{name}" for name in cavia.envs.__all__}
    public = set(cavia.__all__) - {"envs"} | environments
    assert set(re.findall(r"^::: cavia\.([\w.]+)$", reference, flags=re.MULTILINE)) == public


def test_the_home_page_runs_and_leads_to_every_guide():
    home = (ROOT / "docs" / "index.md").read_text()
    for kind, text in BLOCK.findall(home):
        assert kind == "python"
        exec(compile(text, "index.md", "exec"), {})
    assert {path.name for path in GUIDES} <= set(re.findall(r"\(guides/(\w+\.md)\)", home))
