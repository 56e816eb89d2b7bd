"""Arguments of a learner's calls, checked and converted: points, and what adapted."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError
from cavia.learners.adapted import Adapted, require_adapted
from cavia.tasks.points import Inputs, as_inputs, each, shape

OF_TYPES = ("same dtype", "expected scalar type", "should be the same")


def answering(respond: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A learner's `respond` behind a check of its arguments."""

    @wraps(respond)
    def answer(self: nn.Module, x: Any, adapted: Any) -> Tensor:
        require_adapted(adapted)
        own = own_tensor(self)
        try:
            return respond(self, _fitting(own, as_inputs("x", x)), _fitting_adapted(own, adapted))
        except RuntimeError as error:
            refuse_types(self, error)
            raise

    return answer


def fitting(learner: nn.Module, x: Inputs) -> Inputs:
    """x [T, N, ...] in the learner's own floating type; an error if it is on another device."""
    return _fitting(own_tensor(learner), x)


def _fitting(own: Tensor | None, x: Inputs) -> Inputs:
    if own is None:
        return x
    if isinstance(x, Tensor) and x.device == own.device and (x.dtype == own.dtype or not x.is_floating_point()):
        return x

    def fit(value: Tensor) -> Tensor:
        if value.device != own.device:
            raise CaviaError(
                f"x {shape(value)} is on {value.device}, the learner on {own.device}; use x.to({str(own.device)!r})"
            )
        return _in_type(value, own.dtype) if value.is_floating_point() else value

    return each(fit, x)


def fitting_adapted(learner: nn.Module, adapted: Adapted) -> Adapted:
    """What adapted in the learner's own floating type; an error if it is on another device."""
    return _fitting_adapted(own_tensor(learner), adapted)


def _fitting_adapted(own: Tensor | None, adapted: Adapted) -> Adapted:
    if own is None or all(value.dtype == own.dtype and value.device == own.device for value in adapted.values()):
        return adapted
    for name, value in adapted.items():
        if value.device != own.device:
            raise CaviaError(
                f"{name!r} of adapted is on {value.device}, the learner on {own.device}; use adapted.to(…)"
            )
        if value.is_complex():
            raise CaviaError(f"{name!r} of adapted must be real, got {value.dtype}")
    return adapted.map(lambda value: value if value.dtype == own.dtype else value.to(own.dtype))


def refuse_types(learner: nn.Module, error: RuntimeError) -> None:
    """Raise a CaviaError that names two layers, if their types differ and that is what PyTorch's error is about."""
    if not any(words in str(error) for words in OF_TYPES):
        return
    types = [(name, value.dtype) for name, value in learner.named_parameters() if value.is_floating_point()]
    other = next((one for one in types if one[1] != types[0][1]), None)
    if other is not None:
        first = types[0]
        raise CaviaError(
            f"{first[0]} is {first[1]}, {other[0]} {other[1]}, and the network does not convert between them; give "
            "all layers one type, for instance learner.float()"
        ) from error


def own_tensor(learner: nn.Module) -> Tensor | None:
    """A tensor of the learner's floating type, on its device; None if it has none."""
    below: list[nn.Module | None] = [learner]
    while below:  # parameters() takes several times as long, which shows beside one task
        one = below.pop()
        if one is not None:
            for value in (*one._parameters.values(), *one._buffers.values()):
                if value is not None and value.is_floating_point():
                    return value
            below += one._modules.values()
    return None


def _in_type(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another floating type, if no number is lost."""
    converted = value.to(dtype)
    if converted is value or torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return converted  # where nobody can look at values
    lost = converted.isinf() & ~value.isinf()
    if lost.any():
        raise CaviaError(f"x holds {value[lost][0].item():g}, which the learner's {dtype} cannot; scale the inputs")
    return converted
