"""Losses and scores of every point; a task's value is the mean over its points."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from cavia.errors import CaviaError, require_one_of, shown
from cavia.models.policy import CategoricalPolicy, GaussianPolicy
from cavia.tasks.points import without_padding as without_padding

NO_LABEL = -(2**62)  # a label that nobody has
PointLoss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (prediction [T, N, ...], target) → [T, N]


def mse(prediction: Tensor, target: Tensor) -> Tensor:
    """Squared error of every point, averaged over its outputs: [T, N, ...] twice → [T, N]."""
    return _difference(prediction, target).square().flatten(2).mean(-1)


def mse_slope(prediction: Tensor, target: Tensor) -> Tensor:
    """The derivative of every point's `mse` by its prediction: [T, N, ...] twice → [T, N, ...]."""
    return _difference(prediction, target) * (2 / prediction.shape[2:].numel())


def _difference(prediction: Tensor, target: Tensor) -> Tensor:
    if prediction.shape != target.shape:
        raise CaviaError(
            f"mse needs prediction and target of one shape, got {list(prediction.shape)} and {list(target.shape)}"
        )
    return prediction - (target.to(prediction.dtype) if target.dtype == torch.bool else target)


def cross_entropy(prediction: Tensor, target: Tensor) -> Tensor:
    """Negative log-likelihood of every point: logits [T, N, classes], labels [T, N] → [T, N]."""
    _check_labels("cross_entropy", prediction, target)
    labels = target.flatten().long()
    try:  # PyTorch's own number to ignore, -100, would count as a loss of 0
        losses = functional.cross_entropy(prediction.flatten(0, 1), labels, reduction="none", ignore_index=NO_LABEL)
    except IndexError as error:
        raise CaviaError(_wrong_label(prediction, target)) from error
    return losses.view(target.shape)


def score_mse(prediction: Tensor, target: Tensor) -> Tensor:
    """Squared error of every point's scores σ(logit), towards 1 for the label's class and 0 for the others, summed.

    logits [T, N, classes], labels [T, N] → [T, N].
    """
    _check_labels("score_mse", prediction, target)
    classes = torch.arange(prediction.shape[-1], device=target.device)
    can_look = not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None
    if can_look and target.numel() and not 0 <= int(target.min()) <= int(target.max()) < len(classes):
        raise CaviaError(_wrong_label(prediction, target))
    return (prediction.sigmoid() - (target.unsqueeze(-1) == classes).to(prediction.dtype)).square().sum(-1)


def accuracy(prediction: Tensor, target: Tensor) -> Tensor:
    """1 where the largest logit is the label's, else 0: logits [T, N, classes], labels [T, N] → [T, N]."""
    _check_labels("accuracy", prediction, target)
    return (prediction.argmax(-1) == target).to(prediction.dtype)


def _check_labels(name: str, prediction: Tensor, target: Tensor) -> None:
    if prediction.ndim != 3 or prediction.shape[:2] != target.shape:
        raise CaviaError(
            f"{name} needs logits [tasks, points, classes] and labels [tasks, points], "
            f"got {list(prediction.shape)} and {list(target.shape)}"
        )
    if target.is_floating_point():
        raise CaviaError(f"{name} needs whole-number labels, got {target.dtype} {list(target.shape)}; use y.long()")


def _wrong_label(prediction: Tensor, target: Tensor) -> str:
    """The first label [T, N] that no class of the logits [T, N, classes] has, in words."""
    classes = prediction.shape[-1]
    wrong = ((target < 0) | (target >= classes)).nonzero()
    task, point = wrong[0].tolist() if len(wrong) else (0, 0)
    return (
        f"labels y must be from 0 to {classes - 1} for logits of {classes} classes, "
        f"got {target[task, point].item()} for task {task}, point {point} of {list(target.shape)} "
        f"(prediction {list(prediction.shape)}); leave out points without a label by a mask"
    )


def _check_actions(prediction: Tensor, target: Tensor, numbers: int) -> None:
    """Raise unless targets are [T, N, numbers of an action, and its advantage]."""
    if prediction.ndim != 3 or target.shape != (*prediction.shape[:2], numbers + 1):
        raise CaviaError(
            f"a policy's loss needs targets [tasks, steps, {numbers + 1}], the action and its advantage, "
            f"for predictions {list(prediction.shape)}, got {list(target.shape)}"
        )


def gaussian_policy_gradient(prediction: Tensor, target: Tensor) -> Tensor:
    """−A·log π(a | s) of every time step: predictions [T, N, 2·A] of a `GaussianPolicy`, target [T, N, A + 1] → [T, N].

    target: the action that was taken, and its advantage last.
    """
    _check_actions(prediction, target, prediction.shape[-1] // 2)
    return -target[..., -1] * GaussianPolicy.log_prob(prediction, target[..., :-1])


def categorical_policy_gradient(prediction: Tensor, target: Tensor) -> Tensor:
    """The same for a `CategoricalPolicy`: logits [T, N, actions], target [T, N, 2] → [T, N]."""
    _check_actions(prediction, target, 1)
    return -target[..., -1] * CategoricalPolicy.log_prob(prediction, target[..., :-1])


LOSSES: dict[str, PointLoss] = {
    "mse": mse,
    "cross_entropy": cross_entropy,
    "score_mse": score_mse,
    "gaussian_policy_gradient": gaussian_policy_gradient,
    "categorical_policy_gradient": categorical_policy_gradient,
}


def find_loss(loss: str | PointLoss) -> PointLoss:
    """The loss of that name, or the callable itself."""
    if callable(loss):
        return loss
    require_one_of("loss", loss, LOSSES)
    return LOSSES[loss]


def refuse_arrays(error: RuntimeError) -> None:
    """Raise a CaviaError, if PyTorch's error says that a loss converts tensors to arrays where gradients are taken."""
    if "data pointer" in str(error) or ".numpy()" in str(error):
        raise CaviaError(
            "the loss converts the prediction to an array, through which there is no gradient; compute it with "
            "PyTorch's functions"
        ) from error


def require_losses(values: object, prediction: Tensor, target: Tensor) -> None:
    """Raise unless values are losses [T, N] of the points, with a gradient by the prediction where one is needed."""
    if not isinstance(values, Tensor) or values.shape != target.shape[:2]:
        got = list(values.shape) if isinstance(values, Tensor) else shown(values)
        raise CaviaError(
            f"the loss must return one value per point, {list(target.shape[:2])} for targets {list(target.shape)}; "
            f"it returned {got}"
        )
    if not values.is_floating_point():
        raise CaviaError(f"the loss must return real numbers, got {values.dtype} {list(values.shape)}; use .float()")
    has_gradient = torch.compiler.is_compiling() or values.requires_grad
    if torch.is_grad_enabled() and prediction.requires_grad and not has_gradient:
        raise CaviaError(
            "the loss does not depend on the prediction by differentiable functions, so it teaches nothing; "
            "compute it without detach, item, numpy, argmax or comparisons"
        )


def mean_over_points(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over each task's points: values [T, N], mask [T, N] or None → [T]. A task without points has mean 0."""
    if mask is None:
        return values.mean(1)
    return values.where(mask, 0).sum(1) / mask.sum(1).clamp(min=1)


def point_weights(mask: Tensor, like: Tensor) -> Tensor:
    """What each point counts in the mean over its task's: mask [T, N] → [T, N], of the type of `like`."""
    running = mask.to(like)
    return running / running.sum(1, keepdim=True).clamp(min=1)


def mean_slope(slope: PointLoss, target: Tensor, mask: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The derivative of a task's mean loss by its predictions [T, N, ...], from that of every point's loss."""
    target = without_padding(target, mask)
    counts: Tensor | int = max(target.shape[1], 1)
    if mask is not None:
        counts = mask.sum(1).clamp(min=1).view(-1, *(1,) * (target.ndim - 1))

    def mean(prediction: Tensor) -> Tensor:
        return (without_padding(slope(prediction, target), mask) / counts).to(prediction.dtype)

    return mean
