"""The errors that users see. Each message names the value, the limit and the fix, in one line."""

from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

LARGEST = 2**63 - 1  # what 64 bits hold
MOST_SHOWN = 80  # characters of a value in a message
LONGEST_WORD = 250  # characters; longer ones are no names or paths that anybody reads
LARGEST_RATE = 3e38  # what float32 holds
MOST_STEPS = 10**6  # of adaptation: minutes for a small network


class CaviaError(ValueError):
    """An error that the caller can fix: a bad value, shapes that do not match, a file that is not ours."""

    def __init__(self, message: object = ""):
        super().__init__(one_line(str(message)))


class Busy(CaviaError):
    """A folder that another process is using."""


class Diverged(RuntimeError):
    """The training loss is not finite."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped from outside, after a checkpoint was written if there is a run folder."""


def missing_package(what: str, package: str, extra: str) -> CaviaError:
    """An optional package is not installed. The distribution has another name than the module: `cavia` was taken."""
    return CaviaError(f"{what} needs {package}: pip install 'cavia-torch[{extra}]'")


def one_line(text: str) -> str:
    """One line, with overlong words cut short."""
    words = text.split(" ") if "\n" not in text else text.split()
    return " ".join(word if len(word) <= LONGEST_WORD else f"{word[:MOST_SHOWN]}…" for word in words)


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


def shown(value: Any) -> str:
    """A value as a message shows it: short, and on one line."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {type(value).__name__} {list(value.shape)} of {value.dtype}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a number of too many digits, or a class whose repr fails
        text = "<"
    if text.startswith("<") or len(text) > 5 * MOST_SHOWN:
        article = "an" if type(value).__name__[0] in "aeiouAEIOU" else "a"
        return f"{article} {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def named(path: Any) -> str:
    """A path as a message shows it: in quotes if it has unprintable characters."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def require_at_least(name: str, value: Any, least: int, most: int = LARGEST) -> int:
    """`value` as a whole number that is not below `least` and not above `most`, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise CaviaError(f"{name} must be a whole number, got {shown(value)}")
    number = int(value)
    if number < least:
        raise CaviaError(f"{name} must be at least {least}, got {shown(value)}")
    if number > most:
        raise CaviaError(f"{name} must be at most {most}, got {shown(value)}")
    return number


def require_steps(name: str, value: Any, least: int = 0) -> int:
    """`value` as a number of adaptation steps that comes to an end, or an error that names it."""
    return require_at_least(name, value, least, MOST_STEPS)


def require_one_of(name: str, value: Any, known: Any) -> None:
    """Raise, naming the nearest known value, unless `value` is one of them."""
    try:
        is_known = value in known
    except Exception:  # it has no hash, or compares element by element
        is_known = False
    if not is_known:
        text = value if isinstance(value, str) else shown(value)
        raise CaviaError(f"unknown {name} {shown(value)}; {closest(text, known)}")


def require_positive(name: str, value: Any) -> float:
    """`value` as a finite number above zero, or an error that names it."""
    number = _number(name, value)
    if not 0 < number < LARGEST_RATE:
        limit = f"below {LARGEST_RATE:g}" if LARGEST_RATE <= number < float("inf") else "finite"
        raise CaviaError(f"{name} must be above 0 and {limit}, got {shown(value)}")
    return number


def require_share(name: str, value: Any) -> float:
    """`value` as a number from 0 to 1, or an error that names it."""
    number = _number(name, value)
    if not 0 <= number <= 1:
        raise CaviaError(f"{name} must be from 0 to 1, got {shown(value)}")
    return number


def call_of_user(name: str, function: Any, *arguments: Any) -> Any:
    """function(*arguments), a function that the user gave under that name; an error that names it if it cannot be."""
    try:
        return function(*arguments)
    except CaviaError:
        raise
    except (TypeError, ValueError) as error:
        raise CaviaError(f"{name}={shown(function)} cannot be called so: {type(error).__name__}: {error}") from error


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise CaviaError(f"{name} must be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return float("inf")
