"""Task ids: whole numbers or strings, one kind in a store."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, TypeAlias

from cavia.errors import CaviaError, shown

Id: TypeAlias = int | str
SHOWN = 3  # ids that an error names


def checked_ids(ids: Iterable[Any], ordered: bool = True) -> list[Any]:
    """The ids as a list of int or a list of str: from a list, a range, an array or tensor of whole numbers, …

    ordered: whether their order says which context is whose; then a set, which has none, is refused.
    """
    if isinstance(ids, str | bytes | Integral):
        raise CaviaError(f"ids must be a list, got the single id {shown(ids)}; give [{shown(ids)}]")
    if ordered and isinstance(ids, set | frozenset):
        raise CaviaError(f"ids must be a list, got {shown(ids)}, which has no order; give sorted(ids)")
    try:
        listed = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        kinds = set(map(type, listed))
    except (TypeError, RuntimeError) as error:
        raise CaviaError(f"ids must be a list of int or str, got {shown(ids)}") from error
    if kinds - {int, str}:
        listed = [_plain(one) for one in listed]
        kinds = set(map(type, listed))
    if kinds - {int, str}:
        wrong = next(one for one in listed if type(one) not in (int, str))
        raise CaviaError(f"ids must be int or str, got {shown(wrong)} of type {type(wrong).__name__}")
    if len(kinds) > 1:
        raise CaviaError("ids must be all int or all str, got both; str(id) makes them alike")
    if int in kinds and not (min(listed) >= -(2**63) and max(listed) < 2**63):
        raise CaviaError(f"int ids must fit 64 bits, got {shown(max(listed, key=abs))}; store it as a str")
    if str in kinds:
        try:
            "".join(listed).encode()
        except UnicodeEncodeError as error:
            wrong = error.object[error.start : error.end]
            raise CaviaError(f"ids must be valid Unicode, one holds {wrong!r}") from error
    return listed


def _plain(one: Any) -> Any:
    """NumPy's numbers and strings as Python's."""
    if isinstance(one, str):
        return str(one)
    return int(one) if isinstance(one, Integral) and not isinstance(one, bool) else one


def first_few(ids: Sequence[Id]) -> str:
    """The ids for an error message: `'a', 'b', 'c' and 4 more`."""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(map(shown, ids[:SHOWN])) + more
