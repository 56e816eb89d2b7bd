"""A learner at test time whose adaptation and prediction are compiled graphs."""

import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from operator import is_
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from cavia.compiler.obstacles import obstacle
from cavia.errors import require_steps
from cavia.kinds import checked
from cavia.learners.adapted import Adapted, Layout, require_adapted
from cavia.learners.base import Learner
from cavia.learners.door import fitting
from cavia.learners.each import each_adapted
from cavia.learners.graphs import MOST_GRAPHS, Function, Graphs, Plan
from cavia.learners.padding import fillers, first_points, rounded
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import Array, Inputs, as_inputs, as_points

MOST_TASKS = 128  # in one call of a graph on a processor; larger calls are no faster
MOST_STEPS = 10  # in one graph; more are taken one by one


@checked
def compiled(learner: Learner) -> Learner:
    """The learner for test time: `adapt` and `predict` as compiled graphs, many times faster for few tasks.

    It takes the same calls and returns the same up to rounding. The first call with a new kind of inputs compiles a
    graph, which takes seconds. Numbers of tasks and points are rounded up to the next of 1, 2, 4, 8, 12, 16, 24, 32,
    48, … and the rest is padding, so a service sees few kinds; call it once with the numbers that you expect before it
    is in use. Networks with batch norm have a graph for each number of points.

    The learner itself does not change, and may be trained further: graphs read its weights at every call and follow
    `train()` and `eval()`. Other attributes, such as rates, are those of the first call. Several threads may share it.
    If the network cannot be compiled, or is faster uncompiled, a warning says why, and the learner's own calls run.

    >>> learner = CAVIA(MLP(inputs=1, outputs=1, context=5), loss="mse")
    >>> service = compiled(learner)
    >>> adapted = service.adapt(torch.rand(1, 10, 1), torch.rand(1, 10, 1))
    >>> service.predict(torch.rand(1, 7, 1), adapted).shape
    torch.Size([1, 7, 1])
    """
    return CompiledLearner(learner.learner if isinstance(learner, CompiledLearner) else learner)


class CompiledLearner(Learner):
    """What `cavia.compiled` returns: the same learner, run as compiled graphs."""

    learner: Learner

    def __init__(self, learner: Learner):
        nn.Module.__init__(self)
        self.learner = learner
        self.graphs = Graphs(learner)
        self.pads_points = not getattr(learner.model, "mixes_points", False)
        self.is_plain = self.has_warned = False
        if why := obstacle(learner, learner.loss):
            self._stay_plain(why)

    def adapt(
        self,
        x: Array | Mapping[str, Array] | Iterator[Any],
        y: Array | None = None,
        mask: Array | None = None,
        steps: int | None = None,
        start: Adapted | None = None,
    ) -> Any:
        """As the learner's own."""
        if y is None and isinstance(x, Iterator):
            return each_adapted(self, x, y, mask, steps, start)
        learner: Any = self._modules["learner"]  # as an attribute it would take longer
        if self.is_plain:
            return learner.adapt(x, y, mask, steps, start)
        if steps is None:
            steps = learner.inner_steps
        elif type(steps) is not int:
            steps = require_steps("steps", steps)
        given, layout = _flat(start)
        values: Any = (x, y, *given) if mask is None else (x, y, mask, *given)
        key = self.graphs.key(("adapt", steps, layout), values)
        if key in self.graphs.plans:
            learner.check_targets(y)  # a graph cannot look at values
            outputs = self.graphs.run(key, values)
            if outputs is not None:
                return _first(outputs, x.shape[0])  # type: ignore[union-attr]  # known kinds are tensors
        return self._adapt_anew(key, x, y, mask, steps, start)

    def predict(self, x: Array | Mapping[str, Array], adapted: Adapted) -> Tensor:
        """As the learner's own."""
        if self.is_plain:
            return self.learner.predict(x, adapted)
        require_adapted(adapted)
        given, layout = _flat(adapted)
        values: Any = (x, *given)
        key = self.graphs.key(("predict", layout), values)
        if key is None:
            inputs = as_inputs("x", x)
            if inputs is not x and isinstance(inputs, Tensor):
                return self.predict(fitting(self.learner, inputs), adapted)
            with self.graphs.as_it_is() as plain:
                return plain.predict(inputs, adapted)
        outputs = self.graphs.run(key, values)
        if outputs is None:
            return self._predict_anew(key, values[0], adapted)
        return _unpadded(outputs[0][0], x)  # type: ignore[arg-type]  # known kinds are tensors

    def _adapt_anew(
        self, key: Hashable | None, x: Any, y: Any, mask: Any, steps: int, start: Adapted | None
    ) -> Adapted:
        """`adapt` to points of new shapes: the learner's own checks come first."""
        learner, before = self.learner, (x, y, mask)
        x, y, mask = as_points(x, y, mask)
        x = fitting(learner, x)
        if isinstance(x, Tensor) and not all(map(is_, (x, y, mask), before)):  # converted
            return self.adapt(x, y, mask, steps, start)
        steps = require_steps("steps", steps)
        if key is None or not steps or not x.numel() or (mask is not None and not self.pads_points):
            with self.graphs.as_it_is() as plain:
                return plain.adapt(x, y, mask, steps, start)
        if _too_many(x, start):
            parts = [
                self.adapt(x[rows], y[rows], _rows(mask, rows), steps, _rows(start, rows)) for rows in _parts(len(x))
            ]
            return Adapted.cat(parts)
        if steps > 1 and (steps != learner.inner_steps or steps > MOST_STEPS):
            for _ in range(steps):
                start = self.adapt(x, y, mask, 1, start)
            assert start is not None  # there was a step
            return start
        with self.graphs.as_it_is() as plain:
            result = plain.adapt(x, y, mask, steps, start)  # if something is wrong, this says so
        tasks, points = rounded(len(x)), rounded(x.shape[1]) if self.pads_points else None
        own = (x, y) if mask is None else (x, y, mask)
        given, layout = _flat(start)
        padding = [fillers(value, tasks, points) for value in own] + [fillers(value, tasks) for value in given]
        full = first_points(tasks, points, x.shape[1], x.device) if points and mask is None else None
        function = _adaptation(self.pads_points, steps, layout)
        outputs = self._compiled(key, ("adapt", steps, layout), function, (*own, *given), Plan(padding, full))
        return result if outputs is None else _first(outputs, len(x))

    def _predict_anew(self, key: Hashable, x: Tensor, adapted: Adapted) -> Tensor:
        """`predict` for points of new shapes."""
        fits: Any = fitting(self.learner, as_inputs("x", x))
        if fits is not x:
            return self.predict(fits, adapted)
        if _too_many(x, adapted):
            return torch.cat([self.predict(x[rows], adapted[rows]) for rows in _parts(len(x))])
        with self.graphs.as_it_is() as plain:
            result = plain.predict(x, adapted)  # if something is wrong, this says so
        if not x.numel():
            return result
        tasks, points = rounded(len(x)), rounded(x.shape[1]) if self.pads_points else None
        given, layout = _flat(adapted)
        padding = [fillers(x, tasks, points), *(fillers(value, tasks) for value in given)]
        outputs = self._compiled(key, ("predict", layout), _prediction(layout), (x, *given), Plan(padding, mask=None))
        return result if outputs is None else _unpadded(outputs[0][0], x)

    def _compiled(
        self, key: Hashable, what: Hashable, function: Function, values: Sequence[Tensor], plan: Plan
    ) -> tuple[Sequence[Tensor], Any] | None:
        """What the function's graph returns, compiled if there is none yet; None if it cannot be."""
        try:
            if not self.graphs.add(key, what, function, values, plan):
                self._warn(f"it has {MOST_GRAPHS} graphs already; for other numbers of points it runs uncompiled")
        except Exception as error:
            self._stay_plain((str(error).strip() or type(error).__name__).splitlines()[0])
        return self.graphs.run(key, values)

    def _stay_plain(self, why: str) -> None:
        self.is_plain = True
        self._warn(f"it runs uncompiled: {why}")

    def _warn(self, what: str) -> None:
        """Once."""
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(f"cavia.compiled({type(self.learner).__name__}): {what}", stacklevel=5)

    # What is not for test time, and whatever else a learner has, is the learner's own.

    def infer(self, x: Inputs, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        return self.learner.infer(x, y, mask, steps, start)

    def respond(self, x: Inputs, adapted: Adapted) -> Tensor:
        return self.learner.respond(x, adapted)

    def task_losses(self, batch: TaskBatch) -> Tensor:
        return self.learner.task_losses(batch)

    def forward(self, batch: TaskBatch) -> Tensor:
        return self.learner(batch)

    def save(self, path: str | PathLike[str], backbone: bool = False) -> None:
        self.learner.save(path, backbone)

    def export(self, path: str | PathLike[str], *args: Any, **options: Any) -> None:
        self.learner.export(path, *args, **options)

    def train(self, mode: bool = True) -> "CompiledLearner":
        self.learner.train(mode)
        return self

    @property
    def training(self) -> bool:
        return self.learner.training

    @training.setter
    def training(self, mode: bool) -> None:
        """The constructor of nn.Module sets it; `train` is what changes it."""

    @property
    def arguments(self) -> dict[str, Any]:
        return self.learner.arguments

    @property
    def version(self) -> str:
        return self.learner.version

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "learner" else getattr(self.learner, name)


def _adaptation(masked: bool, steps: int, layout: Layout | None) -> Function:
    """`adapt` as a function of x, y, the mask, if there is one, and the tensors of the start, if there is one."""

    def function(learner: Learner, inputs: Sequence[Tensor]) -> tuple[list[Tensor], Layout]:
        x, y, *rest = inputs
        mask = rest.pop(0) if masked else None
        start = None if layout is None else Adapted.unflatten(rest, layout)
        return learner._infer(x, y, mask, steps, start).flatten()

    return function


def _prediction(layout: Layout | None) -> Function:
    """`predict` as a function of x and the tensors of what adapted."""

    def function(learner: Learner, inputs: Sequence[Tensor]) -> tuple[list[Tensor], None]:
        x, *tensors = inputs
        assert layout is not None
        return [learner.respond(x, Adapted.unflatten(tensors, layout))], None

    return function


def _flat(adapted: Adapted | None) -> tuple[list[Tensor], Layout | None]:
    """The tensors of what adapted and their layout; of None, none."""
    if adapted is None:
        return [], None
    require_adapted(adapted)
    return adapted.flatten()


def _too_many(x: Tensor, adapted: Adapted | None) -> bool:
    """Whether the tasks are taken in parts; not if x and adapted disagree on how many they are, which is an error."""
    many = len(x) > MOST_TASKS and x.device.type == "cpu"
    return many and (adapted is None or len(adapted) == len(x))


def _parts(tasks: int) -> list[slice]:
    return [slice(start, start + MOST_TASKS) for start in range(0, tasks, MOST_TASKS)]


def _rows(tasks: Any, rows: slice) -> Any:
    """Some of the tasks of a tensor or of what adapted; None of None."""
    return None if tasks is None else tasks[rows]


def _first(outputs: tuple[Sequence[Tensor], Layout], tasks: int) -> Adapted:
    """Without the tasks that were padding."""
    tensors, layout = outputs
    return Adapted.unflatten([value if value.shape[0] == tasks else value[:tasks] for value in tensors], layout)


def _unpadded(prediction: Tensor, x: Tensor) -> Tensor:
    """Without the tasks and points that were padding: as many as x [T, N, ...] has."""
    tasks, points = x.shape[:2]
    if prediction.shape[1] != points:
        prediction = prediction[:, :points]
    if prediction.shape[0] != tasks:
        prediction = prediction[:tasks]
    return prediction.contiguous()
