"""The task-by-task recipe of the paper's appendix: plain autograd, a Python loop over tasks."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import cavia
import fewshot
import interleaved
from peers.entrant import Entrant, TaskByTask, flat
from peers.work import Work


class MLPRecipe(Entrant):
    """CAVIA on an MLP, with the context concatenated to the input."""

    def __init__(self, work: Work):
        model = work.new_model()
        assert isinstance(model, cavia.MLP)
        self.recipe = interleaved.Recipe(model, work.inner_steps)

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        return interleaved.repeated(self.recipe, batches)[0]

    def parameters(self) -> Tensor:
        return flat(self.recipe.network.parameters())


class ConvRecipe(TaskByTask):
    """CAVIA on the convolutional network, in PyTorch's usual layout."""

    def __init__(self, work: Work):
        model = work.new_model()
        assert isinstance(model, cavia.ConvNet)
        self.recipe = fewshot.Recipe(model)
        super().__init__(work, list(self.recipe.weights.values()))

    def task_gradients(self, batch: cavia.TaskBatch, task: int) -> Sequence[Tensor]:
        return torch.autograd.grad(self.recipe.task_loss(batch, task), self.weights)

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        return super().prepare(
            [cavia.TaskBatch(b.support_x.contiguous(), b.support_y, b.query_x.contiguous(), b.query_y) for b in batches]
        )


class MAMLRecipe(TaskByTask):
    """MAML on any model: each task's weights are a new dictionary of tensors."""

    def __init__(self, work: Work):
        self.model = work.new_model()
        super().__init__(work, list(self.model.parameters()))

    def task_gradients(self, batch: cavia.TaskBatch, task: int) -> Sequence[Tensor]:
        weights: dict[str, Tensor] = dict(self.model.named_parameters())
        for _ in range(self.work.inner_steps):
            loss = self.loss(self._predict(weights, batch.support_x[task]), batch.support_y[task])
            gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {
                name: value - self.work.inner_lr * gradient
                for (name, value), gradient in zip(weights.items(), gradients, strict=True)
            }
        loss = self.loss(self._predict(weights, batch.query_x[task]), batch.query_y[task])
        return torch.autograd.grad(loss, self.weights)

    def _predict(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:  # x [N, ...] → [N, ...]
        context = x.new_zeros(1, self.model.context)
        return torch.func.functional_call(self.model, weights, (x[None], context))[0]


def recipe(work: Work) -> Entrant:
    """The recipe for this work."""
    if work.method == "MAML":
        return MAMLRecipe(work)
    return ConvRecipe(work) if work.loss == "cross_entropy" else MLPRecipe(work)
