"""The tasks of many requests as few calls of the learner, of few sizes, so that each can be a compiled graph."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.learners.compiled import CompiledLearner
from cavia.learners.door import own_tensor
from cavia.serving.points import Task

TASKS = (1, 8, 64)  # in one call; fewer are padded
LEAST_POINTS = 4  # of a task in a call; then 16, 64, 256, …
MOST_POINTS = 4096  # in one call, padding included, unless one task alone has more
COMPILED_AT_ONCE = [(tasks, points) for points in (16, 4, 64) for tasks in (64, 8, 1)]
NICENESS = 10  # of the thread that compiles


class Calls:
    """`adapt` and `predict` for any number of tasks of any sizes, in one thread at a time.

    A call whose size has no graph yet is computed by the learner as it is, while another thread compiles one.
    """

    def __init__(self, learner: Learner, inputs: int, compiles: bool = True):
        self.learner, self.inputs = learner, inputs
        own = own_tensor(learner)
        self.dtype = torch.float32 if own is None else own.dtype
        self.start = self._start()
        self.goes_on = self._goes_on()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.compiled = CompiledLearner(learner)
        self.ready: set[tuple[str, int, int]] = set()
        self.asked: set[tuple[str, int, int]] = set()
        self.compiles = compiles and not self.compiled.is_plain
        self.compiler = ThreadPoolExecutor(1, "cavia-compile", initializer=_be_nice)
        self.count = {"adapt": 0, "predict": 0}

    def _start(self) -> Tensor:
        """Where every task begins, [C]; an error if more than a context adapts."""
        learner, model = self.learner, self.learner.model
        if getattr(model, "mixes_points", False):
            raise CaviaError(f"cannot serve {type(model).__name__}: its batch norm would see padded points")
        begun = learner.adapt(*self._points(1, 1), steps=0)
        if begun.names != (CONTEXT,) or begun.statistics is not None:
            raise CaviaError(
                f"cannot serve {type(learner).__name__}: a store holds contexts alone, and its tasks are "
                f"{', '.join(begun.names[:3])}; serve CAVIA, or another learner that adapts a context"
            )
        return begun.context[0]

    def _goes_on(self) -> bool:
        """Whether it matters where adaptation starts; not for learners that read all points at once."""
        starts = (Adapted({CONTEXT: self.start[None] + shift}) for shift in (0.0, 0.1))
        one, other = (self.learner.adapt(*self._points(1, 1), start=start).context for start in starts)
        return not torch.equal(one, other)

    def _points(self, tasks: int, points: int) -> tuple[Tensor, Tensor]:
        """Points x and y of the learner's shapes, all zero."""
        x = torch.zeros(tasks, points, self.inputs, dtype=self.dtype)
        if self.learner.loss == "cross_entropy":
            return x, torch.zeros(tasks, points, dtype=torch.long)
        return x, torch.zeros(tasks, points, int(self.learner.model.outputs), dtype=self.dtype)  # type: ignore[arg-type]

    def warm(self) -> None:
        """Compile the calls that a service sees first."""
        for tasks, points in COMPILED_AT_ONCE:
            for what in self.count:
                self._ask((what, tasks, points))

    @property
    def is_compiling(self) -> bool:
        """Whether some calls that were asked for have no graph yet."""
        return self.compiles and not self.compiled.is_plain and self.asked > self.ready

    def adapt(self, tasks: Sequence[Task], starts: Tensor) -> Tensor:
        """Contexts [T, C] of the tasks, from starts [T, C]."""
        contexts = torch.empty_like(starts)
        for chosen in _together([len(task.x) for task in tasks]):
            size, longest = _size([len(tasks[i].x) for i in chosen])
            x, mask = self._padded([tasks[i].x for i in chosen], size, longest)
            y, _ = self._padded([_required(tasks[i].y) for i in chosen], size, longest)
            begin = self.start.repeat(size, 1)
            begin[: len(chosen)] = starts[chosen]
            adapted = self._call("adapt", x, y, mask, begin)
            contexts[chosen] = adapted.context[: len(chosen)]
        return contexts

    def predict(self, tasks: Sequence[Task], contexts: Tensor) -> list[Tensor]:
        """What the network says of each task's points, [n, outputs], by contexts [T, C]."""
        outputs: list[Any] = [None] * len(tasks)
        for chosen in _together([len(task.x) for task in tasks]):
            size, longest = _size([len(tasks[i].x) for i in chosen])
            x, _ = self._padded([tasks[i].x for i in chosen], size, longest)
            own = self.start.repeat(size, 1)
            own[: len(chosen)] = contexts[chosen]
            predictions = self._call("predict", x, own)
            for place, i in enumerate(chosen):
                outputs[i] = predictions[place, : len(tasks[i].x)]
        return outputs

    def close(self) -> None:
        self.compiler.shutdown(wait=True, cancel_futures=True)

    def _call(self, what: str, x: Tensor, *rest: Tensor) -> Any:
        self.count[what] += 1
        key = (what, x.shape[0], x.shape[1])
        if self.compiles and key not in self.ready:
            self._ask(key)
        return self._function(what, self.compiled if key in self.ready else self.learner)(x, *rest)

    def _function(self, what: str, learner: Learner) -> Callable[..., Any]:
        if what == "predict":
            return lambda x, context: learner.predict(x, Adapted.of({CONTEXT: context}))
        if not self.goes_on:
            return lambda x, y, mask, start: learner.adapt(x, y, mask)
        return lambda x, y, mask, start: learner.adapt(x, y, mask, start=Adapted.of({CONTEXT: start}))

    def _ask(self, key: tuple[str, int, int]) -> None:
        """Schedule the call for compilation."""
        if self.compiles and key not in self.asked:
            self.asked.add(key)
            self.compiler.submit(self._compile, key)

    def _compile(self, key: tuple[str, int, int]) -> None:
        what, tasks, points = key
        x, y = self._points(tasks, points)
        start = self.start.repeat(tasks, 1)
        mask = torch.ones(tasks, points, dtype=torch.bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._function(what, self.compiled)(*((x, start) if what == "predict" else (x, y, mask, start)))
        if not self.compiled.is_plain:
            self.ready.add(key)

    def _padded(self, arrays: Sequence[np.ndarray], tasks: int, points: int) -> tuple[Tensor, Tensor]:
        """Arrays [n, ...] as one tensor [tasks, points, ...], and a mask [tasks, points] of what is no padding."""
        padded = np.zeros((tasks, points, *arrays[0].shape[1:]), dtype=arrays[0].dtype)
        mask = np.zeros((tasks, points), dtype=bool)
        for place, array in enumerate(arrays):
            padded[place, : len(array)] = array
            mask[place, : len(array)] = True
        mask[len(arrays) :, 0] = True  # a task of padding has a point, too
        tensor = torch.from_numpy(padded)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor, torch.from_numpy(mask)


def _together(sizes: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of the tasks of each call: those of about the same size, the largest first."""
    by_size = sorted(range(len(sizes)), key=lambda task: -sizes[task])
    while by_size:
        points = _rounded(sizes[by_size[0]])
        count = max(tasks for tasks in TASKS if tasks == 1 or tasks * points <= MOST_POINTS)
        yield by_size[:count]
        by_size = by_size[count:]


def _size(sizes: Sequence[int]) -> tuple[int, int]:
    """How many tasks and points a call has, padding included."""
    return next(tasks for tasks in TASKS if tasks >= len(sizes)), _rounded(max(sizes))


def _rounded(count: int) -> int:
    points = LEAST_POINTS
    while points < count:
        points *= 4
    return points


def _required(y: np.ndarray | None) -> np.ndarray:
    assert y is not None  # who adapts has targets
    return y


def _be_nice() -> None:
    """Give requests priority, where the system has thread priorities."""
    if hasattr(os, "setpriority"):
        own = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, max(NICENESS, os.getpriority(os.PRIO_PROCESS, own)))
