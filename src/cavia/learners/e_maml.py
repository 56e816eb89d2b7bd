"""E-MAML: credit for the episodes that a policy is adapted on."""

from typing import Any

from torch import Tensor

from cavia.errors import require_positive
from cavia.learners.adapted import Adapted
from cavia.learners.gradient import MAML
from cavia.learners.losses import PointLoss, mean_over_points
from cavia.models.base import ContextModel
from cavia.models.policy import Policy


class EMAML(MAML):
    """MAML that is trained to explore (Stadie et al. 2018): episodes before an update get credit for what follows it.

    The return after adaptation depends on the episodes that the policy adapts on, and those on the policy before. The
    gradient of that dependence is J(θᵢ)·Σ ∇ log π_θ(a | s) over them, which MAML leaves out. Outside of
    environments, it is MAML.

    credit: weight of that term. J is each task's return after adaptation, with mean 0 and standard deviation 1 over
            the batch; the sum over steps is a mean, as in the rest of the outer loss.

    >>> policy = GaussianPolicy(observations=2, actions=2, context=0)
    >>> learner = EMAML(policy, loss=policy.loss, inner_lr=0.1, credit=0.5)
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 1,
        first_order: bool = False,
        credit: float = 1.0,
    ):
        super().__init__(model, loss, inner_lr, inner_steps, first_order)
        self.credit = require_positive("credit", credit)

    def policy_terms(self, batch: Any) -> Tensor | None:
        """−credit·J(θᵢ)·log π_θ(a | s) of the episodes before each update: [T]."""
        if batch.gain is None:
            return None
        assert isinstance(self.model, Policy)  # or check_fits raises
        start: Adapted | None = None
        total = batch.gain.new_zeros(len(batch))
        for number, points in enumerate(batch.support):
            if start is None:  # all tasks have the same weights
                prediction = self.model(points.x, self.initial_context.expand(len(batch), -1))
            else:
                prediction = self.respond(points.x, start)
            logs = self.model.log_prob(prediction, points.y[..., :-1])
            total = total + mean_over_points(logs, points.mask)
            if number + 1 < len(batch.support):
                start = self.infer(points.x, points.y, points.mask, 1, start)
        return -self.credit * batch.gain * total  # J(θᵢ)·Σ log π_θ
