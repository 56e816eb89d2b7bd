"""A network called with other weights than its own, without touching it."""

import threading
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

_locks: "weakref.WeakKeyDictionary[nn.Module, threading.RLock]" = weakref.WeakKeyDictionary()
_making_locks = threading.Lock()


def call_with(module: nn.Module, weights: Mapping[str, Tensor], inputs: tuple[Any, ...]) -> Any:
    """module(*inputs) with these weights in place of those of the same names.

    `torch.func.functional_call` puts the weights into the module for the duration of a call, where other threads see
    them. So modules of PyTorch's and of ours are doubled for the call, without their weights. A module of other code
    may hold its parts in ways that a double would miss, a list or a closure: it is called as it is, and whoever does so
    must be `alone` with it.
    """
    if is_transparent(module):
        return _double(module, _replaced(module, weights), {})(*inputs)
    return torch.func.functional_call(module, dict(weights), inputs)


def alone(module: nn.Module) -> AbstractContextManager[Any]:
    """Inside, no other thread puts other weights into the module."""
    return nullcontext() if is_transparent(module) else lock_of(module)


def is_transparent(module: nn.Module) -> bool:
    """Whether all code of the module is PyTorch's or ours, so that its parts are where `nn.Module` keeps them."""
    return all(
        _is_known(type(one))
        and "forward" not in one.__dict__
        and all(map(_is_known, (*one._forward_hooks.values(), *one._forward_pre_hooks.values())))
        for one in module.modules()
    )


def _is_known(code: Any) -> bool:
    """Whether a class, a function or a callable object is PyTorch's or ours."""
    return str(getattr(code, "__module__", "")).split(".")[0] in ("torch", "cavia")


def lock_of(module: nn.Module) -> threading.RLock:
    """The lock for putting other weights into the module, or for not seeing them."""
    with _making_locks:
        return _locks.setdefault(module, threading.RLock())


def _replaced(module: nn.Module, weights: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The identity of each parameter that is replaced → what replaces it, wherever it stands; it may stand twice."""
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    return {id(own[name]): value for name, value in weights.items()}


def _double(module: nn.Module, replaced: dict[int, Tensor], made: dict[int, nn.Module]) -> nn.Module:
    """A copy of the module with other weights; everything else is shared."""
    if id(module) in made:
        return made[id(module)]
    double = made[id(module)] = module.__class__.__new__(module.__class__)
    held = {
        kind: {name: value if value is None else replaced.get(id(value), value) for name, value in tensors.items()}
        for kind, tensors in (("_parameters", module._parameters), ("_buffers", module._buffers))
    }
    children = {
        name: child if child is None else _double(child, replaced, made) for name, child in module._modules.items()
    }
    object.__setattr__(double, "__dict__", module.__dict__ | held | {"_modules": children})
    if isinstance(module, nn.RNNBase):  # it has them in a list, too
        double.__dict__["_flat_weights"] = [getattr(double, name) for name in module._flat_weights_names]
    return double
