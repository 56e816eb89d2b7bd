"""What a learner requires of a network."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from cavia.building import Built
from cavia.errors import CaviaError, shown
from cavia.tasks.points import as_inputs, lead, shape


class ContextModel(Built, nn.Module, ABC):
    """A network f(x; φ, θ), split where the context φ first enters.

    context:   C, how many context parameters a task has (0: none, for MAML without extra inputs).
    mixes_points: True if a point's prediction depends on others of its task (batch norm); padding is then refused.
    vectorises:   False if torch.func.vmap cannot run it (recurrent layers): per-task weights then need a call each.

    Every constructor argument is an attribute of the same name, so that a saved learner can be built again.
    """

    context: int
    mixes_points: bool = False
    vectorises: bool = True

    @abstractmethod
    def stem(self, x: Any) -> Any:
        """x [T, N, ...], or several such tensors by name → what `head` starts from.

        The part before φ enters, computed once, however many steps φ takes.
        """

    @abstractmethod
    def head(self, h: Any, context: Tensor) -> Tensor:
        """What `stem` returned and context [T, C] → predictions [T, N, ...]."""

    def forward(self, x: Any, context: Tensor) -> Tensor:
        """x [T, N, ...] and context [T, C] → predictions [T, N, ...]."""
        x = self.checked(x, context)
        return self.head(self.stem(x), context)

    def checked(self, x: Any, context: Any) -> Any:
        """x [T, N, ...], if the context is [T, C]: what `forward` begins with."""
        x = as_inputs("x", x)
        wanted = (lead(x).shape[0], self.context)
        if not isinstance(context, Tensor):
            raise CaviaError(f"context must be a tensor {list(wanted)}, got {shown(context)}")
        if context.shape != wanted or not context.is_floating_point():
            raise CaviaError(f"context must be {list(wanted)} for x {shape(x)}, got {context.dtype} {shape(context)}")
        return x


def as_floats(x: Tensor, like: Tensor) -> Tensor:
    """x in the type of a network's weights: whole numbers, too."""
    return x if x.dtype == like.dtype else x.to(like.dtype)


class NormedModel(ContextModel):
    """A network with batch norm, whose statistics are those of the points at hand or are given.

    keeps_statistics: True if a task's query points are normalised by the statistics of its support points, which are
                      then part of what adaptation returns.
    """

    keeps_statistics: bool
    mixes_points = True

    @property
    def fuses(self) -> bool:
        """Whether the network itself allows a kernel of ours to compute part of it."""
        return False

    @abstractmethod
    def stem(self, x: Tensor, statistics: Tensor | None = None) -> Tensor: ...

    @abstractmethod
    def head(self, h: Tensor, context: Tensor, statistics: Tensor | None = None) -> Tensor: ...

    @abstractmethod
    def statistics(self, x: Tensor, context: Tensor) -> Tensor:
        """The statistics of each task's points x [T, N, ...] under its context [T, C]: [T, ...]."""

    def observe(self, x: Tensor, chunk: int) -> None:
        """Take note of training points x [T, N, ...], once an iteration, for statistics that outlive it.

        chunk: tasks at a time, to bound memory.
        """

    def forward(self, x: Tensor, context: Tensor, statistics: Tensor | None = None) -> Tensor:
        x = self.checked(x, context)
        return self.head(self.stem(x, statistics), context, statistics)
