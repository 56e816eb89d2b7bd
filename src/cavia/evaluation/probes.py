"""Probes of what a learner has learned: the contexts of known tasks, and the norm of their gradients."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.tasks.batch import TaskBatch


def contexts(learner: Learner, batch: TaskBatch, steps: int) -> Tensor:
    """The adapted context of every task, [T, C]: the task embedding."""
    return learner.adapt(batch.support_x, batch.support_y, batch.support_mask, steps).context


def context_gradient_norms(learner: Learner, batch: TaskBatch) -> Tensor:
    """The norm of ∇φ of every task's support loss before adaptation, [T]."""
    start = learner.adapt(batch.support_x, batch.support_y, batch.support_mask, steps=0)

    def summed_loss(context: Tensor) -> Tensor:
        prediction = learner.respond(
            batch.support_x, Adapted.of({**start.parameters, CONTEXT: context}, start.statistics)
        )
        return learner.mean_loss(prediction, batch.support_y, batch.support_mask).sum()

    return torch.func.grad(summed_loss)(start.context).norm(dim=1).detach()


def neighbour_r2(points: Tensor, values: Tensor, neighbours: int = 5) -> float:
    """How well a task's nearest neighbours predict its value: R² of their mean.

    points: [T, C], values: [T]. 1 if the values vary smoothly over the points, about 0 if they are unrelated.
    """
    neighbours = min(neighbours, len(points) - 1)
    distances = torch.cdist(points, points).fill_diagonal_(float("inf"))
    nearest = distances.topk(neighbours, largest=False).indices  # [T, neighbours]
    residual = (values - values[nearest].mean(1)).square().mean()
    return (1 - residual / values.var(correction=0)).item()


def linear_r2(points: Tensor, values: Tensor) -> Tensor:
    """How well a linear function of the points [T, C] predicts each of the values [T, D]: R², [D]."""
    inputs = torch.cat([points, torch.ones_like(points[:, :1])], 1).double()
    solution = torch.linalg.lstsq(inputs, values.double(), driver="gelsd").solution
    residual = (values - inputs @ solution).square().mean(0)
    return 1 - residual / values.double().var(0, correction=0)


def neighbour_agreement(points: Tensor) -> float:
    """How often a point's nearest neighbour belongs to the same task: points [T, R, C], R per task → 0 … 1."""
    tasks, each = points.shape[:2]
    distances = torch.cdist(points.flatten(0, 1), points.flatten(0, 1)).fill_diagonal_(float("inf"))
    nearest = distances.argmin(1) // each  # [T·R], the task that it belongs to
    own = torch.arange(tasks, device=points.device).repeat_interleave(each)
    return (nearest == own).float().mean().item()


def plane(points: Tensor) -> Tensor:
    """Project points [N, C] onto their first two principal components: [N, 2].

    Points with C = 1 lie on a line.
    """
    centred = points - points.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    projected = centred @ directions[:2].T
    return pad(projected, (0, 2 - projected.shape[1]))


def axis_alignment(points: Tensor, values: Tensor) -> Tensor:
    """The correlation of each coordinate of the points [T, C] with each of the values [T, D]: [C, D]."""
    both = torch.cat([points, values], 1).double().T
    return torch.corrcoef(both)[: points.shape[1], points.shape[1] :].nan_to_num()
