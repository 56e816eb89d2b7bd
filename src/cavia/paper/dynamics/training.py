"""Training and measurement of the experiment on dynamical systems."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import torch

from cavia.evaluation.evaluate import evaluate
from cavia.evaluation.identifiability import held_out_r2, identifiability
from cavia.evaluation.probes import contexts
from cavia.learners.base import Learner
from cavia.learners.newton import GaussNewton
from cavia.learners.step_rates import StepwiseCAVIA
from cavia.models.flow import Flow
from cavia.paper.experiment import Cell, Data, Settings
from cavia.tasks.batch import TaskBatch, seeded_generator
from cavia.tasks.dynamics import Dynamics, Glycolysis, LotkaVolterra

NEWTON, CAVIA = "Gauss–Newton", "CAVIA"
SHOWN = 4  # new systems in the portraits


@dataclass(frozen=True)
class Kind:
    """A kind of systems, and the settings chosen for it on its validation systems.

    context:    number of parameters; more than the systems have, if the field is not linear in these.
    substeps:   of the integration, per dt; as many as the true field needs, so that it can be learned.
    support:    known trajectories; one of these numbers is drawn for each training batch.
    query:      trajectories to train on.
    damping:    initial damping of the Gauss–Newton steps.
    inner_lr:   initial learning rate of CAVIA's steps.
    iterations: of each method: first on single transitions, then on whole trajectories.
    limits:     of the claim on errors, in-domain and adapted.
    least_r2:   lower limit of R² in the claims on what the context encodes.
    """

    family: type[Dynamics]
    context: int
    tempo: float
    substeps: int
    support: tuple[int, ...]
    query: int
    damping: float
    inner_lr: float
    iterations: Mapping[str, tuple[int, int]]
    limits: tuple[float, float]
    least_r2: float


KINDS = {
    "Lotka–Volterra": Kind(
        LotkaVolterra,
        context=2,
        tempo=1.0,
        substeps=1,
        support=(1, 2, 4),
        query=4,
        damping=0.01,
        inner_lr=100.0,
        iterations={NEWTON: (2000, 2000), CAVIA: (600, 600)},
        limits=(2.5e-5, 5e-5),
        least_r2=0.99,
    ),
    "glycolysis": Kind(
        Glycolysis,
        context=4,
        tempo=0.1,
        substeps=3,  # with 1, Runge–Kutta diverges on the true field; with 2 its error is 6e-4
        support=(1, 2, 8),
        query=8,
        damping=0.01,
        inner_lr=100.0,
        iterations={NEWTON: (5000, 2500), CAVIA: (1200, 1000)},
        limits=(3.3e-4, 2.8e-4),
        least_r2=0.9,
    ),
}


@dataclass(frozen=True)
class DynamicsSettings(Settings):
    known: ClassVar[Mapping[str, Any]] = {"systems": KINDS, "methods": (NEWTON, CAVIA)}

    systems: tuple[str, ...] = tuple(KINDS)
    methods: tuple[str, ...] = (NEWTON, CAVIA)
    iterations: int = 1_000_000  # at most; each kind of systems has its own number
    hidden: tuple[int, ...] = (64, 64, 64)
    tasks_per_batch: int = 9  # all training systems
    newton_steps: int = 2
    gradient_steps: int = 20
    lr: float = 3e-3  # on transitions
    later_lr: float = 1e-3  # on whole trajectories
    cooldown: float = 0.6
    every: int = 200
    validation_tasks: int = 9
    validation_query: int = 16
    test_trajectories: int = 32
    probes: int = 300  # systems whose parameters are decoded from the context


def cells(settings: DynamicsSettings, seeds: int) -> list[Cell]:
    return [
        Cell({"systems": systems, "method": method, "seed": seed})
        for systems in settings.systems
        for method in settings.methods
        for seed in range(seeds)
    ]


def tasks(settings: DynamicsSettings, cell: Cell, data: Data) -> Dynamics:
    """The systems of a cell. Support trajectories are split into single transitions, query trajectories stay whole."""
    return KINDS[cell["systems"]].family(support_window=1)


def learner(settings: DynamicsSettings, cell: Cell, family: Dynamics) -> Learner:
    kind = KINDS[cell["systems"]]
    centre, scale = _sizes(kind.family)
    model = Flow(len(family.ranges), settings.hidden, kind.context, centre, scale, kind.tempo, substeps=kind.substeps)
    if cell["method"] == CAVIA:
        return StepwiseCAVIA(model, "mse", kind.inner_lr, settings.gradient_steps)
    return GaussNewton(model, damping=kind.damping, inner_steps=settings.newton_steps)


@lru_cache
def _sizes(family: type[Dynamics]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each state variable, over all training trajectories."""
    every = family.trajectories
    batch = family().sample(len(family.systems["train"]), every, every, torch.Generator())
    states = batch.query_y.flatten(0, -2)
    return tuple(round(v, 4) for v in states.mean(0).tolist()), tuple(round(v, 4) for v in states.std(0).tolist())


def before(settings: DynamicsSettings, cell: Cell, family: Dynamics) -> list[tuple[Dynamics, dict[str, Any]]]:
    """The first stage: single transitions, which are cheap."""
    first, _ = _iterations(settings, cell)
    return [(replace(family, query_window=1), {"iterations": first, "lr": settings.lr})]


def fit(settings: DynamicsSettings, cell: Cell) -> dict[str, Any]:
    kind, (_, second) = KINDS[cell["systems"]], _iterations(settings, cell)
    return {
        "iterations": second,
        "lr": settings.later_lr,
        "support": kind.support,
        "query": kind.query,
        "clip": None,
        "compile": False,
    }


def _iterations(settings: DynamicsSettings, cell: Cell) -> tuple[int, ...]:
    of_method = KINDS[cell["systems"]].iterations[cell["method"]]
    return tuple(min(number, settings.iterations) for number in of_method)


def measure(learner: Learner, family: Dynamics, settings: DynamicsSettings, cell: Cell) -> dict[str, Any]:
    """Errors of whole trajectories: on training systems, and on new ones after adaptation to one trajectory each."""
    in_domain = replace(family, known=True)
    count = settings.test_trajectories
    old = evaluate(learner, in_domain, len(family.systems["train"]), family.trajectories, count, learner.inner_steps)
    new = evaluate(learner, family, len(family.systems["test"]), 1, count, learner.inner_steps)
    scores = {"in-domain": old.scores[[0, -1]].tolist(), "adapted": new.scores[[0, -1]].tolist()}
    portraits = _portraits(learner, family)
    return {"scores": scores, "probes": {"portraits": portraits, **_identified(learner, family, settings)}}


def _identified(learner: Learner, family: Dynamics, settings: DynamicsSettings) -> dict[str, Any]:
    """How well the contexts of random systems encode their parameters, and what else they hold."""
    low, high = torch.tensor(family.systems["train"]).aminmax(dim=0)
    generator = seeded_generator(0, "identifiability")
    parameters = low + (high - low) * torch.rand(settings.probes, len(low), generator=generator)
    batch = family.of(parameters, 1, 1, generator)
    context = contexts(learner, batch, learner.inner_steps)
    own = {name: batch.attributes[name] for name in family.names}
    start = dict(batch.support_x)["state"][:, 0, 0]  # initial state of the support trajectory
    r2 = identifiability(context, own)
    return {
        "context": context.tolist(),
        "parameters": {name: value.tolist() for name, value in batch.attributes.items()},
        **r2,
        **({"start": held_out_r2(context, start, linear=False).tolist()} if r2 else {}),
    }


def _portraits(learner: Learner, family: Dynamics) -> list[dict[str, Any]]:
    """A query trajectory of each new system, predicted before and after adaptation to the support trajectory."""
    batch: TaskBatch = family.sample(SHOWN, 1, 1, seeded_generator(0, "test"), "test")
    steps = (0, learner.inner_steps)
    adapted = [learner.adapt(batch.support_x, batch.support_y, steps=number) for number in steps]
    before, after = (learner.predict(batch.query_x, one)[:, 0, 0] for one in adapted)
    known, asked = dict(batch.support_x), dict(batch.query_x)
    seen = torch.cat([known["state"][:, 0, :1], batch.support_y[:, 0, :, 0]], 1)
    start = asked["state"][:, 0]
    paths = {"truth": batch.query_y[:, 0, 0], "before": before, "after": after}
    whole = {name: torch.cat([start, path], 1) for name, path in paths.items()} | {"known": seen}
    return [
        {name: [[round(v, 4) for v in state] for state in path[i].tolist()] for name, path in whole.items()}
        | {"title": ", ".join(f"{name} {values[i]:g}" for name, values in batch.attributes.items())}
        for i in range(len(batch))
    ]
