"""Figures 6 and 7: meta-reinforcement learning (Section 5.3)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

from cavia.envs.base import TaskEnv
from cavia.envs.cheetah import CheetahDirection, CheetahVelocity, model_path
from cavia.envs.extra import extra
from cavia.envs.navigation import Navigation
from cavia.errors import CaviaError
from cavia.evaluation.evaluate import half_width
from cavia.evaluation.probes import linear_r2
from cavia.evaluation.returns import Returns, evaluate_returns
from cavia.experiments.base import Cell, Data, Experiment, Place, Result, Settings, check_choices, check_numbers
from cavia.experiments.reinforcement_summary import embedding_summary, rates_summary, updates_summary
from cavia.experiments.training import fit_cell
from cavia.learners.gradient import CAVIA, MAML, GradientLearner
from cavia.models.mlp import INITS
from cavia.models.policy import GaussianPolicy
from cavia.training.fit_policy import fit_policy
from cavia.training.trpo import TrustRegion

ENVIRONMENTS: dict[str, Callable[..., TaskEnv]] = {
    "Navigation": Navigation,
    "CheetahDirection": CheetahDirection,
    "CheetahVelocity": CheetahVelocity,
}
METHODS: dict[str, Callable[..., GradientLearner]] = {
    "CAVIA": CAVIA,
    "MAML": MAML,
    "CAVIA (first order)": partial(CAVIA, first_order=True),
    "MAML (first order)": partial(MAML, first_order=True),
}
LATER_RATE = 0.5  # factor of MAML's inner rate after its first update in testing


@dataclass(frozen=True)
class PolicySettings:
    """What every experiment with policies shares: the paper's values for navigation.

    The paper's limit of the KL divergence, 1e-2, is a mean over the numbers of an action; ours is of their sum.
    """

    iterations: int = 500
    minutes: float = 0.0  # of training for each cell, if that is less than the iterations take; 0: no limit
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
    hvp_every: int = 1  # of the time steps, one in so many enters Hessian-vector products; no divisor of the horizon
    chunk: int = 5
    every: int = 10
    validation_tasks: int = 20
    test_tasks: int = 40
    test_rollouts: int = 20
    updates: int = 2

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("minutes",))
        check_choices(self, init=INITS)


@dataclass(frozen=True)
class UpdatesSettings(PolicySettings):
    methods: tuple[str, ...] = ("CAVIA", "MAML")
    cavia_lrs: tuple[float, ...] = (1.0,)
    maml_lrs: tuple[float, ...] = (0.1,)  # of several rates, the best on validation tasks is reported
    maml_later_rate: float = LATER_RATE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, methods=METHODS)


@dataclass(frozen=True)
class RatesSettings(PolicySettings):
    rates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0)
    maml_later_rate: float = LATER_RATE


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


def train(
    cell: Cell,
    settings: Settings,
    place: Place,
    environment: str,
    measure: Callable[[Returns], Result],
) -> Result:
    """Train one cell, keep the policy of the best validation return, and measure it on the test tasks."""
    env = make_environment(environment, settings.horizon)
    learner = make_learner(cell, settings, env).to(place.device)
    region = TrustRegion(
        settings.max_kl,
        settings.cg_iterations,
        settings.damping,
        settings.backtracks,
        settings.shrink,
        settings.hvp_every,
        settings.chunk,
    )

    def measured() -> Result:
        found = evaluate_returns(
            learner,
            env,
            settings.test_tasks,
            settings.test_rollouts,
            settings.updates,
            settings.discount,
            settings.trace,
            settings.maml_later_rate if _is_maml(cell["method"]) else 1.0,
        )
        return measure(found)

    return fit_cell(
        learner,
        env,
        place,
        settings.iterations,
        measured,
        fit=fit_policy,
        tasks_per_batch=settings.tasks_per_batch,
        rollouts=settings.rollouts,
        discount=settings.discount,
        trace=settings.trace,
        region=region,
        seed=cell["seed"],
        every=settings.every,
        validation_tasks=settings.validation_tasks,
        minutes=settings.minutes or None,
    )


def make_environment(name: str, horizon: int) -> TaskEnv:
    """An environment by its name; the cheetah on as many threads as PyTorch has."""
    threads = {} if name == "Navigation" else {"threads": torch.get_num_threads()}
    return ENVIRONMENTS[name](horizon=horizon, **threads)


def make_learner(cell: Cell, settings: Settings, env: TaskEnv) -> GradientLearner:
    """The method of the cell around a new policy; MAML's has no context."""
    with torch.random.fork_rng():
        torch.manual_seed(cell["seed"])
        policy = GaussianPolicy(
            env.observations, env.actions, settings.hidden, cell["context"], settings.std, settings.init
        )
    return METHODS[cell["method"]](policy, policy.loss, inner_lr=cell["inner_lr"])


def returns(found: Returns) -> Result:
    """Mean returns after 0, 1, … updates and their intervals, with random and with mean actions.

    Gains are over the return before any update, task by task: returns differ more between tasks than by an update.
    """
    gain = found.sampled.scores - found.sampled.scores[0]
    return {
        "sampled": found.sampled.mean.tolist(),
        "sampled_interval": found.sampled.interval.tolist(),
        "mean": found.mean.mean.tolist(),
        "mean_interval": found.mean.interval.tolist(),
        "gain": gain.mean(1).tolist(),
        "gain_interval": half_width(gain).tolist(),
    }


def embedding(found: Returns) -> Result:
    """The contexts of the test tasks, and how linearly they tell the goals."""
    context = found.fast["context"]
    return returns(found) | {
        "contexts": context.tolist(),
        "goals": found.tasks.tolist(),
        "r2": linear_r2(context, found.tasks).tolist(),
    }


# Cells


def _cells(seeds: int, *kinds: tuple[str, int, Iterable[float]]) -> list[Cell]:
    """A cell for each method, rate and seed."""
    return [
        Cell({"method": method, "context": context, "inner_lr": float(rate), "seed": seed})
        for method, context, rates in kinds
        for rate, seed in product(rates, range(seeds))
    ]


def updates_cells(settings: UpdatesSettings, seeds: int) -> list[Cell]:
    kinds = [
        (method, 0, settings.maml_lrs) if _is_maml(method) else (method, settings.context, settings.cavia_lrs)
        for method in settings.methods
    ]
    return _cells(seeds, *kinds)


def rates_cells(settings: RatesSettings, seeds: int) -> list[Cell]:
    return _cells(seeds, ("CAVIA", settings.context, settings.rates), ("MAML", 0, settings.rates))


def embedding_cells(settings: EmbeddingSettings, seeds: int) -> list[Cell]:
    return _cells(seeds, ("CAVIA", settings.context, [settings.cavia_lr]))


def _is_maml(method: str) -> bool:
    return method.startswith("MAML")


def find_mujoco(data: Data) -> None:
    """Raise unless MuJoCo and the cheetah's model are installed."""
    extra("mujoco")
    model_path()


CHEETAH: dict[str, Any] = {
    "tasks_per_batch": 40,
    "horizon": 200,
    "context": 50,
    "max_kl": 6e-2,
    "chunk": 1,
    "updates": 3,
    "validation_tasks": 10,
    "cavia_lrs": (10.0,),
    "maml_lrs": (0.1,),
}
QUICK: dict[str, Any] = {"iterations": 50, "every": 10, "validation_tasks": 10, "hvp_every": 9}
# A batch as small as this teaches nothing with the paper's std and λ of 1: its noise hides what an update does.
QUICK_CHEETAH: dict[str, Any] = CHEETAH | QUICK | {
    "std": 0.5, "trace": 0.9, "iterations": 60, "tasks_per_batch": 10, "rollouts": 10, "horizon": 100,
    "test_rollouts": 10, "test_tasks": 20, "updates": 2,
}  # fmt: skip


def _returns_after_updates(environment: str, cavia_is_above: bool, **what: Any) -> Experiment:
    """An experiment that compares methods by their return after each update; the paper says which is better."""
    return Experiment(
        cells=updates_cells,
        chooses_cells=("methods", "cavia_lrs", "maml_lrs"),
        train=partial(train, environment=environment, measure=returns),
        data=environment,
        summarise=partial(updates_summary, name=what["id"], cavia_is_above=cavia_is_above),
        **what,
    )


EXPERIMENTS = (
    _returns_after_updates(
        "CheetahDirection",
        cavia_is_above=True,
        id="fig6a",
        title="HalfCheetah: forward or backward",
        reproduces="Figure 6a: return after 0 to 3 updates, unseen directions",
        quick=UpdatesSettings(**QUICK_CHEETAH),
        full=UpdatesSettings(**CHEETAH),
        minutes=(4, 240),
        find_data=find_mujoco,
    ),
    _returns_after_updates(
        "CheetahVelocity",
        cavia_is_above=True,
        id="fig6b",
        title="HalfCheetah: running at a given velocity",
        reproduces="Figure 6b: return after 0 to 3 updates, unseen velocities",
        quick=UpdatesSettings(**QUICK_CHEETAH),
        full=UpdatesSettings(**CHEETAH),
        minutes=(4, 240),
        find_data=find_mujoco,
    ),
    _returns_after_updates(
        "Navigation",
        cavia_is_above=False,
        id="fig7a",
        title="2D navigation: CAVIA and MAML",
        reproduces="Figure 7a: return after 0 to 2 updates, unseen goals",
        quick=UpdatesSettings(**QUICK),
        full=UpdatesSettings(),
        minutes=(2, 30),
    ),
    Experiment(
        id="fig7b",
        title="2D navigation: sensitivity to the inner learning rate",
        reproduces="Figure 7b: return after 2 updates for inner learning rates from 0.001 to 10",
        quick=RatesSettings(**QUICK, rates=(0.01, 0.1, 1.0)),
        full=RatesSettings(),
        minutes=(5, 150),
        cells=rates_cells,
        chooses_cells=("rates",),
        train=partial(train, environment="Navigation", measure=returns),
        data="Navigation",
        summarise=rates_summary,
    ),
    Experiment(
        id="fig7c",
        title="2D navigation: what two context parameters encode",
        reproduces="Figure 7c: context after 2 updates, coloured by the goal's position",
        quick=EmbeddingSettings(**QUICK),
        full=EmbeddingSettings(),
        minutes=(1, 10),
        cells=embedding_cells,
        train=partial(train, environment="Navigation", measure=embedding),
        data="Navigation",
        summarise=embedding_summary,
    ),
)
