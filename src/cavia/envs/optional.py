"""MuJoCo and Gymnasium, which the library works without until they are needed."""

import importlib
from typing import Any

from cavia.errors import missing_package


def optional(name: str) -> Any:
    """The module `name` of the optional part "rl", or an error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_package("this environment", f"{name} ({error})", "rl") from None
