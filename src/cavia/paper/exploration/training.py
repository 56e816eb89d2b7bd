"""Training and measurement of the experiment on sparse reward.

As in MAESN's paper, all methods are meta-trained with dense reward (the distance, which reveals the goal from the first
step on) and tested with reward near the goal only.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from cavia.envs.base import TaskEnv
from cavia.envs.navigation import RADIUS, Navigation
from cavia.learners.acting import Updates, adapt_in
from cavia.models.mlp import INITS
from cavia.paper.experiment import Cell, Data, cells_of
from cavia.paper.methods import METHODS
from cavia.paper.policies.training import PolicySettings, learner, returns
from cavia.tasks.batch import seeded_generator

CAVIA, SAMPLED, EMAML, MAML, MAESN = "CAVIA", "CAVIA, sampled context", "E-MAML", "MAML", "MAESN"
COMPARED = (CAVIA, SAMPLED, EMAML, MAML, MAESN)
SHOWN_ANGLE, SHOWN_PATHS = 0.8 * math.pi, 10  # of the goal in the pictures, and how many paths to it
__all__ = ["ExplorationSettings", "cells", "dense", "learner", "measure", "sparse"]


@dataclass(frozen=True)
class ExplorationSettings(PolicySettings):
    """`disk` is the radius of MAESN's wheeled-robot task. The others are ours: the same for all methods, and two inner
    learning rates for each, the best of those tried for 60 iterations with one seed.
    """

    known: ClassVar = {"init": INITS, "methods": COMPARED}

    methods: tuple[str, ...] = COMPARED
    cavia_lrs: tuple[float, ...] = (0.1, 0.3)
    maml_lrs: tuple[float, ...] = (0.1, 0.3)  # of MAML and E-MAML
    sampled_lrs: tuple[float, ...] = (1.5, 3.0)  # of the mean of a context that is drawn
    disk: float = 0.8  # radius around the goal with reward
    iterations: int = 120
    horizon: int = 40
    hidden: tuple[int, ...] = (64, 64)
    hvp_every: int = 7
    chunk: int = 20
    updates: int = 3


def dense(settings: ExplorationSettings, cell: Cell, data: Data) -> TaskEnv:
    return Navigation(settings.horizon, goals="semicircle")


def sparse(settings: ExplorationSettings) -> TaskEnv:
    return Navigation(settings.horizon, goals="semicircle", disk=settings.disk)


def cells(settings: ExplorationSettings, seeds: int) -> list[Cell]:
    rates = {CAVIA: settings.cavia_lrs, MAML: settings.maml_lrs, EMAML: settings.maml_lrs}
    return [
        cell
        for method in settings.methods
        for context in [settings.context if METHODS[method].context else 0]
        for cell in cells_of(seeds, method, [context], rates.get(method, settings.sampled_lrs))
    ]


def measure(learner: Any, env: TaskEnv, settings: ExplorationSettings, cell: Cell) -> dict[str, Any]:
    """Returns with sparse reward on unseen goals, as in the policy experiments, and paths to one goal."""
    rewarded = sparse(settings)
    return returns(learner, rewarded, settings, cell) | {"probes": {"paths": paths(learner, rewarded, settings)}}


def paths(learner: Any, env: TaskEnv, settings: ExplorationSettings) -> dict[str, list[Any]]:
    """Positions in episodes to one goal, [updates][episode][step][2], for each later rate; and the goal."""
    goal = RADIUS * torch.tensor([[math.cos(SHOWN_ANGLE), math.sin(SHOWN_ANGLE)]])
    of_rates = {}
    for rate in settings.later_rates:
        how = Updates(settings.discount, settings.trace, rate)
        random = seeded_generator(0, "paths")
        stages = adapt_in(learner, env, goal, settings.test_rollouts, settings.updates, random, how)
        walks = [stage.episodes.observations[0, :SHOWN_PATHS] for stage in stages]
        of_rates[f"{rate:g}"] = [[[[round(x, 3) for x in at] for at in one] for one in walk.tolist()] for walk in walks]
    return {"goal": goal[0].tolist(), **of_rates}
