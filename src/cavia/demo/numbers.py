"""Tensors as JSON, which has no NaN."""

import math
from typing import Any

from torch import Tensor


def as_json(values: Tensor) -> Any:
    """Nested lists; null where a number is not finite."""
    listed = values.tolist()
    return listed if values.isfinite().all() else _with_null(listed)


def _with_null(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_null(one) for one in value]
    return value if math.isfinite(value) else None
