"""How a mean and its interval are written, wherever we print one."""

import math


def with_interval(mean: float, width: float | None, digits: int) -> str:
    """A mean and the half width of its interval: `0.193 ± 0.016`.

    A width that would round to zero gets more digits, `0.024 ± 0.0003`; one that is zero or unknown is left out.
    """
    shown = _decimal(mean, digits)
    if not width or not math.isfinite(width):
        return shown
    enough = digits if width >= 0.5 * 10.0**-digits else -math.floor(math.log10(width))
    return f"{shown} ± {_decimal(width, enough)}"


def _decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if abs(value) < 1e6 else f"{value:.1e}"
