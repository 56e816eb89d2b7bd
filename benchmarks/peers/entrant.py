"""What takes part in a race: one way of computing the meta-step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

import cavia
from cavia.kernels.choice import using
from cavia.learners.losses import find_loss, mean_over_points
from interleaved import CLIP, LR, repeated
from peers.work import Work


def flat(weights: Iterable[Tensor]) -> Tensor:
    """All weights as one vector [P], whatever their layout."""
    return torch.cat([weight.detach().flatten() for weight in weights])


class Entrant(ABC):
    """Holds its own copy of the weights and moves them by meta-steps."""

    @abstractmethod
    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        """An action that takes one meta-step on each batch; what is done here is not timed."""

    @abstractmethod
    def parameters(self) -> Tensor:
        """All weights as one vector [P], in the order of the model's parameters."""


class Outer(Entrant):
    """A meta-step in PyTorch whose outer update is clamp and torch.optim.Adam."""

    def __init__(self, work: Work, weights: Sequence[Tensor]):
        self.work, self.weights = work, list(weights)
        self.optimiser = torch.optim.Adam(self.weights, lr=LR)
        self.point_loss = find_loss(work.loss)

    @abstractmethod
    def gradients(self, batch: cavia.TaskBatch) -> Sequence[Tensor]:
        """The outer gradient with respect to each of the weights."""

    def losses(self, prediction: Tensor, target: Tensor) -> Tensor:
        """[T, N, ...] twice → [T]"""
        return mean_over_points(self.point_loss(prediction, target), None)

    def step(self, batch: cavia.TaskBatch) -> None:
        """One meta-step, Eq. (6). The model is ours, but it runs on PyTorch's operations, as a peer's own would."""
        with using("plain"):
            gradients = self.gradients(batch)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = gradient.clamp(-CLIP, CLIP)
        self.optimiser.step()

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        return repeated(self.step, batches)[0]

    def parameters(self) -> Tensor:
        return flat(self.weights)


class TaskByTask(Outer):
    """A Python loop over tasks that adds up the outer gradient."""

    @abstractmethod
    def task_gradients(self, batch: cavia.TaskBatch, task: int) -> Sequence[Tensor]:
        """The gradients of one task's query loss after its inner steps."""

    def gradients(self, batch: cavia.TaskBatch) -> Sequence[Tensor]:
        total = [torch.zeros_like(weight) for weight in self.weights]
        for task in range(len(batch)):
            for sum_, part in zip(total, self.task_gradients(batch, task), strict=True):
                sum_ += part / len(batch)
        return total

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """[N, ...] twice → scalar"""
        return self.losses(prediction[None], target[None])[0]


class Fast(nn.Module):
    """The context parameters of one task [C], or of T tasks [T, C], as the only parameter of a module."""

    def __init__(self, *shape: int):
        super().__init__()
        self.context = nn.Parameter(torch.zeros(shape))


class WithContext(nn.Module):
    """A model whose context is a parameter, as libraries for inner loops want it. x [T, N, ...] → [T, N, ...]"""

    def __init__(self, work: Work, tasks: int = 1):
        super().__init__()
        self.model = work.new_model()
        self.fast = Fast(tasks, self.model.context)
        self.adapting: nn.Module = self.fast if work.method == "CAVIA" else self.model  # what the inner loop moves

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, self.fast.context)
