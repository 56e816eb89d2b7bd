"""The benchmark of ranks writes its page and its numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "ranks.py"


@pytest.mark.slow
@pytest.mark.check
def test_a_page_and_numbers_are_written(tmp_path):
    command = [sys.executable, str(SCRIPT), "--work", "sine, CAVIA", "--rounds", "1", "--seconds", "0.01"]
    subprocess.run([*command, "--out", str(tmp_path)], check=True, capture_output=True, timeout=600)
    written = json.loads((tmp_path / "ranks.json").read_text())["work"]["sine, CAVIA"]
    assert len(written["milliseconds"]) == 3
    assert written["largest_difference"] < 1e-4
    assert written["bytes"] == 4 * (6 * 40 + 40 + 40 * 40 + 40 + 40 + 1 + 2)
    assert "sine, CAVIA, 25 tasks a batch" in (tmp_path / "ranks.md").read_text()
