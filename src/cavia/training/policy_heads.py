"""From the output of a policy's network to its predictions, in closed form, for the steps of one task.

Outputs are [A, N], with a column per step; a policy may also have a log_std [A].
"""

import math
from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from torch import Tensor

from cavia.models.policy import SMALLEST_STD, CategoricalPolicy, GaussianPolicy, Policy

Both: TypeAlias = tuple[
    Tensor, Tensor | None
]  # of output [A, N] and log_std [A]: their change, or the gradient by them


class Curvature(ABC):
    """The Hessian of a sum over steps, as a function of output and log_std."""

    @abstractmethod
    def __call__(self, change: Both) -> Both:
        """How the gradient changes with output and log_std; None: not at all."""

    @abstractmethod
    def for_kernel(self, log_std: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None, bool]:
        """of_output, mixed, log_std and categorical of `cavia.kernels.curvature.product`, for a change of log_std."""

    def by_log_std(self, sums: Tensor, log_std: Tensor | None) -> Tensor | None:
        """How the gradient by log_std changes, given the sums [A] of that product."""
        return None


class Head(ABC):
    """From the output of the network to predictions [1, N, D]."""

    @abstractmethod
    def __init__(self, log_std: Tensor | None): ...

    @abstractmethod
    def prediction(self, output: Tensor) -> Tensor:
        """[A, N] → [1, N, D]"""

    @abstractmethod
    def prediction_change(self, change: Both) -> Tensor:
        """→ [1, N, D]"""

    @abstractmethod
    def back(self, by_prediction: Tensor) -> Both:
        """The gradient from that by the prediction, [1, N, D]."""

    @abstractmethod
    def loss(self, output: Tensor, action: Tensor, weight: Tensor) -> tuple[Both, Curvature]:
        """−Σ wₙ log π(aₙ | sₙ): its gradient and Hessian. action [A, N] or [1, N], weight [N]"""

    @abstractmethod
    def divergence(self, output: Tensor, weight: Tensor) -> Curvature:
        """Σ wₙ KL(πₙ ‖ ·) at π itself: its Hessian. weight [N]"""


class GaussianHead(Head):
    """Normal actions: the output is their mean."""

    def __init__(self, log_std: Tensor | None):
        assert log_std is not None
        smallest = math.log(SMALLEST_STD)
        self.is_free = (log_std >= smallest).to(log_std)  # 0 where log_std is held at its limit
        self.log_std = log_std.clamp(min=smallest)
        self.precision = (-self.log_std).exp().unsqueeze(1)  # [A, 1]

    def prediction(self, output: Tensor) -> Tensor:
        return torch.cat([output, self.log_std.unsqueeze(1).expand_as(output)]).T.unsqueeze(0)

    def prediction_change(self, change: Both) -> Tensor:
        output, log_std = change
        assert log_std is not None
        return torch.cat([output, (log_std * self.is_free).unsqueeze(1).expand_as(output)]).T.unsqueeze(0)

    def back(self, by_prediction: Tensor) -> Both:
        by_output, by_log_std = by_prediction[0].T.chunk(2)
        return by_output.contiguous(), by_log_std.sum(1) * self.is_free

    def loss(self, output: Tensor, action: Tensor, weight: Tensor) -> tuple[Both, Curvature]:
        error = (action - output) * self.precision
        squares, slope = error.square() * weight, error * (self.precision * weight)
        by_log_std = (weight.sum() - squares.sum(1)) * self.is_free
        of_output = self.precision.square() * weight
        return (-slope, by_log_std), GaussianCurvature(of_output, 2 * slope, 2 * squares.sum(1), self.is_free)

    def divergence(self, output: Tensor, weight: Tensor) -> Curvature:
        of_log_std = (2 * weight.sum()).expand_as(self.log_std)
        return GaussianCurvature(self.precision.square() * weight, None, of_log_std, self.is_free)


class GaussianCurvature(Curvature):
    """Second derivatives: of_output [A, N] twice by the output, of_log_std [A] twice by log_std, mixed [A, N]."""

    def __init__(self, of_output: Tensor, mixed: Tensor | None, of_log_std: Tensor, is_free: Tensor):
        self.of_output, self.mixed, self.of_log_std, self.is_free = of_output, mixed, of_log_std, is_free

    def __call__(self, change: Both) -> Both:
        output, log_std = change
        by_output = output * self.of_output
        if self.mixed is None:
            return by_output, self.by_log_std(torch.zeros_like(self.of_log_std), log_std)
        if log_std is not None:
            by_output.addcmul_(self.mixed, (log_std * self.is_free).unsqueeze(1))
        return by_output, self.by_log_std((output * self.mixed).sum(1), log_std)

    def for_kernel(self, log_std: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None, bool]:
        return self.of_output, self.mixed, None if log_std is None else log_std * self.is_free, False

    def by_log_std(self, sums: Tensor, log_std: Tensor | None) -> Tensor:
        own = 0 if log_std is None else self.of_log_std * (log_std * self.is_free)
        return (own if self.mixed is None else sums + own) * self.is_free


class CategoricalHead(Head):
    """One of A actions: the output is their logits, which are the prediction."""

    def __init__(self, log_std: Tensor | None):
        pass

    def prediction(self, output: Tensor) -> Tensor:
        return output.T.unsqueeze(0)

    def prediction_change(self, change: Both) -> Tensor:
        return change[0].T.unsqueeze(0)

    def back(self, by_prediction: Tensor) -> Both:
        return by_prediction[0].T.contiguous(), None

    def loss(self, output: Tensor, action: Tensor, weight: Tensor) -> tuple[Both, Curvature]:
        chances = output.softmax(0)
        chosen = torch.zeros_like(output).scatter_(0, action.long(), 1.0)
        return ((chances - chosen) * weight, None), CategoricalCurvature(chances, weight)

    def divergence(self, output: Tensor, weight: Tensor) -> Curvature:
        return CategoricalCurvature(output.softmax(0), weight)


class CategoricalCurvature(Curvature):
    """The same for loss and divergence: diag(p) − p·pᵀ at every step, with chances p [A, N] and weight [N]."""

    def __init__(self, chances: Tensor, weight: Tensor):
        self.chances, self.weighted = chances, chances * weight

    def __call__(self, change: Both) -> Both:
        output, _ = change
        return self.weighted * (output - (self.chances * output).sum(0)), None

    def for_kernel(self, log_std: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None, bool]:
        return self.weighted, self.chances, None, True


HEADS: dict[type[Policy], type[Head]] = {GaussianPolicy: GaussianHead, CategoricalPolicy: CategoricalHead}
