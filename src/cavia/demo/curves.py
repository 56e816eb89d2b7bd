"""The first panel: points become a curve, after each number of steps."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cavia.demo.models import Shown
from cavia.demo.numbers import as_json
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.gradient import GradientLearner
from cavia.tasks.batch import seeded_generator
from cavia.tasks.sine import Sine

X, Y = (-5.0, 5.0), (-6.0, 6.0)  # what the axes show, and where points may be
MOST_POINTS, MOST_STEPS, TASK_POINTS = 100, 10, 10
GRID = 121  # places at which a curve is drawn


def grid() -> Tensor:
    """Points along the x axis, [1, GRID, 1]."""
    return torch.linspace(*X, GRID).view(1, -1, 1)


class Curves:
    """Models of one variable that adapt to the same points."""

    def __init__(self, models: Sequence[Shown]):
        self.models = models
        self.adapt([(0.0, 0.0)], 1)  # the first call imports what later ones need

    def describe(self) -> dict[str, Any]:
        return {
            "models": [model.describe() for model in self.models],
            "x": X,
            "y": Y,
            "most_points": MOST_POINTS,
            "most_steps": MOST_STEPS,
        }

    @torch.no_grad()
    def adapt(self, points: Sequence[tuple[float, float]], steps: int) -> dict[str, Any]:
        """Each model after 0 … steps steps on the points: its curve, the error at the points, the context."""
        pairs = torch.tensor(points, dtype=torch.float32).view(1, -1, 2)
        x, y = pairs[..., :1], pairs[..., 1:]  # [1, K, 1]
        answers = [{"label": model.label, **_after_each_step(model.learner, x, y, steps)} for model in self.models]
        return {"x": as_json(grid().flatten()), "models": answers}

    def task(self, seed: int) -> dict[str, Any]:
        """A random sine curve: ten of its points, and the whole curve."""
        batch = Sine().sample(1, TASK_POINTS, GRID, seeded_generator(seed, "demo"), "test")
        assert batch.attributes is not None
        return {
            "points": torch.cat([batch.support_x, batch.support_y], -1)[0].tolist(),
            "curve": batch.query_y.flatten().tolist(),
            "amplitude": batch.attributes["amplitude"].item(),
            "phase": batch.attributes["phase"].item(),
        }


def _after_each_step(learner: GradientLearner, x: Tensor, y: Tensor, steps: int) -> dict[str, Any]:
    """x and y [1, K, 1] → curves [steps + 1, GRID], errors [steps + 1] and contexts [steps + 1, C].

    Without points there is nothing to adapt to, and only the start.
    """
    stages = [learner.start(1).detach()]
    for _ in range(steps if x.shape[1] else 0):
        stages.append(learner.adapt(x, y, steps=1, start=stages[-1]))
    together = Adapted.cat(stages)  # a stage is a task
    curves = learner.predict(grid().expand(len(stages), -1, -1), together).squeeze(-1)
    wrong = (learner.predict(x.expand(len(stages), -1, -1), together) - y).square() if x.shape[1] else None
    return {
        "curves": as_json(curves),
        "errors": as_json(wrong.mean((1, 2))) if wrong is not None else [None],
        "contexts": as_json(together.context) if CONTEXT in together.parameters else None,
    }
