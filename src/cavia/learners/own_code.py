"""Distinguishes loss functions by their code."""

import functools
import hashlib
from collections.abc import Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from cavia.tensor_file import digest

LENGTH = 16  # hexadecimal digits
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def identity(function: Any) -> str:
    """A digest of what the function computes: its code, and the values that it was defined with or looks up.

    Two functions that are written alike share one, wherever they stand. Another version of Python compiles the same
    text to other code, and so to another digest.
    """
    return hashlib.sha256(_told(function, set()).encode()).hexdigest()[:LENGTH]


def _told(value: Any, seen: set[int]) -> str:
    """The value as text that is the same in every process."""
    if isinstance(value, PLAIN):
        return repr(value)
    if id(value) in seen:
        return "…"
    seen = seen | {id(value)}
    if isinstance(value, Tensor):
        return digest({"": value}, "tensor")
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        parts = (value.__defaults__, value.__kwdefaults__, cells)
        return _told_code(value.__code__, value.__globals__, seen) + _told(parts, seen)
    if isinstance(value, MethodType):
        return _told((value.__func__, value.__self__), seen)
    if isinstance(value, functools.partial):
        return _told(("partial", value.func, value.args, value.keywords), seen)
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{_told(key, seen)}:{_told(one, seen)}" for key, one in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "(" + ",".join(_told(one, seen) for one in value) + ")"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(_told(one, seen) for one in value)) + "}"
    if isinstance(value, type | BuiltinFunctionType | ModuleType):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
    return _told_object(value, seen)


def _told_object(value: Any, seen: set[int]) -> str:
    """An object by its class, the code that is called, and what it holds."""
    kind = type(value)
    if hasattr(value, "tobytes"):  # an array
        return (
            f"{kind.__qualname__} {getattr(value, 'dtype', '')} {getattr(value, 'shape', '')} {value.tobytes().hex()}"
        )
    held = dict(getattr(value, "__dict__", {}))
    if isinstance(value, nn.Module):
        held = {name: one for name, one in held.items() if not name.startswith("_") and name != "training"}
        held |= value.state_dict()
    called = [getattr(kind, name, None) for name in ("forward", "__call__")]
    return _told([kind, *(one for one in called if isinstance(one, FunctionType)), held], seen)


def _told_code(code: CodeType, names: Mapping[str, Any], seen: set[int]) -> str:
    """Its instructions and constants, and the plain values and functions of its own module that it looks up."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    constants = [one for one in code.co_consts if not isinstance(one, CodeType)]
    looked_up = {name: names[name] for name in code.co_names if name in names}
    own = {name: one for name, one in looked_up.items() if _is_own(one, names)}
    rest = "".join(_told_code(one, names, seen) for one in inner)
    return code.co_code.hex() + _told([code.co_names, constants, own], seen) + rest


def _is_own(value: Any, names: Mapping[str, Any]) -> bool:
    return isinstance(value, (*PLAIN, Tensor)) or (isinstance(value, FunctionType) and value.__globals__ is names)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put into it
        return None
