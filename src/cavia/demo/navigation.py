"""The fourth panel: the paths of a policy to a goal, before and after each update."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cavia.demo.models import Shown
from cavia.demo.numbers import as_json
from cavia.envs.navigation import FARTHEST, NEAR, Navigation
from cavia.envs.rollouts import Rollouts, collect
from cavia.learners.acting import actor, adapt_in
from cavia.learners.adapted import Adapted
from cavia.tasks.batch import seeded_generator
from cavia.tools.opening import TrainedPolicy

MOST_UPDATES = 3
SHOWN = 6  # episodes of each update that are drawn


class Walks:
    """A policy for navigation, and how it is updated."""

    def __init__(self, model: Shown, policy: TrainedPolicy):
        self.model, self.policy = model, policy

    def describe(self) -> dict[str, Any]:
        return {
            "models": [self.model.describe()],
            "farthest": FARTHEST,
            "near": NEAR,
            "episodes": self.policy.rollouts,
            "most_updates": MOST_UPDATES,
        }

    @torch.no_grad()
    def walk(self, goal: Sequence[float], updates: int, seed: int) -> dict[str, Any]:
        """After 0 … updates updates: the path of mean actions and its return, and episodes of random actions.

        The next update learns from the episodes; their mean return is "sampled".
        """
        learner, _, rollouts, how = self.policy
        env, generator = Navigation(self.policy.env.horizon), seeded_generator(seed, "demo")  # an env has a state
        task = torch.tensor([list(goal)], dtype=torch.float32)  # [1, 2]
        stages = adapt_in(learner, env, task, rollouts, updates, generator, how)
        together = Adapted.cat([stage.adapted for stage in stages])  # a stage is a task
        likeliest = collect(
            env, task.expand(len(stages), 2), actor(learner, together, generator, mean=True), 1, generator
        )
        last = env.state()["position"]
        return {
            "stages": [
                {
                    "path": _paths(likeliest, last, index)[0],
                    "return": likeliest.returns[index].item(),
                    "sampled": stage.episodes.returns.item(),
                    "episodes": _paths(stage.episodes, None, 0)[:SHOWN],
                    "context": as_json(stage.adapted.context[0]) if "context" in stage.adapted.parameters else None,
                }
                for index, stage in enumerate(stages)
            ]
        }


def _paths(episodes: Rollouts, last: Tensor | None, task: int) -> list[list[list[float]]]:
    """Places [steps, 2] of each episode of a task while it ran; `last` [T, R, 2] is where they ended."""
    paths = []
    for number, (places, running) in enumerate(zip(episodes.observations[task], episodes.mask[task], strict=True)):
        walked = places[running]
        if last is not None:
            walked = torch.cat([walked, last[task, number].unsqueeze(0)])
        paths.append(walked.tolist())
    return paths
