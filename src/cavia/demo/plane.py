"""The second panel: the tasks as points of a plane, and the function at any point of it."""

from collections.abc import Sequence
from typing import Any

import torch

from cavia.demo.curves import X, Y, grid
from cavia.demo.models import Shown
from cavia.demo.numbers import as_json
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.tasks.batch import seeded_generator
from cavia.tasks.sine import Sine

TASKS, POINTS = 1000, 10
FARTHEST = 100.0  # of a context parameter
ROOM = 0.08  # around the tasks, in parts of their range


class Plane:
    """A model with two context parameters, and a thousand tasks that it adapted to."""

    def __init__(self, model: Shown):
        self.model = model
        self.batch = Sine().sample(TASKS, POINTS, grid().shape[1], seeded_generator(0, "plane"), "test")
        self.contexts = model.learner.adapt(self.batch.support_x, self.batch.support_y).context.detach()  # [TASKS, 2]

    def describe(self) -> dict[str, Any]:
        assert self.batch.attributes is not None
        low, high = self.contexts.min(0).values, self.contexts.max(0).values
        room = ROOM * (high - low)
        return {
            "models": [self.model.describe()],
            "contexts": as_json(self.contexts),
            "amplitude": self.batch.attributes["amplitude"].tolist(),
            "phase": self.batch.attributes["phase"].tolist(),
            "range": torch.stack([low - room, high + room], 1).tolist(),
            "grid": grid().flatten().tolist(),
            "x": X,
            "y": Y,
        }

    @torch.no_grad()
    def at(self, context: Sequence[float]) -> dict[str, Any]:
        """The function at a point of the plane, and the nearest task with its true curve."""
        assert self.batch.attributes is not None
        place = torch.tensor([list(context)], dtype=torch.float32)  # [1, 2]
        curve = self.model.learner.predict(grid(), Adapted({CONTEXT: place}))
        nearest = int(torch.linalg.vector_norm(self.contexts - place, dim=1).argmin())
        return {
            "curve": as_json(curve.flatten()),
            "nearest": {
                "task": nearest,
                "amplitude": self.batch.attributes["amplitude"][nearest].item(),
                "phase": self.batch.attributes["phase"][nearest].item(),
                "curve": self.batch.query_y[nearest].flatten().tolist(),
            },
        }
