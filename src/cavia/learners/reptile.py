"""Reptile: no derivative through adaptation, the weights follow the adapted ones."""

import torch
from torch import Tensor

from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.gradient import GradientLearner, all_rates
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import Inputs, each, lead, without_padding


class Reptile(GradientLearner):
    """All weights adapt; the outer loop moves θ towards the adapted weights, without differentiating the steps.

    In training, a task adapts on its support and query points together, each step on other ones: step i of n takes
    every n-th point from the i-th on. Reptile learns from what the minibatches of a task have in common
    (Nichol et al., 2018). With one inner step, or all steps on the same points, it would fit all tasks jointly.
    """

    def __init__(self, model: ContextModel, loss: str | PointLoss, inner_lr: float = 0.01, inner_steps: int = 5):
        super().__init__(model, loss, all_rates(model, inner_lr), inner_steps, first_order=True, learn_init=True)
        self.inner_lr = inner_lr

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """[T] with the value of each task's loss after adaptation and the gradient (θ − θᵢ) / α."""
        x = each(lambda *parts: torch.cat(parts, 1), batch.support_x, batch.query_x)
        y = torch.cat([batch.support_y, batch.query_y], 1)
        mask = None
        if batch.support_mask is not None or batch.query_mask is not None:
            mask = torch.cat([_mask(batch.support_x, batch.support_mask), _mask(batch.query_x, batch.query_mask)], 1)
        adapted: Adapted | None = None
        for step in range(self.inner_steps):
            adapted = self._infer(*self._minibatch(step, x, y, mask), 1, adapted)
        assert adapted is not None  # there is at least one step
        fast = adapted.detach()
        losses = self.mean_loss(self.respond(without_padding(x, mask), fast), y, mask).detach()
        # The gradient of ½‖θ − θᵢ‖² / α is the pseudo-gradient; over α, it is the sum of the inner gradients.
        start = self._start()
        pull = torch.stack([(start[name] - fast[name]).square().flatten(1).sum(1) for name in start]).sum(0)
        pull = pull / (2 * self.inner_lr)
        return losses + (pull - pull.detach())

    def _minibatch(self, step: int, x: Inputs, y: Tensor, mask: Tensor | None) -> tuple[Inputs, Tensor, Tensor | None]:
        """The points of one inner step in training; all, if a task has fewer than there are steps."""
        if mask is not None:  # every n-th of the points that count
            turn = (mask.cumsum(1) - 1) % self.inner_steps == step
            enough = mask.sum(1, keepdim=True) >= self.inner_steps
            return x, y, mask & (turn | ~enough)
        part = slice(step, None, self.inner_steps) if y.shape[1] >= self.inner_steps else slice(None)
        return each(lambda value: value[:, part], x), y[:, part], None


def _mask(x: Inputs, mask: Tensor | None) -> Tensor:
    points = lead(x)
    return torch.ones(points.shape[:2], dtype=torch.bool, device=points.device) if mask is None else mask
