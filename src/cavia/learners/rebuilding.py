"""Rebuilds a learner from a file, after checking that the file's tensors fit it."""

from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from cavia.allowance import Allowance, TooLarge
from cavia.errors import CaviaError
from cavia.learners.base import Learner

# A constructor may allocate TIMES what the file's tensors take, and SPARE bytes more
TIMES, SPARE = 32, 2**24
# and make TENSORS times as many tensors, and SPARE_TENSORS more.
TENSORS, SPARE_TENSORS = 64, 2**12


def built_to_fit(make: Callable[[], Learner], tensors: Mapping[str, Tensor], path: Path) -> Learner:
    """What `make` builds, of the file's types, if the tensors fit it by name, shape and kind.

    Every tensor that a constructor asks for is counted before it is allocated: what the file could not fill is
    refused. That works for all classes; the meta device could not build those whose constructors need numbers.
    """
    size = sum(tensor.nbytes for tensor in tensors.values())
    try:
        with torch.device("cpu"), Allowance(TIMES * size + SPARE, TENSORS * len(tensors) + SPARE_TENSORS):
            built = make()
    except TooLarge as error:
        raise CaviaError(
            f"{path} describes a network far larger than the {size} bytes of its {len(tensors)} tensors: it is "
            "damaged, or the network must be given: cavia.load(path, model=…)"
        ) from error
    except CaviaError as error:
        if str(path) in str(error):
            raise
        raise CaviaError(f"{path}: {error}") from error
    except Exception as error:  # arguments that nobody chose can lead a constructor anywhere
        raise CaviaError(f"{path} does not describe a learner ({_one_line(error)})") from error
    check_fits(built, tensors, path)
    _convert(built, tensors)
    return built


def check_fits(module: nn.Module, tensors: Mapping[str, Tensor], path: Path, exact: bool = False) -> None:
    """Raise unless the tensors are those of the module's state: all names, all shapes, all kinds of numbers.

    exact: every type must be the same; otherwise one with a floating point may stand for another.
    """
    expected = module.state_dict()
    problem = None
    for name in chain(expected, tensors):
        there, here = tensors.get(name), expected.get(name)
        if there is None or here is None:
            problem = f"{name} is {'missing' if there is None else 'unknown to it'}"
        elif is_lazy(here):
            continue
        elif there.shape != here.shape:
            problem = f"size mismatch for {name}: {list(there.shape)} in the file, {list(here.shape)} in the network"
        elif there.dtype != here.dtype and (exact or not (there.is_floating_point() and here.is_floating_point())):
            problem = f"{name} is {there.dtype} in the file, {here.dtype} in the network"
        if problem:
            raise CaviaError(f"the weights in {path} do not fit the network: {problem}")


def _convert(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Give the learner the types of the file's tensors; tensors that are not in the file follow their neighbours."""
    state = learner.state_dict(keep_vars=True)
    if all(value.dtype == tensors[name].dtype for name, value in state.items()):
        return
    types = {tensors[name].dtype for name, value in state.items() if value.is_floating_point()}
    if len(types) == 1:
        learner.to(types.pop())
        return
    for prefix, module in learner.named_modules():
        own = dict(chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False)))
        named = {name: f"{prefix}.{name}" if prefix else name for name in own}
        beside = next((tensors[full].dtype for full in named.values() if full in tensors), None)
        for name, value in own.items():
            kept = tensors.get(named[name])
            dtype = beside if kept is None else kept.dtype
            if dtype is not None and value.is_floating_point() and dtype.is_floating_point:
                value.data = value.data.to(dtype)


def _one_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
