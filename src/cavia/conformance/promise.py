"""How a broken promise is reported."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError
from cavia.tasks.batch import shape

CLOSE = 1e-4  # of a number's size, what two orders of the same additions in float32 may differ by


class Broken(CaviaError):
    """A promise that an object does not keep."""


def keeps(subject: object, promise: str, kept: bool, instead: str = "") -> None:
    """Raise unless the promise is kept; instead: what the object does."""
    if not kept:
        details = f"; {instead}" if instead else ""
        raise Broken(f"{type(subject).__name__} breaks a promise: {promise}{details}")


@contextmanager
def left_as_it_was(subject: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, then the previous mode; weights and buffers must not change."""
    was_training = subject.training
    before = {name: value.clone() for name, value in subject.state_dict().items()}
    subject.eval()
    try:
        yield
    finally:
        subject.train(was_training)
    for name, value in subject.state_dict().items():
        keeps(subject, "calls change no weight or buffer", torch.equal(before[name], value), name)


def require_close(subject: object, promise: str, actual: Tensor, expected: Tensor) -> None:
    """Raise unless two tensors are equal up to rounding."""
    keeps(subject, promise, actual.shape == expected.shape, f"{shape(actual)} against {shape(expected)}")
    size = max(expected.detach().abs().max().item() if expected.numel() else 0.0, 1e-3)
    distance = (actual - expected).detach().abs().max().item() if actual.numel() else 0.0
    kept = distance <= CLOSE * size and not math.isnan(distance)
    keeps(subject, promise, kept, f"the largest difference is {distance:.2g} among numbers up to {size:.2g}")


def require_equal(subject: object, promise: str, actual: Tensor, expected: Tensor) -> None:
    """Raise unless two tensors are equal to the bit."""
    keeps(subject, promise, actual.shape == expected.shape and torch.equal(actual, expected))
