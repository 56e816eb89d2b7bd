"""What a learner has learned: the contexts of known tasks, and how steep the loss is in them."""

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
    """How well a task's value is predicted by the tasks nearest to it: R² of the mean of its nearest neighbours.

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
    """How often the nearest of all points is another one of the same task: points [T, R, C], R of each task → 0 … 1."""
    tasks, each = points.shape[:2]
    distances = torch.cdist(points.flatten(0, 1), points.flatten(0, 1)).fill_diagonal_(float("inf"))
    nearest = distances.argmin(1) // each  # [T·R], the task that it belongs to
    own = torch.arange(tasks, device=points.device).repeat_interleave(each)
    return (nearest == own).float().mean().item()


def plane(points: Tensor) -> Tensor:
    """The two directions in which points [N, C] vary most (their first principal components): [N, 2].

    Points of one number lie on a line.
    """
    centred = points - points.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    projected = centred @ directions[:2].T
    return pad(projected, (0, 2 - projected.shape[1]))


def axis_alignment(points: Tensor, values: Tensor) -> Tensor:
    """The correlation of each coordinate of the points [T, C] with each of the values [T, D]: [C, D]."""
    both = torch.cat([points, values], 1).double().T
    return torch.corrcoef(both)[: points.shape[1], points.shape[1] :].nan_to_num()


def held_out_r2(points: Tensor, values: Tensor, linear: bool, folds: int = 5) -> Tensor:
    """How well the points [T, C] tell each of the values [T, D] of tasks that the fit has not seen: R², [D].

    linear: by a linear function; otherwise by kernel ridge regression with a Gaussian kernel, whose width and ridge are
            chosen for each fold by leave-one-out errors on its training tasks. Below 0: worse than the mean.
    """
    points, values = points.double(), values.double()
    residual = torch.empty_like(values)
    for fold in range(folds):  # every fifth task, whatever their order means
        test = torch.arange(len(points)) % folds == fold
        centre, scale = points[~test].mean(0), points[~test].std(0).clamp(min=1e-12)
        known, asked = (points[~test] - centre) / scale, (points[test] - centre) / scale
        middle = values[~test].mean(0)
        fit = _linear if linear else _kernel
        residual[test] = values[test] - middle - fit(known, values[~test] - middle, asked)
    return 1 - residual.square().mean(0) / values.var(0, correction=0)


def _linear(known: Tensor, values: Tensor, asked: Tensor) -> Tensor:
    return asked @ torch.linalg.lstsq(known, values, driver="gelsd").solution


def _kernel(known: Tensor, values: Tensor, asked: Tensor) -> Tensor:
    """Kernel ridge regression of values [T, D] at known [T, C], for asked [N, C] → [N, D]."""
    squares, best = torch.cdist(known, known).square(), None
    middle = squares.median().clamp(min=1e-12)
    for width in (0.3, 1.0, 3.0, 10.0):
        sizes, directions = torch.linalg.eigh(torch.exp(-squares / (2 * width * middle)))
        for ridge in (1e-8, 1e-6, 1e-4, 1e-2):
            inverse = directions @ ((sizes.clamp(min=0) + ridge * len(known)).reciprocal().unsqueeze(1) * directions.T)
            weights = inverse @ values
            error = (weights / inverse.diagonal().unsqueeze(1)).square().sum()  # of each task, left out
            if best is None or error < best[0]:
                best = (error, width, weights)
    assert best is not None
    return torch.exp(-torch.cdist(asked, known).square() / (2 * best[1] * middle)) @ best[2]
