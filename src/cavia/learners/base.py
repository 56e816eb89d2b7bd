"""What every method offers: adapt, predict, and the loss that the outer loop trains on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, overload

import torch
from torch import Tensor, nn

from cavia.building import Built
from cavia.errors import CaviaError, require_at_least, require_steps
from cavia.kinds import checked
from cavia.learners.adapted import Adapted, require_adapted
from cavia.learners.door import answering, fitting, fitting_adapted, refuse_types
from cavia.learners.each import each_adapted
from cavia.learners.losses import PointLoss, find_loss, mean_over_points, refuse_arrays, require_losses
from cavia.models.base import ContextModel, NormedModel
from cavia.models.substitute import lock_of
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import Array, Inputs, as_points, as_tensor, lead, shape, without_padding


class Learner(Built, nn.Module, ABC):
    """A method of fast adaptation around a model.

    Its `parameters()` are exactly what the outer loop trains. A task's own state is never kept on the learner:
    `adapt` returns it and `predict` takes it. Every constructor argument is an attribute of the same name.
    """

    parts = ("model", "loss")
    inner_steps: int
    draws = False  # True if `forward` draws random numbers in training, from PyTorch's own generator

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "respond" in vars(cls):
            cls.respond = answering(cls.respond)  # type: ignore[method-assign]

    def __init__(self, model: ContextModel, loss: str | PointLoss):
        super().__init__()
        self.model = model
        self.loss = loss
        self.point_loss = find_loss(loss)

    @property
    def keeps_statistics(self) -> bool:
        """True if adaptation keeps the statistics of the support points, for the norms of the model."""
        return isinstance(self.model, NormedModel) and self.model.keeps_statistics

    @property
    def version(self) -> str:
        """Identifies the learner's present state: saving and loading keep it, further training changes it.

        A context adapted under one version means nothing to another; `cavia.ContextStore` keeps them apart.
        """
        from cavia.learners.saving import version

        return version(self)

    @abstractmethod
    def infer(self, x: Any, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        """`adapt` as a differentiable function of the learner's parameters."""

    @abstractmethod
    def respond(self, x: Any, adapted: Adapted) -> Tensor:
        """`predict` as a differentiable function of the learner's parameters and of what adapted."""

    def predict(self, x: Array | Mapping[str, Array], adapted: Adapted) -> Tensor:
        """Predictions for x [T, N, ...] by the T adapted tasks → [T, N, ...], without a gradient; `respond` has one.

        x may be all that `adapt` takes.
        """
        with torch.no_grad():
            return self.respond(x, adapted)

    @overload
    def adapt(
        self,
        x: Array | Mapping[str, Array],
        y: Array,
        mask: Array | None = None,
        steps: int | None = None,
        start: Adapted | None = None,
    ) -> Adapted: ...
    @overload
    def adapt(self, x: Iterator[Any], *, steps: int | None = None) -> Iterator[Adapted]: ...
    def adapt(
        self,
        x: Array | Mapping[str, Array] | Iterator[Any],
        y: Array | None = None,
        mask: Array | None = None,
        steps: int | None = None,
        start: Adapted | None = None,
    ) -> Adapted | Iterator[Adapted]:
        """Adapt to T tasks at once; the learner itself does not change.

        x, y:  support points [T, K, ...] and their targets: tensors on the learner's device, arrays or lists. Other
               floating types become the learner's own. x may be a dictionary of tensors, for networks with several.
        mask:  [T, K] bool, False where a point is padding.
        steps: gradient steps, by default as many as in training; 0 gives the start.
        start: what `adapt` returned for the same T tasks, to continue from; by default the learner's own start.
        Returns the adapted tasks, to be given to `predict`.

        Given an iterator of batches, each (x, y) or (x, y, mask), it returns an iterator of adapted batches, one batch
        in memory at a time: `for adapted in learner.adapt(batches): …`

        Tasks never mix. A task whose points are not finite, or too large to square, ends as NaN or infinite numbers,
        and so do its predictions; other tasks are not affected. `adapted.finite` [T] says which are fine.
        """
        if isinstance(x, Iterator):
            return each_adapted(self, x, y, mask, steps, start)
        x, y, mask = as_points(x, y, mask)
        steps = require_steps("steps", self.inner_steps if steps is None else steps)
        with torch.no_grad():
            if start is not None:
                require_adapted(start)
                start = fitting_adapted(self, start)
            adapted = self._infer(x, y, mask, steps, start)
            return adapted if steps else adapted.map(Tensor.clone)  # what no step has moved is a view of the weights

    @checked
    def interpolate(self, one: Adapted, other: Adapted, n: int) -> Adapted:
        """`n` tasks on the straight line from one task to another, both included.

        >>> learner = CAVIA(MLP(inputs=1, outputs=1, context=2), loss="mse")
        >>> low, high = (Adapted({"context": torch.full((1, 2), value)}) for value in (0.0, 1.0))
        >>> learner.interpolate(low, high, 3).context.tolist()
        [[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]
        """
        require_at_least("n", n, 2)
        for end in (one, other):
            if len(end) != 1:
                raise CaviaError(f"interpolate goes from one task to one other, got {len(end)} tasks; take adapted[0]")
        return one.lerp(other, torch.arange(n, dtype=torch.float64) / (n - 1))

    @checked
    def task_losses(self, batch: TaskBatch) -> Tensor:
        """Each task's query loss after adaptation, [T], differentiable through the inner steps."""
        self.check_query(batch)
        adapted = self._infer(batch.support_x, batch.support_y, batch.support_mask, self.inner_steps, None)
        return self.query_losses(batch, adapted)

    def query_losses(self, batch: TaskBatch, adapted: Adapted) -> Tensor:
        """The query loss [T] of tasks that adapted, differentiable by what adapted."""
        prediction = self.respond(without_padding(batch.query_x, batch.query_mask), adapted)
        return self.mean_loss(prediction, batch.query_y, batch.query_mask)

    @checked
    def forward(self, batch: TaskBatch) -> Tensor:
        """What the outer loop minimises, per task [T]; Eq. (6) takes the gradient of its mean."""
        return self.task_losses(batch)

    @checked
    def mean_loss(self, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """A task's loss, the mean over its points: prediction and target [T, N, ...] → [T]."""
        if prediction.dtype == torch.bfloat16 and torch.is_autocast_enabled(prediction.device.type):
            prediction = prediction.float()  # only products are rounded: a logarithm or sum would lose more
        as_tensor("prediction", prediction)
        as_tensor("target", target)
        if not prediction.is_floating_point():
            raise CaviaError(f"prediction must be floating-point, got {prediction.dtype} {shape(prediction)}")
        if prediction.device != target.device:
            raise CaviaError(f"prediction is on {prediction.device}, target on {target.device}; use target.to(…)")
        if prediction.ndim < 2 or prediction.shape[:2] != target.shape[:2]:
            raise CaviaError(
                f"prediction and target need the same two leading axes [tasks, points, ...], "
                f"got {shape(prediction)} and {shape(target)}"
            )
        if mask is not None and (mask.dtype != torch.bool or mask.shape != target.shape[:2]):
            raise CaviaError(f"mask must be bool {list(target.shape[:2])}, got {mask.dtype} {shape(mask)}")
        try:
            values = self.point_loss(prediction, without_padding(target, mask))
        except RuntimeError as error:
            refuse_arrays(error)
            raise
        require_losses(values, prediction, target)
        return mean_over_points(values, mask)

    def _infer(self, x: Inputs, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        """`infer` on points that fit the learner, with nothing in their padding."""
        x = fitting(self, x)
        self.check_mask(mask)
        try:
            return self.infer(without_padding(x, mask), y, mask, steps, start)
        except RuntimeError as error:
            refuse_types(self, error)
            raise

    def statistics_in(self, adapted: Adapted) -> Tensor | None:
        """The support points' statistics, if the model needs them."""
        if not self.keeps_statistics:
            return None
        if adapted.statistics is None:
            raise CaviaError("the statistics of the support points are missing; predict needs what `adapt` returned")
        return adapted.statistics

    def check_context(self, x: Inputs, adapted: Adapted) -> Tensor:
        """The context [T, C] that adapted, if it fits the T tasks of x [T, N, ...]."""
        context, tasks = adapted.context, lead(x).shape[0]
        if context.shape != (tasks, self.model.context):
            raise CaviaError(
                f"the context must be {[tasks, self.model.context]} for the {tasks} tasks of x {shape(x)}, "
                f"got {shape(context)}"
            )
        return context

    def check_mask(self, mask: Tensor | None) -> None:
        """Raise if points are padded, mask [T, N], and the model cannot leave them out."""
        if mask is not None and getattr(self.model, "mixes_points", False):
            raise CaviaError(
                f"{type(self.model).__name__} has batch norm, whose statistics padded points would change; give every "
                "task the same number of points and no mask"
            )

    def check_query(self, batch: TaskBatch) -> None:
        """Raise if the batch has no query points, or padded ones that the model cannot leave out."""
        self.check_mask(batch.query_mask)
        if not lead(batch.query_x).shape[1]:
            raise CaviaError(f"a loss needs at least 1 query point, got query_x {shape(batch.query_x)}")

    def check_targets(self, y: Tensor) -> None:
        """Raise if y [T, K, ...] has values that the learner cannot use; a graph cannot inspect them."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As in nn.Module, but never while another thread has a task's weights in the model."""
        with lock_of(self.model):
            return super().state_dict(*args, **kwargs)

    @checked
    def save(self, path: str | PathLike[str], backbone: bool = False) -> None:
        """Write the learner to one file, for `cavia.load`.

        backbone: include the weights that `cavia.condition(…, freeze=True)` froze. By default the file has only
                  fingerprints of them, and `cavia.load(path, module=…)` needs a module that has them.
        """
        from cavia.learners.saving import save

        save(self, path, backbone=backbone)

    @checked
    def export(
        self,
        path: str | PathLike[str],
        example: TaskBatch | None = None,
        steps: int | None = None,
        mask: bool = False,
    ) -> None:
        """Write adaptation and prediction, in evaluation mode, to one ONNX graph; it needs the extra `onnx`.

        Inputs:  support_x [T, K, ...], support_y [T, K, ...] and query_x [T, N, ...]; T, K and N are free, from 1 on.
        Outputs: prediction [T, N, ...] and, if a context adapts, context [T, C].

        example: any number of tasks, for the shapes and types of their points; not needed for an MLP or a ConvNet with
                 a built-in loss.
        steps:   inner steps, by default as many as in training; they are part of the graph.
        mask:    one more input, support_mask [T, K] bool, False where a point is padding.

        Before it is written, onnxruntime runs the graph, and its numbers are compared with the learner's.
        """
        from cavia.learners.exporting import export

        export(self, path, example, steps, mask)
