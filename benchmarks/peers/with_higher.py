"""The meta-step by the library `higher`: a patched copy of the module, a differentiable SGD."""

from collections.abc import Sequence

import higher
import torch
from torch import Tensor, nn

import cavia
from peers.entrant import Outer, TaskByTask
from peers.work import Work


class Patchable(nn.Module):
    """A model and the contexts [T, C] as one flat module, x [T, N, ...] → [T, N, ...].

    `higher` can patch neither an abstract class nor a list of modules that is sliced, so the model itself stays out of
    its sight and is called with these weights.
    """

    def __init__(self, work: Work, tasks: int = 1):
        super().__init__()
        model = work.new_model()
        self.hidden = (model,)  # in a tuple, so that it is no submodule
        self.names = {name: name.replace(".", "_") for name, _ in model.named_parameters()}
        for name, value in model.named_parameters():
            self.register_parameter(self.names[name], value)
        self.trained = list(model.parameters())
        self.context = nn.Parameter(torch.zeros(tasks, model.context))
        self.adapting = [self.context] if work.method == "CAVIA" else self.trained

    def forward(self, x: Tensor) -> Tensor:
        weights = {name: getattr(self, flat) for name, flat in self.names.items()}
        return torch.func.functional_call(self.hidden[0], weights, (x, self.context))


class Higher(TaskByTask):
    """Task by task, as its documentation has it."""

    def __init__(self, work: Work):
        self.network = Patchable(work)
        self.inner = torch.optim.SGD(self.network.adapting, lr=work.inner_lr)
        super().__init__(work, self.network.trained)

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
        self.network = Patchable(work, len(work.batch(0)))
        self.inner = torch.optim.SGD(self.network.adapting, lr=work.inner_lr)
        super().__init__(work, self.network.trained)

    def gradients(self, batch: cavia.TaskBatch) -> Sequence[Tensor]:
        with higher.innerloop_ctx(self.network, self.inner, copy_initial_weights=False) as (network, inner):
            for _ in range(self.work.inner_steps):
                inner.step(self.losses(network(batch.support_x), batch.support_y).sum())
            loss = self.losses(network(batch.query_x), batch.query_y).mean()
            return torch.autograd.grad(loss, self.weights)
