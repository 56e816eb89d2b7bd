"""Points to trace a learner with: from an example, or from its network's own description."""

from typing import NamedTuple

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.base import Learner
from cavia.learners.door import fitting, own_tensor
from cavia.models.convnet import ConvNet
from cavia.models.mlp import MLP
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import one_tensor

OF_LABELS = ("cross_entropy", "score_mse")  # losses whose targets are labels


class Points(NamedTuple):
    """What a learner adapts to and predicts: [T, K, ...], [T, K, ...], [T, N, ...], [T, K]."""

    support_x: Tensor
    support_y: Tensor
    query_x: Tensor
    support_mask: Tensor | None = None

    def present(self) -> dict[str, Tensor]:
        """By name; the mask only if there is one."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def resized(self, tasks: int, support: int, query: int) -> "Points":
        """This many tasks and points: the first ones, repeated."""

        def repeated(value: Tensor, points: int) -> Tensor:
            rows, columns = (torch.arange(n) % size for n, size in zip((tasks, points), value.shape, strict=False))
            return value[rows][:, columns].contiguous()

        mask = None if self.support_mask is None else repeated(self.support_mask, support)
        if mask is not None:
            mask[1::2, 1::2] = False  # some padding
        return Points(
            repeated(self.support_x, support), repeated(self.support_y, support), repeated(self.query_x, query), mask
        )


def example_points(learner: Learner, example: TaskBatch | None, mask: bool) -> Points:
    """Points of the shapes and types that the learner takes, on the CPU."""
    if example is None:
        x, y, query = _made_up(learner)
    else:
        x, query = (one_tensor(fitting(learner, one), "export") for one in (example.support_x, example.query_x))
        y = example.support_y
        if not x.shape[1] or not query.shape[1]:
            raise CaviaError("example must have at least 1 support point and 1 query point")
    x, y, query = (value.detach().cpu() for value in (x, y, query))
    return Points(x, y, query, torch.ones(x.shape[:2], dtype=torch.bool) if mask else None)


def _made_up(learner: Learner) -> tuple[Tensor, Tensor, Tensor]:
    """Random points for a network that says what it takes, with targets that its loss takes."""
    model, own = learner.model, own_tensor(learner)
    is_known = type(model) in (MLP, ConvNet) and learner.loss in ("mse", *OF_LABELS)
    if not is_known or own is None:
        raise CaviaError(
            f"{type(learner).__name__} on {type(model).__name__} does not say what points it takes; give "
            "example=cavia.TaskBatch(support_x, support_y, query_x, query_y)"
        )
    shape = (model.inputs,) if isinstance(model, MLP) else (model.channels, model.image, model.image)
    generator = torch.Generator().manual_seed(0)
    x, query = (torch.randn(4, n, *shape, generator=generator, dtype=own.dtype) for n in (6, 7))
    if learner.loss in OF_LABELS:
        classes = getattr(learner, "ways", None) or _outputs(model)
        return x, torch.arange(6).expand(4, 6) % classes, query
    outputs = getattr(learner, "outputs", None) or _outputs(model)
    return x, torch.randn(4, 6, outputs, generator=generator, dtype=own.dtype), query


def _outputs(model: object) -> int:
    return model.outputs if isinstance(model, MLP) else model.ways  # type: ignore[attr-defined]
