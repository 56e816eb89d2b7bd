"""What contexts encode: how well the true parameters of tasks can be decoded from them, and whether they hold more."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

LEAST = 10  # tasks; fewer are too few for a conclusion
FOLDS = 5


def identifiability(
    contexts: Tensor, parameters: Mapping[str, Tensor], periods: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Held-out R², in both directions, between contexts [T, C] and the true parameters [T] of their tasks.

    periods: of parameters that are angles, such as {"phase": 2π}. An angle is represented as a point on a circle, by
             its sine and cosine, so that angles on both sides of zero are neighbours.

    "linear":     name → R² of the parameter, predicted by a linear function of the context.
    "non-linear": name → the same by kernel regression.
    "of context": for each context parameter, R² of predicting it from the true parameters by kernel regression.
    "whole":      the same for the whole context: 1 if the true parameters explain all of its variance.

    Empty if there are fewer than 10 tasks or some context is not finite.
    """
    if len(contexts) < LEAST or not contexts.isfinite().all():
        return {}
    points = {name: _on_circle(values, (periods or {}).get(name)) for name, values in parameters.items()}
    every = torch.cat([*points.values()], 1)
    r2: dict[str, Any] = {}
    for kind in ("linear", "non-linear"):
        missed = held_out_errors(contexts, every, linear=kind == "linear").split([p.shape[1] for p in points.values()])
        r2[kind] = {name: _r2(part, points[name]).item() for name, part in zip(points, missed, strict=True)}
    missed_context = held_out_errors(every, contexts, linear=False)
    of_context = [
        _r2(error, column.unsqueeze(1)).item() for error, column in zip(missed_context, contexts.T, strict=True)
    ]
    return r2 | {"of context": of_context, "whole": _r2(missed_context, contexts).item()}


def _on_circle(values: Tensor, period: float | None) -> Tensor:
    """[T] → [T, 1], or [T, 2] on a circle."""
    if period is None:
        return values.unsqueeze(1).double()
    angle = values.double() * (2 * math.pi / period)
    return torch.stack([angle.cos(), angle.sin()], 1)


def _r2(errors: Tensor, values: Tensor) -> Tensor:
    """R² of the columns of values [T, D] together, from their mean squared errors [D]; 1 for constant values."""
    variance = values.double().var(0, correction=0).sum()
    return 1 - errors.sum() / variance.clamp(min=torch.finfo(torch.double).tiny)


def held_out_r2(points: Tensor, values: Tensor, linear: bool) -> Tensor:
    """R² [D] of each of the values [T, D] on held-out tasks, predicted from the points [T, C].

    linear: by a linear function; otherwise by kernel ridge regression. Below 0: worse than the mean.
    """
    errors = held_out_errors(points, values, linear)
    return torch.stack([_r2(error, column.unsqueeze(1)) for error, column in zip(errors, values.T, strict=True)])


def held_out_errors(points: Tensor, values: Tensor, linear: bool) -> Tensor:
    """Mean squared errors [D] of values [T, D] predicted from points [T, C], by cross-validation over tasks.

    Kernel ridge regression has a Gaussian kernel; leave-one-out errors on the training tasks choose its width and ridge
    for each fold and each value.
    """
    points, values = points.double(), values.double()
    residual = torch.empty_like(values)
    for fold in range(FOLDS):  # every fifth task, in case their order has a meaning
        test = torch.arange(len(points), device=points.device) % FOLDS == fold
        centre, scale = points[~test].mean(0), points[~test].std(0).clamp(min=1e-12)
        known, asked = (points[~test] - centre) / scale, (points[test] - centre) / scale
        middle = values[~test].mean(0)
        fit = _linear if linear else _kernel
        residual[test] = values[test] - middle - fit(known, values[~test] - middle, asked)
    return residual.square().mean(0)


def _linear(known: Tensor, values: Tensor, asked: Tensor) -> Tensor:
    return asked @ torch.linalg.lstsq(known, values, driver="gelsd").solution


def _kernel(known: Tensor, values: Tensor, asked: Tensor) -> Tensor:
    """Kernel ridge regression of values [T, D] at known [T, C], for asked [N, C] → [N, D]."""
    squares, far = torch.cdist(known, known).square(), torch.cdist(asked, known).square()
    middle = squares.median().clamp(min=1e-12)
    least = torch.full_like(values[0], math.inf)
    predicted = torch.zeros(len(asked), values.shape[1], dtype=values.dtype, device=values.device)
    for width in (0.3, 1.0, 3.0, 10.0):
        sizes, directions = torch.linalg.eigh(torch.exp(-squares / (2 * width * middle)))
        kernel, turned = torch.exp(-far / (2 * width * middle)), directions.T @ values
        for ridge in (1e-8, 1e-6, 1e-4, 1e-2):
            inverse = (sizes.clamp(min=0) + ridge * len(known)).reciprocal().unsqueeze(1)  # for each eigenvalue
            weights = directions @ (inverse * turned)
            own = directions.square() @ inverse  # the diagonal of the inverse
            error = (weights / own).square().sum(0)  # leave-one-out
            better = error < least
            least = torch.where(better, error, least)
            predicted = torch.where(better, kernel @ weights, predicted)
    return predicted
