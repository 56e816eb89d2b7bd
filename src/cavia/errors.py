"""The errors that a user meets. Each message names the value, the limit and the fix, in one line."""

from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


class CaviaError(ValueError):
    """Something that the caller can mend: a bad value, shapes that do not match, a file that is not ours."""


class Busy(CaviaError):
    """A folder that another process is at work in."""


class Diverged(RuntimeError):
    """Training met a loss that is not finite."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped from outside, after a checkpoint was written if there is a run folder."""


def closest(name: str, names: Any) -> str:
    """The tail of an error about an unknown name: the nearest known one, or all of them."""
    near = get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(sorted(names))}"


def nearest(name: str, names: Any) -> str:
    """The tail of an error about an unknown name among many: up to three near ones, or some of them."""
    known = [known for known in names if known]
    near = get_close_matches(name, known, n=3, cutoff=0.4) or [known for known in known if name and name in known][:3]
    if near:
        return f"the nearest are {', '.join(map(repr, near))}"
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return f"it has {', '.join(map(repr, known[:5]))}{more}" if known else "it has none"


def require_at_least(name: str, value: Any, least: int) -> int:
    """`value` as a whole number that is not below `least`, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise CaviaError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise CaviaError(f"{name} must be at least {least}, got {value}")
    return int(value)


def require_one_of(name: str, value: Any, known: Any) -> None:
    """An error that names the nearest of the known values unless `value` is one of them."""
    if value not in known:
        raise CaviaError(f"unknown {name} {value!r}; {closest(str(value), known)}")


def require_positive(name: str, value: Any) -> float:
    """`value` as a finite number above zero, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise CaviaError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not 0 < number < float("inf"):
        raise CaviaError(f"{name} must be above 0 and finite, got {value}")
    return number
