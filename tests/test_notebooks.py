"""The notebooks are the guides, cell by cell, and run: the guides' own test runs the same code."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
notebooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(notebooks)


@pytest.mark.parametrize("guide", notebooks.GUIDES)
def test_a_notebook_is_up_to_date(guide):
    written = (ROOT / "notebooks" / f"{guide}.ipynb").read_text()
    assert written == notebooks.notebook(guide), "run `python docs/notebooks.py`"


@pytest.mark.parametrize("guide", notebooks.GUIDES)
def test_a_notebook_has_all_of_the_guides_code_and_links_that_exist(guide):
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text()
    cells = json.loads((ROOT / "notebooks" / f"{guide}.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [block.strip() for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)] == [
        one for one in code if not one.startswith("!")
    ]
    prose = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (ROOT / "notebooks" / target).exists(), target


@pytest.mark.slow
def test_the_tour_runs_as_a_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for cell in json.loads((ROOT / "notebooks" / "tour.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["learner"].version
