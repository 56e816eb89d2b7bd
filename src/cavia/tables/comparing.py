"""`cavia fit --compare`: alternative methods on the same unseen tasks and the same known rows of each."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavia.errors import missing_package
from cavia.evaluation.evaluate import half_width
from cavia.tables.columns import Number
from cavia.tables.mixed import MOST_SLOPES, Mixed, fit_mixed
from cavia.tables.model import TableModel
from cavia.tables.rivals import Task, boosted, boosted_classes, ridge, tasks_of, training_rows
from cavia.tables.tasks import Tasks
from cavia.tasks.batch import TaskBatch, seeded_generator

PENALTIES = (0.1, 1.0, 10.0, 100.0)
LEAST_CHANCE = 1e-6
Answer = Callable[[TaskBatch], Tensor]  # → predictions [T, N, targets], or chances [T, N, classes]


class Compared(NamedTuple):
    """One method on the unseen tasks: its mean score, the 95 % half width, and both for the difference to CAVIA's."""

    target: str
    method: str
    score: float
    width: float
    gap: float
    gap_width: float
    accuracy: float | None = None


def compare(model: TableModel, family: Tasks, seed: int = 0) -> tuple[list[Compared], list[str]]:
    """All methods on the test tasks, and one line for each that was left out.

    The score is the root mean squared error in the target's unit, or the log loss of classes: less is better.
    """
    batch = family.sample(
        len(family.splits["test"]), family.support, family.query, seeded_generator(seed, "compare"), "test"
    )
    answers: dict[str, Tensor] = {}
    left_out: list[str] = []
    for name, answer in _methods(model, family, seed):
        try:
            answers[name] = answer(batch)
        except ImportError:
            left_out.append(f"left out: {missing_package(name, 'scikit-learn', 'sklearn')}")
    if model.encoding.is_classification:
        left_out.append("left out: ridge regression and the mixed model, which are for numbers")
        return _scored_classes(batch, answers, model.encoding.target.name), left_out
    return _scored_numbers(batch, answers, model), left_out


def as_text(compared: list[Compared], left_out: list[str], tasks: int) -> str:
    """One aligned table, the best of each target marked."""
    lines = []
    for target in dict.fromkeys(one.target for one in compared):
        rows = [one for one in compared if one.target == target]
        best = min(rows, key=lambda one: one.score)
        has_accuracy = rows[0].accuracy is not None
        what = "log loss" if has_accuracy else f"root mean squared error of {target}"
        header = ["  method", what, "± 95 %", "minus CAVIA's", "± 95 %", *(["accuracy"] if has_accuracy else [])]
        cells = [header]
        for one in rows:
            mark = "* " if one is best else "  "
            gap = ["–", "–"] if one.method == "CAVIA" else [f"{one.gap:+.4g}", f"{one.gap_width:.2g}"]
            accuracy = [] if one.accuracy is None else [f"{one.accuracy:.3f}"]
            cells.append([mark + one.method, f"{one.score:.4g}", f"{one.width:.2g}", *gap, *accuracy])
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        lines += [
            "  ".join([f"{row[0]:{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
    return "\n".join([f"compared on the same {tasks} unseen tasks (* is best):", *lines, *left_out])


def _methods(model: TableModel, family: Tasks, seed: int) -> Iterator[tuple[str, Answer]]:
    learner = model.learner

    def adapted(batch: TaskBatch, steps: int | None = None) -> Tensor:
        predictions = learner.predict(
            batch.query_x, learner.adapt(batch.support_x, batch.support_y, batch.support_mask, steps)
        )
        return predictions.softmax(-1) if model.encoding.is_classification else predictions

    yield "CAVIA", adapted
    yield "CAVIA, not adapted (φ = 0)", lambda batch: adapted(batch, 0)
    if model.encoding.is_classification:
        classes = model.encoding.outputs
        share = training_rows(family)[1]
        overall = np.bincount(share, minlength=classes) / len(share)
        yield "shares of all", lambda batch: torch.tensor(overall).expand(*batch.query_y.shape, -1).float()
        yield "the task's shares", _each(lambda task: _shares(task, overall), classes)
        yield "gradient boosting with the task's shares", lambda batch: boosted_classes(family, batch, classes, seed)
        return
    yield "mean of all", lambda batch: torch.zeros_like(batch.query_y)  # targets are standardised
    yield "the task's mean", lambda batch: _by_target(batch, lambda task: np.full(len(task.x), task.known_y.mean()))
    yield "ridge for each task", lambda batch: _by_target(batch, _chosen_ridge(family, seed))
    for name, slopes in (("mixed model, intercept", 0), ("mixed model, slopes", MOST_SLOPES)):
        yield name, partial(_mixed, family, slopes)
    yield "gradient boosting with the task's statistics", lambda batch: boosted(family, batch, seed)


def _mixed(family: Tasks, slopes: int, batch: TaskBatch) -> Tensor:
    x, y, starts = training_rows(family)
    models = [fit_mixed(x, y[:, i], starts, slopes) for i in range(y.shape[1])]
    parts = [_by_target(batch, partial(_blup, one), place, 1) for place, one in enumerate(models)]
    return torch.cat(parts, -1)


def _blup(model: Mixed, task: Task) -> np.ndarray:
    return model.predict(task.x, task.known_x, task.known_y)


def _chosen_ridge(family: Tasks, seed: int) -> Callable[[Task], np.ndarray]:
    """Ridge regression with the penalty that is best on the validation tasks."""
    split = "val" if family.splits["val"] else "train"
    batch = family.sample(
        len(family.splits[split]), family.support, min(family.query, 100), seeded_generator(seed, "ridge"), split
    )

    def loss(penalty: float) -> float:
        return float(_mean_square(batch, _by_target(batch, lambda task: ridge(task, penalty))).mean())

    best = min(PENALTIES, key=loss)
    return lambda task: ridge(task, best)


def _by_target(
    batch: TaskBatch, answer: Callable[[Task], np.ndarray], first: int = 0, count: int | None = None
) -> Tensor:
    """The same method for each target by itself: [T, N, targets]."""
    count = batch.query_y.shape[-1] if count is None else count
    predictions = torch.zeros(*batch.query_y.shape[:2], count)
    for target in range(count):
        for place, task in enumerate(tasks_of(batch, first + target)):
            predictions[place, :, target] = torch.from_numpy(np.asarray(answer(task)))
    return predictions


def _each(answer: Callable[[Task], np.ndarray], classes: int) -> Answer:
    def answers(batch: TaskBatch) -> Tensor:
        probabilities = torch.zeros(*batch.query_y.shape[:2], classes)
        for place, task in enumerate(tasks_of(batch)):
            probabilities[place] = torch.from_numpy(answer(task))
        return probabilities

    return answers


def _shares(task: Task, overall: np.ndarray) -> np.ndarray:
    """Classes of the known rows, with one row's worth of all classes added."""
    counts = np.bincount(task.known_y, minlength=len(overall)) + overall
    return counts / counts.sum()


def _mean_square(batch: TaskBatch, answer: Tensor) -> Tensor:
    """[T, targets]"""
    mask = torch.ones(batch.query_y.shape[:2]) if batch.query_mask is None else batch.query_mask.float()
    errors = (answer - batch.query_y).square() * mask[..., None]
    return errors.sum(1) / mask.sum(1)[:, None]


def _scored_numbers(batch: TaskBatch, answers: dict[str, Tensor], model: TableModel) -> list[Compared]:
    rows = []
    for place, target in enumerate(model.encoding.targets):
        assert isinstance(target, Number)
        scores = {
            name: _mean_square(batch, one)[:, place].sqrt().double() * target.scale for name, one in answers.items()
        }
        rows += [_row(target.name, name, one, scores["CAVIA"]) for name, one in scores.items()]
    return rows


def _scored_classes(batch: TaskBatch, answers: dict[str, Tensor], target: str) -> list[Compared]:
    mask = torch.ones(batch.query_y.shape) if batch.query_mask is None else batch.query_mask.float()
    count = mask.sum(1)
    own = {
        name: -(one.double().clamp(min=LEAST_CHANCE).log().gather(-1, batch.query_y[..., None])[..., 0] * mask).sum(1)
        / count
        for name, one in answers.items()
    }
    right = {
        name: (((one.argmax(-1) == batch.query_y) * mask).sum(1) / count).mean().item() for name, one in answers.items()
    }
    return [_row(target, name, one, own["CAVIA"], right[name]) for name, one in own.items()]


def _row(target: str, name: str, scores: Tensor, ours: Tensor, accuracy: float | None = None) -> Compared:
    gap = scores - ours
    return Compared(
        target,
        name,
        scores.mean().item(),
        half_width(scores).item(),
        gap.mean().item(),
        half_width(gap).item(),
        accuracy,
    )
