"""Reptile: no derivative through adaptation, the weights follow the adapted ones."""

import torch
from torch import Tensor

from cavia.learners.gradient import GradientLearner, all_rates
from cavia.learners.losses import PointLoss, without_padding
from cavia.models.base import ContextModel
from cavia.tasks.batch import TaskBatch


class Reptile(GradientLearner):
    """All weights adapt; the outer loop moves θ towards the adapted weights instead of differentiating through.

    In training, a task adapts on its support and query points together. With one inner step this is training on all
    tasks at once, so take several.
    """

    def __init__(self, model: ContextModel, loss: str | PointLoss, inner_lr: float = 0.01, inner_steps: int = 5):
        super().__init__(model, loss, all_rates(model, inner_lr), inner_steps, first_order=True, learn_init=True)
        self.inner_lr = inner_lr

    def forward(self, batch: TaskBatch) -> Tensor:
        """[T] with the value of each task's loss after adaptation and the gradient (θ − θᵢ) / α."""
        x = torch.cat([batch.support_x, batch.query_x], 1)
        y = torch.cat([batch.support_y, batch.query_y], 1)
        mask = None
        if batch.support_mask is not None or batch.query_mask is not None:
            mask = torch.cat([_mask(batch.support_x, batch.support_mask), _mask(batch.query_x, batch.query_mask)], 1)
        fast = {name: value.detach() for name, value in self._infer(x, y, mask, self.inner_steps, None).items()}
        losses = self.mean_loss(self.predict(without_padding(x, mask), fast), y, mask).detach()
        # The gradient of ½‖θ − θᵢ‖² / α is the pseudo-gradient; over α, it is the sum of the inner gradients.
        start = self._start()
        pull = torch.stack([(start[name] - fast[name]).square().flatten(1).sum(1) for name in start]).sum(0)
        pull = pull / (2 * self.inner_lr)
        return losses + (pull - pull.detach())


def _mask(x: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
