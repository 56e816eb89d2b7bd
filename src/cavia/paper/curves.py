"""One-dimensional functions and their fits: the content of figures of kind "curves"."""

from typing import Any

import torch

from cavia.learners.base import Learner
from cavia.tasks.batch import TaskBatch


def fitted_curves(learner: Learner, batch: TaskBatch, steps: int) -> list[dict[str, Any]]:
    """Each task's truth, known points and predictions before and after `steps` steps, as JSON values.

    batch: x and y are [T, N, 1].
    """
    before, after = (
        learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y, steps=number))
        for number in (0, steps)
    )
    values = {"x": batch.query_x, "truth": batch.query_y, "before": before, "after": after}
    return [
        {name: [round(v, 4) for v in value[i, :, 0].tolist()] for name, value in values.items()}
        | {"known": torch.cat([batch.support_x[i], batch.support_y[i]], -1).tolist()}
        for i in range(len(batch))
    ]
