"""Predictions of adapted policies, and products with their derivative by the learner's parameters."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.acting import MetaBatch, policy_of
from cavia.learners.adapted import Adapted
from cavia.learners.base import Learner
from cavia.learners.losses import point_weights


class Jacobian(ABC):
    """The derivative J of the predictions for the query steps, through the inner steps, at the current parameters.

    products: how many pairs of `push` and `pull` will follow; decides what is worth storing
    """

    prediction: Tensor  # [T, N, D]

    def __init__(self, learner: Learner, part: MetaBatch, products: int = 0):
        self.policy, self.mask = policy_of(learner), part.query.mask

    @abstractmethod
    def push(self, vector: Tensor) -> Tensor:
        """J·vector: how the predictions change with the parameters, [P] → [T, N, D]."""

    @abstractmethod
    def pull(self, weights: Tensor) -> Tensor:
        """Jᵀ·weights: the gradient of the weighted sum of the predictions, [T, N, D] → [P]."""

    def fisher(self, vector: Tensor) -> Tensor:
        """H·vector, [P] → [P]: H is the Hessian of the KL divergence, a mean over a task's steps, summed over tasks.

        At equal policies the gradient of the KL divergence vanishes, so its Hessian is JᵀMJ with M of `Policy.fisher`:
        exact, and half the work of differentiating the KL divergence twice.
        """
        weight = point_weights(self.mask, self.prediction).unsqueeze(-1)
        return self.pull(weight * self.policy.fisher(self.prediction, self.push(vector)))


class AutogradJacobian(Jacobian):
    """J of any learner and policy; the graphs of J·v and Jᵀ·u are built once."""

    def __init__(self, learner: Learner, part: MetaBatch, products: int = 0):
        super().__init__(learner, part, products)
        self.parameters = [value for value in learner.parameters() if value.requires_grad]
        self._prediction = adapted_predictions(learner, part)
        self.prediction = self._prediction.detach()
        self._seed: Tensor | None = None
        self._pulled: Tensor | None = None

    def push(self, vector: Tensor) -> Tensor:
        if self._seed is None or self._pulled is None:
            # Jᵀ·seed is linear in seed: its gradient with respect to seed, weighted by v, is J·v.
            self._seed = torch.zeros_like(self.prediction, requires_grad=True)
            self._pulled = self._backward(self._seed, create_graph=True)
        (change,) = torch.autograd.grad(self._pulled, self._seed, vector, retain_graph=True)
        return change

    def pull(self, weights: Tensor) -> Tensor:
        return self._backward(weights, retain_graph=True)

    def _backward(self, weights: Tensor, **options: bool) -> Tensor:
        gradients = torch.autograd.grad(self._prediction, self.parameters, weights, materialize_grads=True, **options)
        return torch.cat([value.flatten() for value in gradients])


def adapted_predictions(learner: Learner, part: MetaBatch) -> Tensor:
    """Predictions [T, N, D] of the adapted policies for the query steps, differentiable through the inner steps."""
    adapted: Adapted | None = None
    for points in part.support:
        adapted = learner.infer(points.x, points.y, points.mask, 1, adapted)  # Eq. (5) on −A·log π
    if adapted is None:
        raise CaviaError("support must hold the episodes of at least one inner step, got none")
    return learner.respond(part.query.x, adapted)
