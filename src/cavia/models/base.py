"""What a learner asks of a network."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


class ContextModel(nn.Module, ABC):
    """A network f(x; φ, θ), split where the context φ first enters.

    context:   C, how many context parameters a task has (0: none, for MAML without extra inputs).
    arguments: what the constructor was called with, so that a saved learner can be built again.
    """

    context: int
    arguments: dict[str, Any]

    @abstractmethod
    def stem(self, x: Tensor) -> Tensor:
        """x [T, N, ...] → features [T, N, ...]: the part before φ enters, computed once however often φ moves."""

    @abstractmethod
    def head(self, h: Tensor, context: Tensor) -> Tensor:
        """Features [T, N, ...] and context [T, C] → predictions [T, N, ...]."""

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """x [T, N, ...] and context [T, C] → predictions [T, N, ...]."""
        return self.head(self.stem(x), context)
