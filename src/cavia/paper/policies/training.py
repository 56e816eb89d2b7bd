"""Training and measurement of the policy experiments."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from cavia.envs.base import TaskEnv
from cavia.envs.cheetah import CheetahDirection, CheetahVelocity
from cavia.envs.navigation import Navigation
from cavia.errors import CaviaError
from cavia.evaluation.evaluate import LIKELIEST, RETURN, evaluate
from cavia.evaluation.identifiability import identifiability
from cavia.evaluation.probes import axis_alignment, linear_r2
from cavia.learners.acting import Updates
from cavia.learners.base import Learner
from cavia.models.mlp import INITS
from cavia.models.policy import GaussianPolicy
from cavia.paper.experiment import Cell, Data, Settings, cells_of
from cavia.paper.methods import METHODS

COMPARED = ("CAVIA", "MAML", "CAVIA (first order)", "MAML (first order)")


@dataclass(frozen=True)
class PolicySettings(Settings):
    """Shared by all policy experiments: the paper's values for navigation.

    The paper's KL limit, 1e-2, is for a mean over the components of an action; ours is for their sum.
    """

    known: ClassVar = {"init": INITS, "methods": COMPARED}

    iterations: int = 500
    tasks_per_batch: int = 20
    rollouts: int = 20
    horizon: int = 100
    hidden: tuple[int, ...] = (100, 100)
    context: int = 5
    std: float = 1.0  # of the actions before training
    init: str = "xavier"
    discount: float = 0.95
    trace: float = 1.0
    max_kl: float = 2e-2
    cg_iterations: int = 10
    damping: float = 1e-5
    backtracks: int = 15
    shrink: float = 0.8
    hvp_every: int = 1  # use every k-th time step in Hessian-vector products; should not divide the horizon
    chunk: int = 5
    every: int = 10
    validation_tasks: int = 20
    test_tasks: int = 40
    test_rollouts: int = 20
    updates: int = 2
    later_rates: tuple[float, ...] = (1.0, 0.5, 0.25)  # factors of the inner rate after the first update, in tests


@dataclass(frozen=True)
class UpdatesSettings(PolicySettings):
    methods: tuple[str, ...] = ("CAVIA", "MAML")
    cavia_lrs: tuple[float, ...] = (1.0,)
    maml_lrs: tuple[float, ...] = (0.1,)  # the best on validation tasks is reported


@dataclass(frozen=True)
class RatesSettings(PolicySettings):
    rates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class EmbeddingSettings(PolicySettings):
    context: int = 2
    test_tasks: int = 200
    cavia_lr: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context != 2:
            raise CaviaError(f"context must be 2, to be drawn in a plane, got {self.context}")


# Training and measuring


def navigation(settings: PolicySettings, cell: Cell, data: Data) -> TaskEnv:
    return Navigation(horizon=settings.horizon)


def cheetah(
    kind: type[CheetahDirection | CheetahVelocity], settings: PolicySettings, cell: Cell, data: Data
) -> TaskEnv:
    return kind(horizon=settings.horizon, threads=torch.get_num_threads())


def learner(settings: PolicySettings, cell: Cell, env: TaskEnv) -> Learner:
    """The cell's method around a new policy; MAML's policy has no context."""
    policy = GaussianPolicy(
        env.observations, env.actions, settings.hidden, cell["context"], settings.std, settings.init
    )
    return METHODS[cell["method"]](policy, policy.loss, inner_lr=cell["inner_lr"])


def returns(learner: Any, env: TaskEnv, settings: PolicySettings, cell: Cell) -> dict[str, Any]:
    """Returns of each task after 0, 1, … updates, with sampled and with mean actions, for each later rate.

    "validation": the same with sampled actions on as many validation tasks; chooses the later rate.
    """
    scores: dict[str, list[list[float]]] = {}
    for rate in settings.later_rates:
        sampled, mean = evaluate(learner, env, **_how(settings, rate), metric=[RETURN, LIKELIEST])
        validated = evaluate(learner, env, **_how(settings, rate), split="val", metric=RETURN)
        for name, one in (("sampled", sampled), ("mean", mean), ("validation", validated)):
            scores[f"{name} {rate:g}"] = one.scores.tolist()
    return {"scores": scores}


def _how(settings: PolicySettings, later_rate: float) -> dict[str, Any]:
    """Arguments of `evaluate`."""
    updates = Updates(settings.discount, settings.trace, later_rate)
    sizes = {"tasks": settings.test_tasks, "support": settings.test_rollouts, "steps": settings.updates}
    return {**sizes, "updates": updates}


def embedding(learner: Any, env: TaskEnv, settings: PolicySettings, cell: Cell) -> dict[str, Any]:
    """The contexts of the test tasks at the first later rate, and how well goals can be decoded from them."""
    result = evaluate(learner, env, **_how(settings, settings.later_rates[0]), metric=RETURN)
    assert result.adapted is not None
    assert result.tasks is not None
    context, goals = result.adapted.context, result.tasks
    probes = {
        "contexts": context.tolist(),
        "goals": goals.tolist(),
        "r2": linear_r2(context, goals).tolist(),
        "alignment": axis_alignment(context, goals).tolist(),
        **identifiability(context, {f"goal, {axis}": goals[:, i] for i, axis in enumerate("xy")}),
    }
    return {"scores": {"sampled": result.scores.tolist()}, "probes": probes}


# Cells


def updates_cells(settings: UpdatesSettings, seeds: int) -> list[Cell]:
    rates = {True: settings.cavia_lrs, False: settings.maml_lrs}
    return [
        cell
        for method in settings.methods
        for adapts in [METHODS[method].context]  # whether the context adapts; otherwise there is none
        for cell in cells_of(seeds, method, [settings.context if adapts else 0], rates[adapts])
    ]


def rates_cells(settings: RatesSettings, seeds: int) -> list[Cell]:
    ours = cells_of(seeds, "CAVIA", [settings.context], settings.rates)
    return ours + cells_of(seeds, "MAML", [0], settings.rates)


def embedding_cells(settings: EmbeddingSettings, seeds: int) -> list[Cell]:
    return cells_of(seeds, "CAVIA", [settings.context], [settings.cavia_lr])
