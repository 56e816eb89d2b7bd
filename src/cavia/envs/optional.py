"""MuJoCo and Gymnasium, imported only when needed."""

import importlib
from typing import Any

from cavia.errors import missing_package


def optional(name: str) -> Any:
    """The module `name` of the extra "rl", or an error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_package("this environment", f"{name} ({error})", "rl") from None
