"""Other methods for the tasks of a table: ridge regression for each, gradient boosting with the task's statistics."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavia.tables.tasks import Tasks
from cavia.tasks.batch import TaskBatch, seeded_generator

DRAWS = 4  # of known rows of each training task, for boosting
QUERY = 50  # rows of each, at most


class Task(NamedTuple):
    """A task with known rows: what one method by itself would see."""

    x: np.ndarray  # [N, inputs], to be predicted, padding included
    known_x: np.ndarray  # [K, inputs]
    known_y: np.ndarray  # [K]


def tasks_of(batch: TaskBatch, target: int = 0) -> Iterator[Task]:
    """The tasks of a batch, in double precision; of numbers, one target."""
    for place in range(len(batch)):
        known = slice(None) if batch.support_mask is None else batch.support_mask[place]
        y = batch.support_y[place, known]
        values = y[:, target].double().numpy() if y.is_floating_point() else y.numpy()
        yield Task(batch.query_x[place].double().numpy(), batch.support_x[place, known].double().numpy(), values)


def training_rows(family: Tasks, most: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, inputs], y [rows, ...] and where each training task starts [T]; of `most` rows the first tasks."""
    members = family.members["train"]
    if most is not None:
        members = members[: max(2, int((family.sizes[members].cumsum(0) <= most).sum()))]
    sizes, starts = family.sizes[members], family.starts[members]
    rows = torch.cat([torch.arange(a, a + n) for a, n in zip(starts.tolist(), sizes.tolist(), strict=True)])
    y = family.y[rows]
    numbers = y.double().numpy() if y.is_floating_point() else y.numpy()
    return family.x[rows].double().numpy(), numbers, (sizes.cumsum(0) - sizes).numpy()


def ridge(task: Task, penalty: float) -> np.ndarray:
    """Ridge regression on the known rows alone, the intercept unpenalised: [N]."""
    middle = task.known_x.mean(0)
    design, mean = task.known_x - middle, task.known_y.mean()
    kernel = design @ design.T + penalty * np.eye(len(design))  # K × K: tasks have few known rows
    return mean + (task.x - middle) @ design.T @ np.linalg.solve(kernel, task.known_y - mean)


def statistics(task: Task) -> np.ndarray:
    """Inputs of rows, how they differ from the known rows', and statistics of the known targets: [N, features]."""
    y = task.known_y
    own = np.array([y.mean(), y.std(), y.min(), y.max(), y[-1], np.median(y), len(y)])
    away = task.x - task.known_x.mean(0)
    nearest = np.square(task.x[:, None] - task.known_x[None]).sum(-1).argmin(1)  # the known row most like each
    return np.concatenate([task.x, away, np.broadcast_to(own, (len(task.x), len(own))), y[nearest][:, None]], 1)


def class_statistics(task: Task, classes: int) -> np.ndarray:
    """As `statistics`, for classes: the shares among the known rows, and the class of the nearest one."""
    shares = np.bincount(task.known_y, minlength=classes) / len(task.known_y)
    own = np.append(shares, len(task.known_y))
    nearest = np.square(task.x[:, None] - task.known_x[None]).sum(-1).argmin(1)
    hot = np.eye(classes)[task.known_y[nearest]]
    return np.concatenate([task.x, np.broadcast_to(own, (len(task.x), len(own))), hot], 1)


def training_examples(family: Tasks, seed: int, features: Any, target: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets of training rows, each with known rows of its task drawn as they are for unseen tasks."""
    generator, inputs, outputs = seeded_generator(seed, "boosting"), [], []
    for _ in range(DRAWS):
        batch = family.sample(len(family.splits["train"]), family.support, min(family.query, QUERY), generator, "train")
        for place, task in enumerate(tasks_of(batch, target)):
            valid = slice(None) if batch.query_mask is None else batch.query_mask[place].numpy()
            y = batch.query_y[place].numpy()
            inputs.append(features(task)[valid])
            outputs.append((y[:, target] if y.ndim == 2 else y)[valid])
    return np.concatenate(inputs), np.concatenate(outputs)


def boosted(family: Tasks, batch: TaskBatch, seed: int) -> Tensor:
    """scikit-learn's gradient boosting, its number of trees chosen on rows that it holds back: [T, N, targets]."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    predictions = torch.zeros(batch.query_y.shape)
    for target in range(predictions.shape[-1]):
        model = HistGradientBoostingRegressor(learning_rate=0.05, max_iter=300, early_stopping=True, random_state=seed)
        model.fit(*training_examples(family, seed, statistics, target))
        for place, task in enumerate(tasks_of(batch, target)):
            predictions[place, :, target] = torch.from_numpy(model.predict(statistics(task)))
    return predictions


def boosted_classes(family: Tasks, batch: TaskBatch, classes: int, seed: int) -> Tensor:
    """As `boosted`, for classes: [T, N, classes]."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def features(task: Task) -> np.ndarray:
        return class_statistics(task, classes)

    model = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=300, early_stopping=True, random_state=seed)
    model.fit(*training_examples(family, seed, features))
    probabilities = torch.full((*batch.query_y.shape, classes), 0.0)
    for place, task in enumerate(tasks_of(batch)):
        probabilities[place, :, torch.from_numpy(model.classes_)] = torch.from_numpy(
            model.predict_proba(features(task))
        ).float()
    return probabilities
