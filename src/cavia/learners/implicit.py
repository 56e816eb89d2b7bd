"""iMAML: the outer gradient at the end of adaptation, by the implicit function theorem; the path does not matter."""

from collections.abc import Callable

import torch
from torch import Tensor

from cavia.errors import require_positive, require_steps
from cavia.kinds import checked
from cavia.learners.adapted import Adapted
from cavia.learners.gradient import GradientLearner, all_rates
from cavia.learners.inner import Fast, Slopes, by_transform
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import Inputs, without_padding


class ImplicitMAML(GradientLearner):
    """iMAML (Rajeswaran et al., 2019): all weights adapt, pulled towards their start; the outer gradient is implicit.

    A task minimises L(φ) + λ/2 ‖φ − θ‖². At the minimum, the derivative of φ by θ follows from the curvature there, and
    no graph through the steps is kept: more of them cost time, but no memory. The more steps, the better it fits.

    inner_lr: must be small enough for the loss's curvature plus λ.
    strength: λ, how strongly the weights are pulled towards their start.
    cg_steps: steps of conjugate gradients, for the outer gradient.
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 16,
        strength: float = 1.0,
        cg_steps: int = 5,
    ):
        super().__init__(model, loss, all_rates(model, inner_lr), inner_steps, first_order=True, learn_init=True)
        self.inner_lr = inner_lr
        self.strength = require_positive("strength", strength)
        self.cg_steps = require_steps("cg_steps", cg_steps, 1)

    def _slopes(self, x: Inputs, y: Tensor, mask: Tensor | None) -> Slopes:
        """Those of the support loss and of λ/2 ‖φ − θ‖² (Eq. 3 of Rajeswaran et al.)."""
        of_loss, start = super()._slopes(x, y, mask), self._start()

        def proximal(fast: Fast) -> tuple[Fast, Tensor | None]:
            gradients, losses = of_loss(fast)
            return {name: g + self.strength * (fast[name] - start[name]) for name, g in gradients.items()}, losses

        return proximal

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """[T] with the value of each task's query loss and the implicit gradient by θ."""
        self.check_query(batch)
        with torch.no_grad(), self._apart():
            adapted = self._infer(batch.support_x, batch.support_y, batch.support_mask, self.inner_steps, None)
            wanted, losses = by_transform(self._query_losses(batch, adapted), dict(adapted.items()))  # ∇φ L of queries
            change = self._implicit(batch, adapted, wanted)
        # The sum's gradient by θ is `change`.
        start = self._start()
        pull = torch.stack([(start[name] * change[name]).flatten(1).sum(1) for name in start]).sum(0)
        return losses + (pull - pull.detach())

    def _query_losses(self, batch: TaskBatch, adapted: Adapted) -> Callable[[Fast], Tensor]:
        return lambda fast: self.query_losses(batch, Adapted.of(fast, adapted.statistics))

    def _implicit(self, batch: TaskBatch, adapted: Adapted, wanted: Fast) -> Fast:
        """(I + ∇²L(φ) / λ)⁻¹ v, of each task (Eq. 6), where L is the support loss."""
        x = without_padding(batch.support_x, batch.support_mask)
        losses = self._losses(x, batch.support_y, batch.support_mask)
        # The Hessian is symmetric: a product with its transpose is a product with it.
        product = torch.func.vjp(lambda fast: by_transform(losses, fast)[0], dict(adapted.items()))[1]

        def matrix(vector: Fast) -> Fast:
            (curved,) = product(vector)
            return {name: value + curved[name] / self.strength for name, value in vector.items()}

        return conjugate_gradients(matrix, wanted, self.cg_steps)


def conjugate_gradients(matrix: Callable[[Fast], Fast], wanted: Fast, steps: int) -> Fast:
    """The v with A v = w, of T tasks at once, each by its own step sizes; A symmetric.

    matrix: v → A v; names → [T, ...]. A task ends where A is not positive in the direction that it would take: far from
    a minimum a loss may bend down.
    """
    solution = {name: torch.zeros_like(value) for name, value in wanted.items()}
    rest = direction = wanted
    length = _dot(rest, rest)
    goes_on = length > 0  # [T]
    for _ in range(steps):
        image = matrix(direction)
        curvature = _dot(direction, image)
        goes_on = goes_on & (curvature > 0)
        share = (length / curvature.where(goes_on, 1)).where(goes_on, 0)  # [T]
        solution = _plus(solution, share, direction)
        rest = _plus(rest, -share, image)
        before, length = length, _dot(rest, rest)
        goes_on = goes_on & (length > 0)
        direction = _plus(rest, (length / before.where(goes_on, 1)).where(goes_on, 0), direction)
    return solution


def _dot(one: Fast, other: Fast) -> Tensor:
    """Of each task, [T]."""
    return torch.stack([(one[name] * other[name]).flatten(1).sum(1) for name in one]).sum(0)


def _plus(one: Fast, share: Tensor, other: Fast) -> Fast:
    """one + share · other, with a share for each task [T]."""
    return {name: v + share.view(-1, *(1,) * (v.ndim - 1)) * other[name] for name, v in one.items()}
