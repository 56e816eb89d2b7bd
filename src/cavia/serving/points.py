"""A learner whose requests are points: {"tasks": {"ann": {"x": [[…]], "y": [[…]]}}}."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from cavia.errors import CaviaError, shown
from cavia.learners.base import Learner
from cavia.serving.limits import Limits, checked_id


class Task(NamedTuple):
    """The points of one task in one request: x [n, inputs], y [n, outputs] or labels [n]; y is None to predict."""

    id: str
    x: np.ndarray
    y: np.ndarray | None = None


class Served(Protocol):
    """Turns the JSON of requests into tasks, and the network's outputs into JSON."""

    learner: Learner
    inputs: int

    def support(self, body: dict[str, Any], limits: Limits) -> tuple[list[Task], dict[str, Any]]:
        """The tasks to adapt to, each once, and what the answer says besides their contexts."""

    def queries(self, body: dict[str, Any], limits: Limits) -> tuple[list[Task], Any]:
        """The tasks to predict, each once, and what `answer` needs to know of the request."""

    def answer(self, asked: Any, tasks: Sequence[Task], outputs: Sequence[Tensor], contexts: Tensor) -> dict[str, Any]:
        """What is answered: outputs [n, outputs] of each task, by contexts [T, C]."""

    def about(self) -> dict[str, Any]:
        """What the model takes and gives, for GET /model."""


class PointModel:
    """A learner of ours on points of `inputs` numbers, for a squared error or classes."""

    def __init__(self, learner: Learner):
        self.learner = learner
        model, loss = learner.model, learner.loss
        sizes: list[Any] = [getattr(model, name, None) for name in ("inputs", "outputs")]
        if not all(isinstance(size, int) for size in sizes) or loss not in ("mse", "cross_entropy"):
            raise CaviaError(
                f"cannot serve {type(learner).__name__} on {type(model).__name__} with the loss {shown(loss)}: it must "
                "predict numbers or classes from points of a known size, as cavia.MLP and cavia.WaveBasis do"
            )
        self.inputs: int = sizes[0]
        self.outputs: int = sizes[1]
        self.classifies = loss == "cross_entropy"

    def support(self, body: dict[str, Any], limits: Limits) -> tuple[list[Task], dict[str, Any]]:
        return self._tasks(body, limits, ("x", "y")), {}

    def queries(self, body: dict[str, Any], limits: Limits) -> tuple[list[Task], Any]:
        if body.get("interval") is not None:
            raise CaviaError("this model has no intervals: models by `cavia fit` have")
        return self._tasks(body, limits, ("x",)), None

    def answer(self, asked: Any, tasks: Sequence[Task], outputs: Sequence[Tensor], contexts: Tensor) -> dict[str, Any]:
        return {"tasks": {task.id: self._predicted(output) for task, output in zip(tasks, outputs, strict=True)}}

    def about(self) -> dict[str, Any]:
        return {"takes": "tasks", "inputs": self.inputs, "classes" if self.classifies else "outputs": self.outputs}

    def _predicted(self, outputs: Tensor) -> dict[str, Any]:
        if not self.classifies:
            return {"prediction": outputs.tolist()}
        return {"prediction": outputs.argmax(1).tolist(), "probabilities": outputs.double().softmax(1).tolist()}

    def _tasks(self, body: dict[str, Any], limits: Limits, names: Sequence[str]) -> list[Task]:
        if "rows" in body:
            raise CaviaError('this model was not trained on a table: send "tasks", not "rows"')
        tasks = body.get("tasks")
        if not isinstance(tasks, dict) or not tasks:
            raise CaviaError(f'"tasks" must be an object id → points with at least 1 task, got {shown(tasks)}')
        limits.check("tasks", len(tasks))
        read = [self._task(checked_id(name), points, names) for name, points in tasks.items()]
        limits.check("points", sum(len(task.x) for task in read))
        return read

    def _task(self, id: str, points: Any, names: Sequence[str]) -> Task:
        where = f"task {shown(id)}"
        if not isinstance(points, dict) or not {*names} <= points.keys():
            wanted = " and ".join(f'"{name}"' for name in names)
            raise CaviaError(f"{where} must be an object with {wanted}, got {shown(points)}")
        if unknown := points.keys() - {"x", "y"}:
            raise CaviaError(f"{where} has an unknown {shown(min(unknown))}; points are x and y")
        x = _numbers(where, "x", points["x"], self.inputs)
        if "y" not in names:
            return Task(id, x)
        y = self._labels(where, points["y"]) if self.classifies else _numbers(where, "y", points["y"], self.outputs)
        if len(x) != len(y):
            raise CaviaError(f"{where} has {len(x)} points x but {len(y)} targets y")
        return Task(id, x, y)

    def _labels(self, where: str, values: Any) -> np.ndarray:
        """[n] whole numbers, each a class."""
        array = _array(values)
        if array is None or array.ndim != 1 or array.dtype.kind != "i":
            raise CaviaError(f"{where}: y must be a list of classes, whole numbers from 0 to {self.outputs - 1}")
        wrong = np.flatnonzero((array < 0) | (array >= self.outputs))
        if len(wrong):
            point = int(wrong[0])
            raise CaviaError(f"{where}, point {point}: y must be from 0 to {self.outputs - 1}, got {array[point]}")
        return array.astype(np.int64)


def _numbers(where: str, name: str, values: Any, width: int) -> np.ndarray:
    """[n, width] in single precision, all finite, at least one point."""
    array = _array(values)
    if array is None or array.ndim != 2 or array.shape[1] != width:
        got = f"shape {list(array.shape)}" if array is not None else shown(values)
        raise CaviaError(
            f"{where}: {name} must be a list of points, each a list of numbers, {width} of them; got {got}"
        )
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    if not np.isfinite(numbers).all():
        point = int((~np.isfinite(numbers)).any(1).argmax())
        bad = array[point][~np.isfinite(numbers[point])][0]
        raise CaviaError(f"{where}, point {point}: {name} must be finite and within ±3.4e38, got {bad:g}")
    return numbers


def _array(values: Any) -> np.ndarray | None:
    """A list of numbers, or of lists of them, with at least one entry; None if it is something else."""
    try:
        array = np.array(values) if isinstance(values, list) else None
    except (ValueError, OverflowError):  # lists of different lengths
        return None
    return array if array is not None and array.size and array.dtype.kind in "if" else None
