"""Any `nn.Module` as a network with context: layers are modulated from outside, its code does not change."""

import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cavia.errors import CaviaError, Diverged, nearest, require_at_least, require_one_of
from cavia.models.at_work import AtWork, Mark, Modulator, by_task, working
from cavia.models.attention import differentiable
from cavia.models.base import ContextModel
from cavia.tasks.points import Inputs, each, lead, shape, tensors

KINDS = ("film", "concat")
NORMS = ("task", "frozen")


@dataclass(frozen=True)
class Site:
    """Where the context enters: the output of one layer.

    layer:    its name in the module.
    channels: how many channels (features) its output has.
    axis:     the axis of the output that holds them.
    batch:    the axis that holds the module's batch, the T·N points.
    """

    layer: str
    channels: int
    axis: int
    batch: int


class Modulation(nn.Linear):
    """φ → a change of one layer's output h: FiLM, h·(1 + γ(φ)) + β(φ), or concatenation to its input, h + β(φ).

    The layer is affine where φ is concatenated, so Eq. (9) splits: the new columns of its weight are this map. It has
    no bias: φ = 0 changes nothing, exactly. Its weights are not zero: φ has a gradient there.
    """

    def __init__(self, site: Site, context: int, how: str, like: Tensor):
        self.site, self.parts = site, 2 if how == "film" else 1
        super().__init__(context, self.parts * site.channels, bias=False, dtype=like.dtype, device=like.device)

    def forward(self, output: Any, context: Tensor, layer: nn.Module) -> Any:  # type: ignore[override]
        """The layer's output, with h or its first tensor (of a tuple or mapping) changed; context [T, C]."""
        change = super().forward(context).unflatten(-1, (self.parts, -1))  # [T, parts, channels]
        if isinstance(output, Tensor):
            return self._changed(output, change)
        if isinstance(layer, nn.RNNBase):
            return self._recurrent(output, change, layer)
        if isinstance(output, Mapping):
            changed: Any = copy(output)
            key = next(iter(output))
            changed[key] = self._changed(output[key], change)
            return changed
        first = self._changed(output[0], change)
        return output._replace(**{output._fields[0]: first}) if hasattr(output, "_replace") else (first, *output[1:])

    def _changed(self, h: Tensor, change: Tensor) -> Tensor:
        """h [..., T·N, ..., channels, ...] with the change [T, parts, channels]."""
        site, tasks = self.site, change.shape[0]
        shape = [1] * (h.ndim + 1)
        shape[site.batch], shape[site.axis + 1] = tasks, site.channels
        return _apply(h.unflatten(site.batch, (tasks, -1)), change, shape).flatten(site.batch, site.batch + 1)

    def _recurrent(self, output: Any, change: Tensor, layer: nn.RNNBase) -> Any:
        """A recurrent layer's output and, which is the same, its last layer's final state [directions, T·N, F]."""
        h, state = output
        final = state[0] if isinstance(state, tuple) else state
        directions = 2 if layer.bidirectional else 1
        each = change.unflatten(-1, (directions, -1)).permute(2, 0, 1, 3)  # [directions, T, parts, F]
        shape = [change.shape[0], 1, each.shape[-1]]
        last = [
            _apply(one.unflatten(0, (change.shape[0], -1)), part, shape).flatten(0, 1)
            for one, part in zip(final[-directions:], each, strict=True)
        ]
        final = torch.cat([final[:-directions], torch.stack(last)])
        return self._changed(h, change), (final, *state[1:]) if isinstance(state, tuple) else final


def _apply(h: Tensor, change: Tensor, shape: Sequence[int]) -> Tensor:
    """h·(1 + γ) + β, or h + β, with γ and β [T, channels] in a shape that broadcasts against h."""
    parts = [part.reshape(shape) for part in change.unbind(1)]
    return h * (1 + parts[0]) + parts[1] if len(parts) == 2 else h + parts[0]


class Conditioned(ContextModel):
    """A module whose layers the context modulates; made by `cavia.condition`.

    x [T, N, ...], context [T, C] → [T, N, ...]. The module sees one batch of T·N points. A dictionary x is the module's
    keyword arguments, a batch each.

    inputs: the names in such an x, none for an x of one tensor; files of earlier versions do not say.
    """

    parts = ("module",)

    def __init__(
        self,
        module: nn.Module,
        context: int,
        how: str,
        sites: Sequence[Mapping[str, Any] | Site],
        norm: str | None = None,
        freeze: bool = False,
        argument: str | None = None,
        output: str | int | None = None,
        keywords: Mapping[str, Any] | None = None,
        inputs: Sequence[str] | None = None,
    ):
        super().__init__()
        self.inputs = None if inputs is None else sorted(inputs)
        self.context = require_at_least("context", context, 0)
        require_one_of("how", how, KINDS)
        self.how, self.freeze, self.argument, self.output = how, freeze, argument, output
        self.keywords = _checked_keywords(keywords)
        self.sites = [site if isinstance(site, Site) else Site(**site) for site in sites]
        names = dict(module.named_modules())
        for site in self.sites:
            if site.layer not in names:
                raise CaviaError(f"the module has no layer {site.layer!r}; {nearest(site.layer, names)}")
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
        # Before the module: its own last layer stays the last one, which is what ANIL adapts.
        self.modulations = nn.ModuleList(Modulation(site, context, how, like) for site in self.sites)
        if freeze:
            module.requires_grad_(False)
        self.module = module
        self.norm = _checked_norm(norm, module)
        self.mixes_points = norm == "task"
        self.vectorises = not any(isinstance(layer, nn.RNNBase) for layer in module.modules())
        self.mark = Mark()
        self._listen()
        self.train(module.training)

    def train(self, mode: bool = True) -> "Conditioned":
        """As in nn.Module, but frozen norms keep their statistics."""
        super().train(mode)
        if self.norm == "frozen":
            for layer in _norms(self.module).values():
                layer.eval()
        return self

    def stem(self, x: Inputs) -> Inputs:
        """x itself: in a module of unknown code, nothing can be computed before φ enters."""
        return x

    def head(self, h: Inputs, context: Tensor) -> Tensor:
        """x [T, N, ...] and context [T, C] → predictions [T, N, ...]."""
        tasks, points = lead(h).shape[:2]
        batch = each(lambda value: value.flatten(0, 1), h)
        given, named = self._arguments(batch)
        try:
            with self._working(context), differentiable(*tensors(batch), context):
                output = self.module(*given, **named)
        except (CaviaError, Diverged, torch.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise CannotRun(f"the module cannot run on x {shape(h)}: {why}", why) from error
        prediction = output if self.output is None else _part(output, self.output)
        if not isinstance(prediction, Tensor):
            raise CaviaError(
                f"the module returns a {type(prediction).__name__}, not a tensor; name the part to use: output=…, a "
                "name like 'logits' or a number like 0"
            )
        if prediction.ndim == 0 or prediction.shape[0] != tasks * points:
            raise CaviaError(
                f"the module returns {list(prediction.shape)} for a batch of {tasks * points} points; its first axis "
                "must be the batch (batch_first=True)"
            )
        return prediction.unflatten(0, (tasks, points))

    def _arguments(self, batch: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        """What the module is called with, by position and by name."""
        names = [] if isinstance(batch, Tensor) else sorted(batch)
        if self.inputs is not None and names != self.inputs:  # a mask that is missing would not be missed
            raise CaviaError(f"x {_named(names)}, but the example {_named(self.inputs)}; give the same")
        if isinstance(batch, Tensor):
            return ((batch,), self.keywords) if self.argument is None else ((), {self.argument: batch, **self.keywords})
        if self.argument is not None:
            raise CaviaError(f"x {_named(names)}; argument={self.argument!r} is for an x of one tensor: leave it out")
        return (), {**self.keywords, **batch}

    def _working(self, context: Tensor) -> AbstractContextManager[None]:
        """The module's layers under this context [T, C], in this thread."""
        return working(self.mark, AtWork(self.modulations, context, self.norm == "task"))

    def _listen(self) -> None:
        """Make the layers ask, at each call, whether this network is running, and with which context."""
        layers = dict(self.module.named_modules())
        for number, modulation in enumerate(self.modulations):
            layer = layers[modulation.site.layer]  # type: ignore[union-attr]
            # First of all hooks: the module's own see the layer's modulated output.
            handle = layer.register_forward_hook(Modulator(self.mark, number), prepend=True)
            weakref.finalize(self, handle.remove)
        if self.norm == "task":
            for norm in _norms(self.module).values():
                norm.__class__ = by_task(norm.__class__)  # type: ignore[arg-type]  # a class is hashable


def _named(names: Sequence[str]) -> str:
    return f"has the names {', '.join(map(repr, names))}" if names else "is one tensor"


class CannotRun(CaviaError):
    """The module raised an error on these inputs."""

    def __init__(self, message: str, why: str = ""):
        super().__init__(message)
        self.why = why


def _checked_keywords(keywords: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy, if there are no tensors in it: what belongs to a point comes with x."""
    for name, value in (keywords or {}).items():
        if isinstance(value, Tensor):
            raise CaviaError(
                f"keywords are the same for every call, but {name!r} is a tensor {shape(value)}; if it belongs to the "
                f"points, let x and example be dictionaries: {{…, {name!r}: …}}"
            )
    return dict(keywords or {})


def _norms(module: nn.Module) -> dict[str, _BatchNorm]:
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, _BatchNorm)}


def _checked_norm(norm: str | None, module: nn.Module) -> str | None:
    """`norm`, if it fits the module."""
    norms = _norms(module)
    if norm is None and norms:
        raise CaviaError(
            f'{next(iter(norms))!r} is a batch norm, whose statistics would mix tasks; say norm="task" (statistics of '
            'each task\'s own points) or norm="frozen" (the running statistics that the module has)'
        )
    if norm is not None:
        require_one_of("norm", norm, NORMS)
    if norm == "frozen":
        for name, layer in norms.items():
            if layer.running_mean is None:
                raise CaviaError(f'norm="frozen", but {name!r} has no running statistics; say norm="task"')
    return norm


def _part(output: Any, name: str | int) -> Any:
    """A part of a module's output: by number, by key or by attribute."""
    try:
        return getattr(output, name) if isinstance(name, str) and hasattr(output, name) else output[name]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        keys = ", ".join(map(str, output)) if isinstance(output, Mapping) else type(output).__name__
        raise CaviaError(f"the module's output has no part {name!r}; it is {keys}") from error
