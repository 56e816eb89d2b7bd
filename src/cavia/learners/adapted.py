"""What adaptation returns: the part of a network that belongs to each task."""

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from types import MappingProxyType
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor
from torch.utils import _pytree

from cavia.errors import LARGEST_RATE, CaviaError, shown
from cavia.kinds import checked
from cavia.learners.inner import Fast
from cavia.tasks.points import shape

CONTEXT = "context"  # the name of φ among what adapts; weights have their names in the model
MEMORY = "memory."  # begins the names of what an inner optimiser remembers of a task
Layout: TypeAlias = tuple[tuple[str, ...], bool]  # the names, and whether there are statistics


class Adapted:
    """T tasks after adaptation: the context φ of each, or weights of its own. It never changes.

    parameters: name → [T, ...], what adapted; under "memory.…", what an inner optimiser remembers for further steps.
    statistics: [T, ...], those of the support points, for networks that normalise query points by them; else None.

    `adapted.context` is [T, C]; `adapted[3]`, `adapted[2:5]` and `adapted[[0, 7]]` are some of the tasks, still with a
    task axis; `adapted["linear.weight"]` is one of the tensors, by name.

    >>> adapted = Adapted({"context": torch.arange(6.0).view(3, 2)})
    >>> len(adapted), adapted[1].context.tolist(), Adapted.cat([adapted, adapted[:1]])
    (3, [[2.0, 3.0]], Adapted(4 tasks, context [4, 2]))
    """

    __slots__ = ("_parameters", "_statistics")
    _parameters: Fast
    _statistics: Tensor | None

    def __init__(self, parameters: Mapping[str, Tensor], statistics: Tensor | None = None):
        given: Any = parameters  # of whatever kind
        if not isinstance(given, Mapping) or not given:
            raise CaviaError(f"Adapted needs name → tensor [tasks, ...], at least one, got {_kind(given)}")
        for name, value in given.items():
            if not isinstance(name, str):
                raise CaviaError(f"Adapted: parameters are tensors by name, got the name {shown(name)}")
            _require_tasks(f"parameters[{name!r}]", value)
        if statistics is not None:
            _require_tasks("statistics", statistics)
        sizes = {len(value) for value in (*parameters.values(), *(() if statistics is None else (statistics,)))}
        if len(sizes) > 1:
            named = {**parameters, **({} if statistics is None else {"statistics": statistics})}
            counts = ", ".join(f"{name} {shape(value)}" for name, value in named.items())
            raise CaviaError(f"Adapted: all tensors must have the same number of tasks, got {counts}")
        self._set(dict(parameters), statistics)

    @classmethod
    def of(cls, parameters: Fast, statistics: Tensor | None = None) -> "Adapted":
        """Without checks, for tensors that are known to fit."""
        made = cls.__new__(cls)
        made._set(parameters, statistics)
        return made

    def _set(self, parameters: Fast, statistics: Tensor | None) -> None:
        object.__setattr__(self, "_parameters", parameters)
        object.__setattr__(self, "_statistics", statistics)

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(f"Adapted never changes; {name!r} cannot be set")

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return MappingProxyType(self._parameters)

    @property
    def statistics(self) -> Tensor | None:
        return self._statistics

    @property
    def context(self) -> Tensor:
        """φ of each task, [T, C]."""
        if CONTEXT not in self._parameters:
            raise CaviaError(f"no context adapted here, only {', '.join(self._parameters)}; ask for them by name")
        return self._parameters[CONTEXT]

    @property
    def finite(self) -> Tensor:
        """Which tasks have only finite numbers, [T] bool; tasks whose points were NaN, infinite or too large do not."""
        each = (value.detach().isfinite() for value in self.flatten()[0])
        return torch.stack([fine.flatten(1).all(1) if fine.ndim > 1 else fine for fine in each]).all(0)

    def __len__(self) -> int:
        """The number of tasks, T."""
        return len(next(iter(self._parameters.values())))

    @overload
    def __getitem__(self, which: str) -> Tensor: ...
    @overload
    def __getitem__(self, which: int | slice | Sequence[int] | Tensor) -> "Adapted": ...
    def __getitem__(self, which: Any) -> "Tensor | Adapted":
        """The tensor [T, ...] of that name; or the tasks of that number, slice, or list or tensor of numbers."""
        if isinstance(which, str):
            if which not in self._parameters:
                raise CaviaError(f"nothing called {which!r} adapted here, only {', '.join(self._parameters)}")
            return self._parameters[which]
        if isinstance(which, slice):
            return self.map(lambda value: value[which])
        if isinstance(which, int):
            if not -len(self) <= which < len(self):
                raise IndexError(f"task {which} of {len(self)}")
            which = [which]
        try:
            chosen = torch.as_tensor(which)
            fits = chosen.ndim == 1 and not chosen.is_floating_point() and not chosen.is_complex()
        except (TypeError, ValueError, RuntimeError):
            fits = False
        if not fits:
            raise CaviaError(f"tasks are chosen by number, slice, or list or tensor of numbers, got {_kind(which)}")
        if chosen.dtype != torch.bool and not all(-len(self) <= place < len(self) for place in chosen.tolist()):
            raise IndexError(f"tasks {shown(chosen.tolist())} of {len(self)}")
        return self.map(lambda value: value[chosen.to(value.device)])

    def __iter__(self) -> "Iterator[Adapted]":
        """The tasks, one at a time."""
        return (self[place] for place in range(len(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what adapted."""
        return tuple(self._parameters)

    def keys(self) -> KeysView[str]:
        return self._parameters.keys()

    def values(self) -> ValuesView[Tensor]:
        return self._parameters.values()

    def items(self) -> ItemsView[str, Tensor]:
        return self._parameters.items()

    def map(self, change: Callable[[Tensor], Tensor]) -> "Adapted":
        """Apply a function to every tensor [T, ...]."""
        statistics = None if self._statistics is None else change(self._statistics)
        return Adapted.of({name: change(value) for name, value in self._parameters.items()}, statistics)

    def to(self, *args: Any, **kwargs: Any) -> "Adapted":
        """On another device or in another type, as `Tensor.to`."""
        try:
            return self.map(lambda value: value.to(*args, **kwargs))
        except (TypeError, RuntimeError, ValueError) as error:
            given = ", ".join([*map(shown, args), *(f"{name}={shown(value)}" for name, value in kwargs.items())])
            raise CaviaError(f"Adapted.to takes a device or a type, as Tensor.to does, got {given}") from error

    def detach(self) -> "Adapted":
        """Without a gradient."""
        return self.map(Tensor.detach)

    @checked
    def lerp(self, other: "Adapted", share: float | Tensor) -> "Adapted":
        """Interpolate towards another by `share`: one number, or one for each of n tasks, [n]."""
        if not isinstance(share, Tensor) and not abs(share) < LARGEST_RATE:
            raise CaviaError(f"share must be finite, got {share}")
        if isinstance(share, Tensor) and (share.ndim > 1 or not share.is_floating_point()):
            raise CaviaError(f"share must be one number, or one for each task [n], got {shown(share)}")
        if self.keys() != other.keys():
            names = [", ".join(one.keys()) for one in (self, other)]
            raise CaviaError(f"both must hold the same names, got {names[0]} and {names[1]}")

        def between(a: Tensor, b: Tensor) -> Tensor:
            each = share.to(a).view(-1, *(1,) * (a.ndim - 1)) if isinstance(share, Tensor) else float(share)
            counts = {len(a), len(b), len(each) if isinstance(each, Tensor) else 1} - {1}
            if a.shape[1:] != b.shape[1:] or len(counts) > 1:
                raise CaviaError(f"other and share must fit, got {self!r}, {other!r} and share {shown(share)}")
            return torch.lerp(a, b, each)

        ends = self._statistics, other._statistics
        statistics = None if ends[0] is None or ends[1] is None else between(ends[0], ends[1])
        return Adapted.of({name: between(value, other[name]) for name, value in self.items()}, statistics)

    @staticmethod
    @checked
    def cat(parts: "Sequence[Adapted]") -> "Adapted":
        """All their tasks, in order."""
        layouts = {part.flatten()[1] for part in parts}
        if len(layouts) != 1:
            raise CaviaError(f"parts must be of one learner, at least one, got {len(parts)} of {len(layouts)} kinds")
        columns = zip(*(part.flatten()[0] for part in parts), strict=True)
        return Adapted.unflatten([torch.cat(column) for column in columns], layouts.pop())

    def flatten(self) -> tuple[list[Tensor], Layout]:
        """All tensors, and the layout from which `unflatten` restores the Adapted."""
        tensors, has_statistics = list(self._parameters.values()), self._statistics is not None
        if self._statistics is not None:
            tensors.append(self._statistics)
        return tensors, (tuple(self._parameters), has_statistics)

    @staticmethod
    def unflatten(tensors: Sequence[Any], layout: Layout) -> "Adapted":
        """Undo `flatten`."""
        names, has_statistics = layout
        statistics = tensors[-1] if has_statistics else None
        return Adapted.of(dict(zip(names, tensors, strict=not has_statistics)), statistics)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {shape(value)}" for name, value in self._parameters.items())
        return f"Adapted({len(self)} tasks, {shapes})"


def _require_tasks(name: str, value: object) -> None:
    if not isinstance(value, Tensor) or value.ndim == 0 or value.is_complex():
        raise CaviaError(f"Adapted: {name} must be a tensor [tasks, ...] of real numbers, got {shown(value)}")


def require_adapted(adapted: object) -> None:
    """Raise unless it is what `adapt` returns."""
    if not isinstance(adapted, Adapted):
        raise CaviaError(f"expected what `adapt` returned, a cavia.Adapted, got {_kind(adapted)}")


def _kind(value: object) -> str:
    return f"a tensor {shape(value)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


# So that torch.func maps over tasks and differentiates through it.
_pytree.register_pytree_node(
    Adapted,
    Adapted.flatten,
    lambda tensors, layout: Adapted.unflatten(list(tensors), layout),
    serialized_type_name="cavia.Adapted",
)
