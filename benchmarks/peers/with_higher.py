"""The meta-step by the library `higher`: a patched copy of the module, a differentiable SGD."""

from collections.abc import Sequence

import higher
import torch
from torch import Tensor

import cavia
from peers.entrant import Outer, TaskByTask, WithContext
from peers.work import Work


class Higher(TaskByTask):
    """Task by task, as its documentation has it."""

    def __init__(self, work: Work):
        self.network = WithContext(work)
        self.inner = torch.optim.SGD(self.network.adapting.parameters(), lr=work.inner_lr)
        super().__init__(work, list(self.network.model.parameters()))

    def task_gradients(self, batch: cavia.TaskBatch, task: int) -> Sequence[Tensor]:
        one = slice(task, task + 1)
        with higher.innerloop_ctx(self.network, self.inner, copy_initial_weights=False) as (network, inner):
            for _ in range(self.work.inner_steps):
                inner.step(self.losses(network(batch.support_x[one]), batch.support_y[one]).sum())
            loss = self.losses(network(batch.query_x[one]), batch.query_y[one]).sum()
            return torch.autograd.grad(loss, self.weights)


class HigherBatched(Outer):
    """CAVIA only: the contexts of all tasks are one parameter [T, C], so that one backward pass adapts all."""

    def __init__(self, work: Work):
        self.network = WithContext(work, len(work.batch(0)))
        self.inner = torch.optim.SGD(self.network.fast.parameters(), lr=work.inner_lr)
        super().__init__(work, list(self.network.model.parameters()))

    def gradients(self, batch: cavia.TaskBatch) -> Sequence[Tensor]:
        with higher.innerloop_ctx(self.network, self.inner, copy_initial_weights=False) as (network, inner):
            for _ in range(self.work.inner_steps):
                inner.step(self.losses(network(batch.support_x), batch.support_y).sum())
            loss = self.losses(network(batch.query_x), batch.query_y).mean()
            return torch.autograd.grad(loss, self.weights)
