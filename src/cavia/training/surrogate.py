"""Shared by outer steps on policies: the surrogate objective through the inner steps, and its gradient (Section 5.3).

The KL divergence is summed over an action's components and averaged over each task's steps, then over tasks.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.acting import MetaBatch, Points, policy_of
from cavia.learners.base import Learner
from cavia.learners.gradient import GradientLearner
from cavia.learners.losses import mean_over_points
from cavia.training.jacobian import AutogradJacobian, Jacobian
from cavia.training.outer import OuterStep
from cavia.training.policy_jacobian import PolicyJacobian
from cavia.training.ranks import ALONE, Ranks


class PolicyStep(OuterStep):
    """An outer step for a learner around a policy.

    closed_form: differentiate our own policies in closed form instead of by autograd; equal up to rounding
    """

    def __init__(self, learner: Learner, closed_form: bool = True):
        self.learner, self.policy = learner, policy_of(learner)
        self.ranks: Ranks = ALONE
        self.parameters = [value for value in learner.parameters() if value.requires_grad]
        self.jacobian: type[Jacobian] = AutogradJacobian
        if closed_form and PolicyJacobian.applies_to(learner):
            self.jacobian = PolicyJacobian

    def spread(self, ranks: Ranks) -> bool:
        self.ranks = ranks
        return True

    def parts(self, batch: MetaBatch, chunk: int | None) -> list[MetaBatch]:
        """The batch, at most `chunk` tasks at a time."""
        if not batch.support:
            raise CaviaError("support must hold the episodes of at least one inner step, got none")
        return list(batch.split(chunk or len(batch)))

    def ratio(self, new: Tensor, old: Tensor, points: Points) -> Tensor:
        """π_new(a | s) / π_old(a | s) of the actions taken: predictions [T, N, D] twice → [T, N]."""
        action = points.y[..., :-1]
        return (self.policy.log_prob(new, action) - self.policy.log_prob(old, action)).exp()

    def surrogate(self, new: Tensor, old: Tensor, points: Points) -> Tensor:
        """−mean of A·π_new / π_old over each task's steps: predictions [T, N, D] twice → [T]."""
        return -mean_over_points(self.ratio(new, old, points) * points.y[..., -1], points.mask)

    def terms(self, part: MetaBatch) -> Tensor | None:
        """What the learner adds to each task's surrogate, [T], or nothing."""
        return self.learner.policy_terms(part) if isinstance(self.learner, GradientLearner) else None

    def gradient(
        self,
        parts: Sequence[MetaBatch],
        kept: list[Jacobian] | None = None,
        products: int = 0,
        old: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, float, list[Tensor]]:
        """Eq. (6): the gradient [P] of the surrogate, averaged over all tasks, the surrogate, and all predictions.

        What the learner adds to the surrogate (`policy_terms`) is part of both.

        kept: a list to store the Jacobians in, for this many `products`; None: one in memory at a time
        old:  the predictions of the policies that acted, by default those of the current parameters
        """
        total, loss, predictions = torch.zeros_like(flat(self.parameters)), 0.0, []
        for number, part in enumerate(parts):
            jacobian = self.jacobian(self.learner, part, 0 if kept is None else products)
            predictions.append(jacobian.prediction)
            new = jacobian.prediction.clone().requires_grad_()
            before = predictions[-1] if old is None else old[number]
            share = self.surrogate(new, before, part.query).sum() / count(parts)
            total += jacobian.pull(*torch.autograd.grad(share, new))
            loss += share.item()
            terms = self.terms(part)
            if terms is not None:
                share = terms.sum() / count(parts)
                total += flat(torch.autograd.grad(share, self.parameters, materialize_grads=True))
                loss += share.item()
            if kept is not None:
                kept.append(jacobian)
        return self.ranks.mean(total, count(parts)), self._mean_of_all(loss, parts), predictions

    @torch.no_grad()
    def judge(self, parts: Sequence[MetaBatch], old: Sequence[Tensor]) -> tuple[float, float]:
        """The surrogate (lower is better) and the mean KL divergence at the current parameters, over all tasks."""
        new = [self.jacobian(self.learner, part).prediction for part in parts]
        loss = sum(
            self.surrogate(one, before, part.query).sum().item()
            for one, before, part in zip(new, old, parts, strict=True)
        )
        loss += sum(terms.sum().item() for terms in map(self.terms, parts) if terms is not None)
        return self._mean_of_all(loss / count(parts), parts), self.kl(parts, old, new)

    @torch.no_grad()
    def kl(self, parts: Sequence[MetaBatch], old: Sequence[Tensor], new: Sequence[Tensor]) -> float:
        """The mean KL divergence from old to new predictions, over all tasks."""
        return self._mean(parts, (self.policy.kl(*pair) for pair in zip(old, new, strict=True)))

    @torch.no_grad()
    def entropy(self, parts: Sequence[MetaBatch], predictions: Sequence[Tensor]) -> float:
        """The mean entropy of the policies, over all tasks."""
        return self._mean(parts, (self.policy.entropy(one) for one in predictions))

    def _mean(self, parts: Sequence[MetaBatch], values: Iterable[Tensor]) -> float:
        pairs = zip(values, parts, strict=True)
        total = sum(mean_over_points(one, part.query.mask).sum().item() for one, part in pairs)
        return self._mean_of_all(total / count(parts), parts)

    def _mean_of_all(self, mean: float, parts: Sequence[MetaBatch]) -> float:
        """The mean over the tasks of all ranks, from this rank's mean."""
        return self.ranks.mean(torch.tensor([mean], dtype=torch.float64), count(parts)).item()


def flat(values: Iterable[Tensor]) -> Tensor:
    """Tensors as one vector [P]."""
    return torch.cat([value.flatten() for value in values])


def count(parts: Sequence[MetaBatch]) -> int:
    """The number of tasks in all parts."""
    return sum(len(part) for part in parts)
