"""Objects that know their constructor arguments, and classes that register themselves by name."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Any, ClassVar, Self, TypeVar

from cavia.errors import CaviaError, closest
from cavia.kinds import Guard

Kind = TypeVar("Kind", bound="Built")
_guards: "dict[type[Built], Guard]" = {}  # of constructors
_families: "dict[type[Built], dict[str, list[type[Any]]]]" = {}


class _Signature:
    """The constructor's, for `inspect`, which would look at `__new__`."""

    def __get__(self, instance: Any, kind: type[Any]) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        signature = inspect.signature(kind.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class Built:
    """Has each argument of its constructor as an attribute of the same name, as estimators of scikit-learn do.

    A direct subclass is a family, such as learners or models. Every class of a family is registered by being defined:
    `known` lists them, `find` finds one by name.

    parts: names of the arguments that are not JSON values, such as a network; they are saved in other ways.
    later: arguments that earlier versions did not have, and the value that matches their behaviour. Files leave out
           arguments with this value, so that old versions and folders keep their meaning.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    later: ClassVar[Mapping[str, Any]] = {}
    __signature__ = _Signature()

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Refuse arguments that do not match the constructor's annotations."""
        if arguments or named:
            if cls not in _guards:
                _guards[cls] = Guard(cls.__init__)
            _guards[cls].check((None, *arguments), named)
        return super().__new__(cls)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Built in cls.__bases__:
            _families[cls] = {}
            return
        for family in _families:
            if issubclass(cls, family):
                same_name = _families[family].setdefault(cls.__name__, [])
                # A cell of a notebook that is run again defines its class again.
                same_name[:] = [one for one in same_name if _place(one) != _place(cls)] + [cls]

    @property
    def arguments(self) -> dict[str, Any]:
        """What the constructor was called with, apart from its `parts`, as JSON values."""
        values = {name: plain(self._argument(name), self._what(name)) for name in argument_names(type(self))}
        return {name: value for name, value in values.items() if name not in self.later or value != self.later[name]}

    def _argument(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise CaviaError(
                f"{type(self).__name__} must have its constructor's argument {name!r} as an attribute of that name"
            ) from None

    def _what(self, name: str) -> str:
        return f"argument {name!r} of {type(self).__name__}"


def argument_names(kind: type[Built]) -> list[str]:
    """The arguments of the constructor that are not `parts`."""
    named = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return [name for name in named if name not in kind.parts]


def build(kind: type[Kind], arguments: Mapping[str, Any], where: str, **parts: Any) -> Kind:
    """Build an object from these `arguments`; where: their source, for messages."""
    unknown = sorted(set(arguments) - set(argument_names(kind)))
    if unknown:
        raise CaviaError(f"{where}: {kind.__name__} has no argument {unknown[0]!r}")
    return kind(**parts, **arguments)


def plain(value: Any, what: str) -> Any:
    """The value as JSON has it: NumPy's numbers and arrays, paths, data classes and collections are converted."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Built):
        return {"class": type(value).__name__, "arguments": value.arguments}
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), what)
    if isinstance(value, Mapping):
        return {str(key): plain(one, what) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        ordered: Iterable[Any] = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(one, what) for one in ordered]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise CaviaError(f"{what} is a {type(value).__name__}, which a file cannot hold; use numbers, strings or lists")


def known(family: Any) -> dict[str, Any]:
    """Name → class, for all classes of the family that can be built: ours, and those that are imported."""
    public = _public()
    for name, package in public.items():
        getattr(package, name)  # imports it
    latest = {name: classes[-1] for name, classes in sorted(_families[family].items())}
    return {
        name: kind
        for name, kind in latest.items()
        if (module_of(kind) or name in public) and not inspect.isabstract(kind)
    }


def find(family: Any, name: str, where: str, module: str | None = None) -> Any:
    """The class of that name; module: the one that it was defined in, if it is not ours."""
    getattr(_public().get(name), name, None)  # imports it, if it is ours
    classes = _families[family].get(name, [])
    classes = [one for one in classes if module in (None, one.__module__)] or classes
    if len(classes) > 1:
        ours = [one for one in classes if one.__module__.split(".")[0] == "cavia"]
        if module is None and len(ours) == 1:
            return ours[0]
        places = " and ".join(one.__module__ for one in classes)
        raise CaviaError(f"{where} names {name}, but there are several, in {places}; say which one to use")
    if not classes:
        raise CaviaError(f"{where} needs {name}, which is not imported; {closest(name, known(family))}")
    return classes[0]


def module_of(kind: type[Any]) -> str | None:
    """The module of a class that is not ours, for `find`."""
    return None if kind.__module__.split(".")[0] == "cavia" else kind.__module__


def _public() -> dict[str, Any]:
    """Our public names, and the package of each; they are imported at their first use."""
    packages = [import_module(name) for name in ("cavia", "cavia.envs")]
    return {name: package for package in packages for name in package.__all__}


def _place(kind: type[Any]) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
