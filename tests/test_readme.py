"""What the README shows works: its Python runs, its commands parse, its links exist."""

import re
from pathlib import Path

import pytest

from cavia.cli import make_parser
from cavia.paper.catalogue import find

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
REPRODUCING = (ROOT / "docs" / "reproducing.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
GALLERY = (ROOT / "docs" / "gallery.md").read_text()
COMMANDS = re.findall(r"^    cavia (.*?)(?:\s+#.*)?$", README + REPRODUCING + GALLERY, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_python_runs(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), names)
    assert names["learner"].task_losses is not None


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    options = make_parser().parse_args(command.split())
    assert callable(options.action)
    if options.command == "run":
        name = "full" if options.full else "tuned" if options.tuned else "quick"
        find(options.experiment).settings(name, dict(setting.split("=", 1) for setting in options.set))


def test_links_exist():
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_there_is_something_to_test():
    assert len(SNIPPETS) >= 2
    assert len(COMMANDS) >= 5
    for command in ("make run", "make test"):
        assert command in README
