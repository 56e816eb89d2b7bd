"""The meta-step by the library `torchopt`: its differentiable SGD, as an object and as a function under vmap."""

from collections.abc import Sequence

import torch
import torchopt
from torch import Tensor

import cavia
from peers.entrant import Outer, TaskByTask, WithContext
from peers.work import Work


class TorchOpt(TaskByTask):
    """Task by task, as its documentation has it: MetaSGD, and the state put back after each task."""

    def __init__(self, work: Work):
        self.network = WithContext(work)
        super().__init__(work, list(self.network.model.parameters()))
        self.inner = torchopt.MetaSGD(self.network.adapting, lr=work.inner_lr)

    def task_gradients(self, batch: cavia.TaskBatch, task: int) -> Sequence[Tensor]:
        one, network = slice(task, task + 1), self.network
        weights = torchopt.extract_state_dict(network.adapting, by="reference")
        state = torchopt.extract_state_dict(self.inner, by="reference")
        for _ in range(self.work.inner_steps):
            self.inner.step(self.losses(network(batch.support_x[one]), batch.support_y[one]).sum())
        loss = self.losses(network(batch.query_x[one]), batch.query_y[one]).sum()
        gradients = torch.autograd.grad(loss, self.weights)
        torchopt.recover_state_dict(network.adapting, weights)
        torchopt.recover_state_dict(self.inner, state)
        return gradients


class TorchOptMapped(Outer):
    """All tasks at once: torchopt.sgd inside torch.func.vmap."""

    def __init__(self, work: Work):
        self.model = work.new_model()
        self.inner = torchopt.sgd(lr=work.inner_lr)
        super().__init__(work, list(self.model.parameters()))

    def gradients(self, batch: cavia.TaskBatch) -> Sequence[Tensor]:
        points = (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
        return torch.autograd.grad(torch.func.vmap(self._task_loss)(*points).mean(), self.weights)

    def _task_loss(self, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:  # of one task, [N, ...]
        weights: dict[str, Tensor] = dict(self.model.named_parameters())
        context = {"": x.new_zeros(self.model.context)}
        fast = context if self.work.method == "CAVIA" else weights

        def loss(fast: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            moved, phi = (weights, fast[""]) if self.work.method == "CAVIA" else (fast, context[""])
            return self.losses(torch.func.functional_call(self.model, moved, (x[None], phi[None])), y[None])[0]

        state = self.inner.init(fast)
        for _ in range(self.work.inner_steps):
            updates, state = self.inner.update(torch.func.grad(loss)(fast, x, y), state, inplace=False)
            fast = torchopt.apply_updates(fast, updates, inplace=False)
        return loss(fast, query_x, query_y)
