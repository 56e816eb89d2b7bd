"""What one cell of a table holds: nothing, a number, a code, a date or text; and each of them as a value."""

import re
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import Any

from cavia.errors import MOST_SHOWN, shown

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none"))  # in any case; what a missing value looks like in text

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
CODE = re.compile(r"[+-]?0\d+", re.ASCII)  # a leading zero: 01234 is a postcode, no number
WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
DATE = re.compile(
    r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})"
    r"(?:(?:T| +)(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?)? *(?P<zone>Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
COMPACT_DATE = re.compile(r"(\d{4})()(\d{2})(\d{2})()()()", re.ASCII)  # 20240331: a date only if we are told so
LIKE_A_NUMBER = re.compile(r"[€$£¥]? *[+-]?\d[\d ,.'’_]* *[%€$£¥]?", re.ASCII)
MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
LIKE_A_DATE = re.compile(
    rf"(?:\d{{4}}([-/. ])\d{{1,2}}\1\d{{1,2}}|\d{{1,2}}([-/. ])\d{{1,2}}\2(?:\d{{4}}|\d\d))(?:[T ].*)?"
    rf"|\d{{1,2}}[-. ]*(?:{MONTHS})[a-z]*[-., ]*\d{{2,4}}"
    rf"|(?:{MONTHS})[a-z]*[-., ]*\d{{1,2}}[-., ]+\d{{4}}",
    re.ASCII | re.IGNORECASE,
)


def kind_of(value: Any) -> str:
    """ "missing", "number", "code", "date", "text", or "like a number", "like a date", "other" for what is none.

    Codes are digits with a leading zero. Truth values count as text.
    """
    if is_missing(value):
        return "missing"
    if not isinstance(value, str):
        if isinstance(value, date):
            return "date"
        if is_truth(value):
            return "text"
        return "number" if isinstance(value, Real | Decimal) else "other"
    return _kind_of_text(value.strip())


@lru_cache(2**16)
def _kind_of_text(text: str) -> str:
    if NUMBER.fullmatch(text):
        return "code" if CODE.fullmatch(text) else "number"
    if as_date(text) is not None:
        return "date"
    if LIKE_A_NUMBER.fullmatch(text) and not set(text) <= set("0123456789.+-"):
        return "like a number"
    return "like a date" if LIKE_A_DATE.fullmatch(text) else "text"


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, and text such as "", "NA" or "null"."""
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or _is_nan(value)


def is_nameless(value: Any) -> bool:
    """Missing as a name: "NA" and "null" are names like any other."""
    return not value.strip() if isinstance(value, str) else is_missing(value)


def is_truth(value: Any) -> bool:
    """True or False, also NumPy's."""
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def as_number(value: Any) -> float | None:
    """The number that a cell holds, infinite if it is too large for one; None: it holds none."""
    if isinstance(value, str):
        text = value.strip()
        return float(text) if NUMBER.fullmatch(text) else None
    if is_truth(value) or not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")  # which is as much too large as its negative


def as_date(value: Any, compact: bool = False) -> datetime | None:
    """The date and time that a cell holds, as its clock shows them; None: it holds none.

    compact: 20240331 is a date, too.
    """
    if isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, value.hour, value.minute, value.second)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    return _date_of_text(as_text(value), compact) if compact or isinstance(value, str) else None


@lru_cache(2**16)
def _date_of_text(text: str, compact: bool) -> datetime | None:
    match = DATE.fullmatch(text) or (COMPACT_DATE.fullmatch(text) if compact else None)
    if not match:
        return None
    year, _, *rest = match.groups()[:7]
    try:
        return datetime(int(year), *(int(part or 0) for part in rest))  # type: ignore[arg-type]
    except ValueError:  # the 31st of February
        return None


def has_zone(value: Any) -> bool | None:
    """Whether a time of day says its zone; None: the cell is no date, or one without a time."""
    if isinstance(value, datetime):
        return value.tzinfo is not None
    match = DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    return match["zone"] is not None if match and match[5] else None


def as_text(value: Any) -> str:
    """A cell as text; whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    try:
        return str(value).strip()
    except ValueError:  # a whole number of more digits than Python writes
        return hex(value)


def canonical(text: str) -> str:
    """A category's text, the same for 1, 1.0 and "1.0"."""
    match = WHOLE.fullmatch(text)
    return match.group(1) if match else text


def shown_cell(value: Any) -> str:
    """A cell as a message shows it: on one line, and not too long."""
    value = value.item() if hasattr(value, "item") else value  # a number of NumPy's
    if isinstance(value, int) and abs(value) >= 10**15:
        return f"{Decimal(value):.4g}"
    return shown(f"{value[:MOST_SHOWN]}…" if isinstance(value, str) and len(value) > MOST_SHOWN else value)


def _is_nan(value: Any) -> bool:
    try:
        return bool(value != value)
    except (TypeError, ValueError, ArithmeticError):  # an array, a signalling NaN, pandas' NA
        return isinstance(value, Decimal) or type(value).__name__ == "NAType"
