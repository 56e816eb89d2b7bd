"""Argument checks: each argument matches its annotation, or a one-line error names it.

    @checked
    def fit(learner: Learner, iterations: int, …): …

Values stay with `require_at_least` and the like (`errors.py`).
"""

import os
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from itertools import islice
from numbers import Integral, Real
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from cavia.errors import CaviaError, shown

MOST_ELEMENTS = 1000  # of a collection are looked at
LARGE = 100_000  # a number that may be to blame where memory runs out
NO_MEMORY = ("allocate memory", "out of memory", "Storage size calculation overflowed", "invalid size, tried to")
Anything = TypeVar("Anything", bound=Callable[..., Any])


class Kind(NamedTuple):
    """What an annotation requires: a test, and its description in messages."""

    holds: Callable[[Any], bool]
    words: str


ANY = Kind(lambda value: True, "anything")


def checked(code: Anything) -> Anything:
    """The function, or the class with its constructor, with a check of every argument that has an annotation.

    Annotations are read at the first call. One that cannot be resolved is not checked, nor are defaults.
    """
    if isinstance(code, type):
        if issubclass(code, tuple):
            code.__new__ = checked(code.__new__)  # type: ignore[method-assign]
        else:
            code.__init__ = checked(code.__init__)  # type: ignore[method-assign]
        return code
    guard = Guard(code)
    check = guard.check

    @wraps(code)
    def checking(*arguments: Any, **named: Any) -> Any:
        check(arguments, named)
        try:
            return code(*arguments, **named)
        except (MemoryError, RuntimeError) as error:
            guard.refuse_size(error, arguments, named)
            raise

    return checking  # type: ignore[return-value]


class Guard:
    """The kinds of a function's arguments, in order and by name."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.in_order: list[tuple[str, Kind] | None] | None = None
        self.by_name: dict[str, Kind] = {}

    def check(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Raise a CaviaError that names the first argument of a wrong kind."""
        if self.in_order is None:
            self._read()
        for entry, value in zip(self.in_order, arguments, strict=False):  # type: ignore[arg-type]
            if entry is not None and not entry[1].holds(value):
                raise _wrong(*entry, value)
        for name, value in named.items():
            kind = self.by_name.get(name)
            if kind is not None and not kind.holds(value):
                raise _wrong(name, kind, value)

    def refuse_size(self, error: Exception, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Raise a CaviaError that names the large numbers among the arguments, if memory ran out because of them."""
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in NO_MEMORY):
            return
        given = signature(self.function).bind(*arguments, **named).arguments
        large = [f"{name}={shown(value)}" for name, value in given.items() if _is_large(value)]
        if large:
            message = f"{self.function.__qualname__} ran out of memory with {', '.join(large)}; choose less"
            raise CaviaError(message) from error

    def _read(self) -> None:
        in_order: list[tuple[str, Kind] | None] = []
        names = getattr(self.function, "__globals__", {})
        for name, parameter in signature(self.function).parameters.items():
            kind = kind_of(_resolved(parameter.annotation, names))
            if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                continue
            if kind is not ANY:
                self.by_name[name] = kind
            if parameter.kind is not Parameter.KEYWORD_ONLY:
                in_order.append(None if kind is ANY else (name, kind))
        self.in_order = in_order  # last: another thread may look


def require_kind(name: str, value: Any, hint: Any) -> None:
    """Raise unless the value matches an annotation, where no decorator can be used."""
    kind = kind_of(hint)
    if not kind.holds(value):
        raise _wrong(name, kind, value)


def _wrong(name: str, kind: Kind, value: Any) -> CaviaError:
    fix = "; use torch.as_tensor" if "tensor" in kind.words and hasattr(value, "__array__") else ""
    if "a sequence of whole numbers" in kind.words and _is_whole(value):
        fix = f"; for instance ({value}, {value})"
    if "cavia.ContextModel" in kind.words and hasattr(value, "named_modules"):
        fix = "; cavia.condition makes one of any module"
    if "cavia.Outer" in kind.words:
        fix = "; for instance cavia.Adam(lr=0.001)"
    return CaviaError(f"{name} must be {kind.words}, got {shown(value)}{fix}")


def kind_of(hint: Any) -> Kind:
    """The kind that an annotation asks for; what is not known is not checked."""
    if hint is None or hint is type(None):
        return Kind(lambda value: value is None, "None")
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _either([kind_of(one) for one in inside])
    if origin is Annotated:
        return kind_of(inside[0])
    if origin is Literal:
        choices = ", ".join(map(repr, inside))
        return Kind(lambda value: any(value is one or value == one for one in inside), f"one of {choices}")
    if origin is Callable or hint is Callable:
        return Kind(callable, "a function")
    if origin is type:
        return _class(inside[0])
    if isinstance(origin or hint, type):
        return _instance(origin or hint, inside)
    return ANY


def _either(kinds: Sequence[Kind]) -> Kind:
    if any(kind is ANY for kind in kinds):
        return ANY
    tests = [kind.holds for kind in kinds]
    words = list(dict.fromkeys(kind.words for kind in kinds))
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if len(tests) == 2:
        one, other = tests
        return Kind(lambda value: one(value) or other(value), text)
    return Kind(lambda value: any(holds(value) for holds in tests), text)


def _class(of: Any) -> Kind:
    if not isinstance(of, type):
        return Kind(lambda value: isinstance(value, type), "a class")
    return Kind(lambda value: isinstance(value, type) and issubclass(value, of), f"a subclass of {_name(of)}")


def _instance(kind: type, inside: Sequence[Any]) -> Kind:
    if kind is object or getattr(kind, "_is_protocol", False):
        return ANY
    if issubclass(kind, tuple) and kind is not tuple:  # a named tuple
        return Kind(lambda value: isinstance(value, kind), f"a {_name(kind)}")
    if issubclass(kind, Mapping):
        return _mapping(inside)
    if issubclass(kind, Sequence) and kind not in (str, bytes):
        return _sequence(kind, inside)
    article = "an" if _name(kind)[0] in "aeiouAEIOU" else "a"
    return Kind(lambda value: isinstance(value, kind), f"{article} {_name(kind)}")


def _mapping(inside: Sequence[Any]) -> Kind:
    keys, values = (kind_of(one) for one in (inside or (Any, Any)))

    def holds(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        return all(keys.holds(key) and values.holds(one) for key, one in islice(value.items(), MOST_ELEMENTS))

    of = "" if values is ANY and keys is ANY else f" of {keys.words} to {values.words}"
    return Kind(holds, f"a mapping{of}")


def _sequence(kind: type, inside: Sequence[Any]) -> Kind:
    """Any sequence but text: lists, tuples, ranges, and arrays of one axis."""
    of = [kind_of(one) for one in inside if one is not Ellipsis]
    fixed = kind is tuple and bool(inside) and inside[-1] is not Ellipsis

    def holds(value: Any) -> bool:
        if isinstance(value, str | bytes) or not (isinstance(value, Sequence) or getattr(value, "ndim", 0) == 1):
            return False
        if not of or (of[0] is ANY and not fixed):
            return True
        if fixed:
            return len(value) == len(of) and all(one.holds(part) for one, part in zip(of, value, strict=True))
        return all(of[0].holds(part) for part in islice(value, MOST_ELEMENTS))

    if fixed:
        return Kind(holds, f"({', '.join(one.words for one in of)})")
    plain = not of or of[0] is ANY
    return Kind(holds, "a sequence" if plain else f"a sequence of {_PLURALS.get(of[0].words, of[0].words)}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_large(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_large, value))
    return _is_whole(value) and value >= LARGE


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"))


def _name(kind: type) -> str:
    """A class as users know it."""
    if kind.__module__.split(".")[0] == "cavia":
        return f"cavia.envs.{kind.__name__}" if ".envs." in kind.__module__ else f"cavia.{kind.__name__}"
    if kind.__module__.split(".")[0] == "torch":
        return "tensor" if kind.__name__ == "Tensor" else f"torch {kind.__name__}"
    return kind.__name__


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    """The annotation as an object; Any, if it is a name that is not known here."""
    if hint is Parameter.empty:
        return Any
    if isinstance(hint, ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        try:
            return _resolved(eval(hint, names), names)
        except Exception:
            return Any
    if get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(_resolved(one, names) for one in get_args(hint))]  # noqa: UP007  # of parts that are computed
    return hint


_PLAIN: dict[Any, Kind] = {
    Any: ANY,
    int: Kind(_is_whole, "a whole number"),
    float: Kind(_is_number, "a number"),
    bool: Kind(_is_bool, "True or False"),
    str: Kind(lambda value: isinstance(value, str), "a string"),
    bytes: Kind(lambda value: isinstance(value, bytes), "bytes"),
    os.PathLike: Kind(lambda value: isinstance(value, os.PathLike), "a path"),
    os.PathLike[str]: Kind(lambda value: isinstance(value, os.PathLike), "a path"),
    Collection: ANY,
}
_PLURALS = {"a whole number": "whole numbers", "a number": "numbers", "a string": "strings", "a tensor": "tensors"}
