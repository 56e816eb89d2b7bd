"""`condition`: finds where and how the context enters a module, and checks that tasks do not mix."""

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from cavia.errors import CaviaError, nearest, require_at_least, shown
from cavia.kinds import checked
from cavia.models.conditioned import CannotRun, Conditioned, Site
from cavia.randomness import OwnRandomNumbers
from cavia.tasks.points import Inputs, as_tensor, each, lead, shape, tensors

FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer)
TRIES = 5  # of a check: another thread may draw from PyTorch's generator in the midst of one
AFFINE = (nn.Linear, _ConvNd)  # layers for which adding U φ to the output is concatenating φ to the input


@checked
def condition(
    module: nn.Module,
    at: str | Sequence[str],
    context: int,
    how: str = "film",
    *,
    example: Inputs,
    norm: str | None = None,
    freeze: bool = False,
    axis: int | None = None,
    argument: str | None = None,
    output: str | int | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> Conditioned:
    """Any module as a network with context parameters, f(x; φ): its code does not change, its weights are shared.

    module:   takes one batch [N, ...] and returns one [N, ...]; it stays yours and works as before.
    at:       the layer, or layers, that φ modulates, by their names in `module.named_modules()`; "layers.*" is a glob.
    context:  number of context parameters C.
    how:      "film" scales and shifts each channel of a layer's output; "concat" appends φ to the input of a linear
              layer or convolution.
    example:  one batch in the module's own shape [N, ...], to find the layers' sizes. For a module of several inputs, a
              dictionary: name of the argument → batch. x is then such a dictionary, too, of tensors [T, N, ...].
    norm:     for modules with batch norm. "task": statistics of the task's own points at hand, so they are predicted
              together; "frozen": the running statistics that the module has, which never change.
    freeze:   keep the module's own weights fixed; only the maps from φ are trained.
    axis:     the axis of the layers' outputs that holds their channels, if it is not found: 1 for convolutions and
              pictures, else the last.
    argument: the keyword that takes x, for modules called like `module(input_ids=x)`.
    output:   the part of the output to use, by name ("logits") or number, for modules that return several.
    keywords: further arguments of every call, JSON values.

    At φ = 0 the module computes what it computed before, to the bit. Attention is the exception, by rounding: while
    gradients are on, because its fast kernels have no second derivative, and for layers inside an
    nn.TransformerEncoderLayer, because its fused inference path would bypass them. norm="task" has other statistics.

    >>> net = torch.nn.Sequential(torch.nn.Linear(1, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1))
    >>> model = condition(net, at="0", context=5, example=torch.zeros(8, 1))
    >>> model(torch.zeros(25, 10, 1), torch.zeros(25, 5)).shape
    torch.Size([25, 10, 1])
    """
    _check_example(module, example, argument, keywords)
    require_at_least("context", context, 0)
    layers = _layers(module, at) if context else []
    rest = (argument, output, keywords, [] if isinstance(example, Tensor) else list(example))
    with _unchanged(module):
        sites = _sites(Conditioned(module, context, how, [], norm, False, *rest), layers, how, example, axis)
    model = Conditioned(module, context, how, sites, norm, freeze, *rest)
    with _unchanged(model):
        _check_tasks_apart(model, example)
        _check_reach(model, example, layers)
    return model


def _check_example(
    module: nn.Module, example: Inputs, argument: str | None, keywords: Mapping[str, Any] | None
) -> None:
    """Raise unless it is a batch; warn if the module could be told of padding and is not."""
    if not isinstance(example, Tensor) and not example:
        raise CaviaError("example must be a tensor, or a dictionary with at least one, got {}")
    example = each(partial(as_tensor, "example"), example)
    if not all(value.ndim and value.numel() and len(value) == len(lead(example)) for value in tensors(example)):
        raise CaviaError(
            "example must be a tensor with one batch in the module's own shape, [N, ...] with N at least 1, or several "
            f"of the same N by name, got {shape(example)}"
        )
    given = {argument, *(keywords or ()), *(() if isinstance(example, Tensor) else example)}
    takes_mask = "attention_mask" in inspect.signature(module.forward).parameters
    if takes_mask and argument == "input_ids" and "attention_mask" not in given:
        warnings.warn(
            f"{type(module).__name__} takes an attention_mask and gets none: padding in input_ids would be attended "
            "to. Let x and example be dictionaries of input_ids and attention_mask; or say "
            "keywords={'attention_mask': None}",
            stacklevel=4,
        )


def _layers(module: nn.Module, at: str | Sequence[str]) -> list[str]:
    """The names of the layers that `at` means, in the module's order."""
    names = [name for name, _ in module.named_modules() if name]
    chosen: set[str] = set()
    for pattern in [at] if isinstance(at, str) else map(str, at):
        matches = [name for name in names if _matches(name, pattern)]
        if not matches:
            raise CaviaError(f"at: the module has no layer {pattern!r}; {nearest(pattern, names)}")
        chosen.update(matches)
    if not chosen:
        raise CaviaError(f"at must name at least one layer; {nearest('', names)}")
    return [name for name in names if name in chosen]


def _matches(name: str, pattern: str) -> bool:
    """Part by part, as in paths: "layers.*" are the layers and not what is inside them."""
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Trial runs leave no trace: buffers, modes and the random numbers stay."""
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    modes = {layer: layer.training for layer in module.modules()}
    try:
        with torch.no_grad(), OwnRandomNumbers(0).turn():
            yield
    finally:
        with torch.no_grad():
            for name, value in module.named_buffers():
                if name in buffers:
                    value.copy_(buffers[name])
        for layer, mode in modes.items():
            layer.training = mode


def _sites(model: Conditioned, layers: Sequence[str], how: str, example: Inputs, axis: int | None) -> list[Site]:
    """What the example, once and twice in a batch, says of the layers' outputs."""
    model.eval()
    once, twice = (_outputs(model, layers, batch) for batch in (example, each(_twice, example)))
    return [_site(name, model.module.get_submodule(name), once[name], twice[name], how, axis) for name in layers]


def _twice(value: Tensor) -> Tensor:
    return torch.cat([value, value])


def _outputs(model: Conditioned, layers: Sequence[str], batch: Inputs) -> dict[str, Tensor]:
    """Name → the layer's output, of one run on a batch."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, output: Any) -> None:
        while not isinstance(output, Tensor):
            if not output or not isinstance(output, Mapping | tuple | list):
                raise CaviaError(f"layer {name!r} returns a {type(output).__name__}, which holds no tensor to modulate")
            output = next(iter(output.values())) if isinstance(output, Mapping) else output[0]
        outputs[name] = output

    handles = [
        model.module.get_submodule(name).register_forward_hook(lambda _m, _i, output, name=name: keep(name, output))
        for name in layers
    ]
    try:
        model(each(lambda value: value.unsqueeze(0), batch), torch.zeros_like(_some_context(model)).unsqueeze(0))
    except CannotRun as error:
        also = f" with keywords={shown(model.keywords)}" if model.keywords else ""
        raise CaviaError(f"the module cannot run on the example {shape(batch)}{also}: {error.why}") from error
    finally:
        for handle in handles:
            handle.remove()
    for name in layers:
        if name not in outputs:
            raise CaviaError(f"layer {name!r} is never called when the module runs; condition the layer around it")
    return outputs


def _site(name: str, layer: nn.Module, once: Tensor, twice: Tensor, how: str, axis: int | None) -> Site:
    if how == "concat" and not isinstance(layer, AFFINE):
        raise CaviaError(
            f'how="concat" extends the input of a linear layer or convolution; {name!r} is a {type(layer).__name__}: '
            'use how="film", or name a layer inside it'
        )
    grown = [i for i, (a, b) in enumerate(zip(once.shape, twice.shape, strict=True)) if a != b]
    if len(grown) != 1:
        raise CaviaError(
            f"layer {name!r} returns {list(once.shape)} for the example and {list(twice.shape)} for it twice: no axis, "
            "or more than one, is the batch; choose another layer"
        )
    batch = grown[0]
    where = _channel_axis(layer, once.ndim) if axis is None else axis + once.ndim * (axis < 0)
    if not batch < where < once.ndim:
        raise CaviaError(
            f"layer {name!r} returns {list(once.shape)} with the batch on axis {batch}: its channels must be on an "
            f"axis behind that, got axis={where if axis is None else axis}"
        )
    return Site(name, once.shape[where], where, batch)


def _channel_axis(layer: nn.Module, ndim: int) -> int:
    if ndim <= 2 or isinstance(layer, FEATURES_LAST):
        return ndim - 1
    convolves = any(isinstance(inner, _ConvNd | _BatchNorm) for inner in layer.modules())
    return 1 if ndim >= 4 or convolves else ndim - 1


def _check_tasks_apart(model: Conditioned, example: Inputs) -> None:
    """Raise if one task's prediction depends on another task's points or context."""
    model.train()
    other = each(_another if isinstance(example, Tensor) else _turned, example)
    for _ in range(TRIES):
        first, second = (
            _prediction(model, each(_stacked, example, points), torch.stack([context, sign * context]))[0]
            for context in [_some_context(model)]
            for points, sign in ((example, 1), (other, -1))
        )
        if torch.allclose(first, second, rtol=1e-3, atol=1e-5, equal_nan=True):
            return
    raise CaviaError(
        "tasks do not stay apart in this module: a task's prediction changes with the points of another. Its first "
        "axis must be the batch (batch_first=True), and no layer may mix points of a batch"
    )


def _another(example: Tensor) -> Tensor:
    """Other points of the same kind."""
    return 2 * example + 1 if example.is_floating_point() else torch.zeros_like(example)


def _turned(example: Tensor) -> Tensor:
    """The same of one among several inputs: a mask of zeros would leave a network nothing to look at."""
    return 2 * example + 1 if example.is_floating_point() else example.flip(tuple(range(example.ndim)))


def _stacked(*values: Tensor) -> Tensor:
    return torch.stack(values)


def _check_reach(model: Conditioned, example: Inputs, layers: Sequence[str]) -> None:
    """Raise if the context changes nothing."""
    if not layers:
        return
    model.eval()
    with_context, without = (
        _prediction(model, each(_stacked, example), context.unsqueeze(0))
        for context in (_some_context(model), torch.zeros_like(_some_context(model)))
    )
    if torch.equal(with_context, without):
        raise CaviaError(f"the output does not depend on {', '.join(layers)}: condition a layer that it is made from")


def _prediction(model: Conditioned, x: Inputs, context: Tensor) -> Tensor:
    torch.manual_seed(0)  # the same dropout in runs that are compared; the caller's random numbers are kept apart
    return model(x, context)


def _some_context(model: Conditioned) -> Tensor:
    """[C]"""
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    return torch.randn(model.context, generator=torch.Generator().manual_seed(0)).to(like)
