"""The commit of the running code, so that a result can name it."""

import subprocess
from functools import cache
from pathlib import Path


@cache
def this_commit() -> str:
    """The commit of the checkout that cavia runs from, with a "+" if it was changed since; else the version."""
    here = Path(__file__).parent
    try:
        top = _git(here, "rev-parse", "--show-toplevel")
        if Path(top, "src", "cavia").resolve() != here.resolve():  # installed into somebody else's checkout
            raise OSError(f"{top} is not a checkout of cavia")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
        return _git(here, "rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        from cavia import __version__

        return f"version {__version__}"


def _git(folder: Path, *command: str) -> str:
    done = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()
