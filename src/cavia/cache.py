"""The cache folder, for things that can be made again: decoded pictures, built kernels."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$CAVIA_CACHE, or `cavia` in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache)."""
    if chosen := os.environ.get("CAVIA_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cavia"
