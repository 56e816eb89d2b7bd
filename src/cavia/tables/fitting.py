"""`cavia fit`: a network for a table, trained on its tasks, scored on unseen tasks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_one_of, require_steps
from cavia.evaluation.evaluate import Evaluation, evaluate, half_width
from cavia.kinds import require_kind
from cavia.learners.base import Learner
from cavia.learners.gradient import CAVIA
from cavia.machine import require_memory
from cavia.models.mlp import MLP
from cavia.tables.columns import Category, Number
from cavia.tables.encoding import Encoding
from cavia.tables.intervals import calibrate
from cavia.tables.model import TableModel
from cavia.tables.network import EffectsNet
from cavia.tables.posterior import Posterior
from cavia.tables.starting import losses_of_tasks, simplest, start_at_mixed
from cavia.tables.tasks import Tasks
from cavia.tasks.batch import SPLITS
from cavia.training.adam import Adam
from cavia.training.checkpoint import RunFolder
from cavia.training.feed import Validation
from cavia.training.fit import fit
from cavia.training.progress import Show
from cavia.training.run import FitResult

MOST_TRAINING_QUERY = 100
VALIDATIONS = 20  # in a run
METHODS = ("posterior", "gradient")
NEWTON_STEPS = {"mse": 1, "cross_entropy": 4}
SHARES_OF_TRAINING = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the way from the start to the trained model
COPIES = 10  # of the weights: gradient, moments, best model, checkpoint, and what is between


@dataclass(frozen=True)
class FittedTable:
    """A trained model for a table, and how it was trained."""

    model: TableModel
    family: Tasks
    result: FitResult
    evaluations: list[Evaluation]  # one for each target

    def summary(self) -> str:
        """What `cavia fit` prints at the end."""
        encoding, family = self.model.encoding, self.family
        counts = ", ".join(f"{len(family.splits[split])} {split}" for split in SPLITS)
        left_out = f"; {len(family.dropped)} too small, left out" if family.dropped else ""
        inputs = f"{encoding.width} input{'s' * (encoding.width != 1)}"
        lines = [f"{len(family.names)} tasks ({counts}{left_out}), {len(family.x)} rows, {inputs}"]
        unseen = f"on {len(family.splits['test'])} unseen tasks, {self._support()} to adapt on:"
        for target, scores in self.scores().items():
            what = "accuracy" if encoding.is_classification else f"root mean squared error of {target}"
            lines.append(f"{what} {unseen}")
            for step, (mean, width) in enumerate(scores):  # one task alone has no interval, nor have equal scores
                interval = "" if math.isnan(width) or not width else f" ± {width:.2g}"
                lines.append(f"  {step} step{'s' * (step != 1)}: {mean:.4g}{interval}")
        return "\n".join(lines)

    def scores(self) -> dict[str, list[tuple[float, float]]]:
        """Target → after 0, 1, … steps: mean over unseen tasks, its 95 % half width; RMSE in its unit, or accuracy."""
        scores = {}
        targets: tuple[Category | Number, ...] = self.model.encoding.targets
        for target, evaluation in zip(targets, self.evaluations, strict=True):
            values: Tensor = evaluation.scores
            if isinstance(target, Number):
                values = values.sqrt().double() * target.scale
            scores[target.name] = list(zip(values.mean(1).tolist(), half_width(values).tolist(), strict=True))
        return scores

    def _support(self) -> str:
        """How many points the test tasks adapt on: a small task keeps one point to score."""
        used = (self.family.sizes[self.family.members["test"]] - 1).clamp(max=self.family.support)
        least, most = int(used.min()), int(used.max())
        return f"{most} points" if least == most else f"{least} to {most} points"


def fit_table(family: Tasks, *, seed: int = 0, **settings: Any) -> FittedTable:
    """Train CAVIA on tasks of a table, and judge it on its test tasks. Other arguments are those of `train_table`."""
    encoding = family.encoding
    assert encoding is not None  # from_table made it
    if not family.members["test"].numel():
        raise CaviaError(f"no task with at least 2 rows is left for the test (of {len(family.names)} tasks)")
    model, result = train_table(family, seed=seed, **settings)
    metrics: list[Any] = (
        ["accuracy"] if encoding.is_classification else [_squared_error(i) for i in range(encoding.outputs)]
    )
    evaluations = evaluate(model.learner, family, tasks=len(family.splits["test"]), seed=seed, metric=metrics)
    return FittedTable(model, family, result, evaluations)


def train_table(
    family: Tasks,
    *,
    method: str = "posterior",
    hidden: Sequence[int] = (64, 64),
    context: int = 8,
    inner_lr: float = 0.5,
    inner_steps: int | None = None,
    iterations: int = 600,
    tasks_per_batch: int = 25,
    lr: float = 1e-3,
    seed: int = 0,
    run_dir: RunFolder | None = None,
    progress: bool | Show = True,
) -> tuple[TableModel, FitResult]:
    """Train on tasks of a table, from `cavia.Tasks.from_table`; validation tasks choose the best model.

    method:      "posterior": a mixed model plus a network, whose effects adapt by Newton's step;
                 "gradient": CAVIA as in the paper, a network that sees φ, which adapts by gradient steps.
    context:     how many numbers of a task adapt.
    inner_lr:    of gradient steps; Newton's have none.
    inner_steps: by default 2 gradient steps; Newton's: 1 for numbers, where it is exact, 4 for classes.
    The other arguments are those of `cavia.MLP` and `cavia.fit`.
    """
    encoding = family.encoding
    assert encoding is not None  # from_table made it
    require_one_of("method", method, METHODS)
    if inner_steps is None:
        inner_steps = 2 if method == "gradient" else NEWTON_STEPS[encoding.loss]
    require_steps("inner_steps", inner_steps, 1)
    sizes = {"context": context, "inner_steps": inner_steps, "tasks_per_batch": tasks_per_batch}
    for name, value in sizes.items():
        require_at_least(name, value, 1)
    require_kind("hidden", hidden, Sequence[int])
    _check_memory(family, encoding, method, tuple(hidden), **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(require_at_least("seed", seed, 0))
        learner = _learner(family, encoding, method, tuple(hidden), context, inner_lr, inner_steps)
    start = {name: value.clone() for name, value in learner.state_dict().items()}
    held_out = len(family.splits["val"])
    result = fit(
        learner,
        family,
        iterations,
        tasks_per_batch=tasks_per_batch,
        outer=Adam(lr=lr, cooldown=0.3),
        query=min(family.query, MOST_TRAINING_QUERY),
        validation=Validation(held_out, max(1, iterations // VALIDATIONS), query=family.query),
        seed=seed,
        run_dir=run_dir,
        progress=progress,
    )
    if not isinstance(learner, Posterior):
        return TableModel(learner, encoding), result
    if held_out:
        _shrink(learner, start, family, seed)
    intervals = None if encoding.is_classification else calibrate(learner, family, seed)
    return TableModel(learner, encoding, intervals), result


def _learner(
    family: Tasks,
    encoding: Encoding,
    method: str,
    hidden: tuple[int, ...],
    context: int,
    inner_lr: float,
    inner_steps: int,
) -> Learner:
    """The learner before training."""
    if method == "gradient":
        network = MLP(encoding.width, encoding.outputs, hidden, context)
        return CAVIA(network, encoding.loss, inner_lr, inner_steps)
    made = Posterior(EffectsNet(encoding.width, encoding.outputs, hidden, context), encoding.loss, 0.5, inner_steps)
    start_at_mixed(made, family)
    return made


@torch.no_grad()
def _shrink(learner: Posterior, start: dict[str, Tensor], family: Tasks, seed: int) -> None:
    """Move back towards the start as far as the validation tasks suggest: with few tasks a network soon overfits."""
    end = {name: value.clone() for name, value in learner.state_dict().items()}

    def go(share: float) -> None:
        learner.load_state_dict({name: torch.lerp(start[name], end[name], share) for name in end})

    losses = []
    for share in SHARES_OF_TRAINING:
        go(share)
        losses.append(losses_of_tasks(learner, family, seed))
    go(SHARES_OF_TRAINING[simplest(losses)])


def _squared_error(output: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Of one target: predictions and targets [T, N, targets] → [T, N]."""

    def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction[..., output] - target[..., output]).square()

    return squared_error


def _check_memory(
    family: Tasks,
    encoding: Encoding,
    method: str,
    hidden: tuple[int, ...],
    context: int,
    inner_steps: int,
    tasks_per_batch: int,
) -> None:
    """Raise if weights and activations would not fit this machine, before there are any."""
    widths = (encoding.width + context, *hidden, encoding.outputs * (1 + context))
    weights = sum((before + 1) * after for before, after in pairwise(widths))
    points = tasks_per_batch * (family.support + min(family.query, MOST_TRAINING_QUERY))
    held_out = max(len(family.splits["val"]), len(family.splits["test"]))
    scored = held_out * (family.support + family.query)
    passes = 2 * (inner_steps + 1)  # each forward and back, all kept for the gradient through the inner steps
    needed = 4 * (COPIES * weights + sum(widths) * max(points * passes, 2 * scored))
    if method == "posterior":  # the precision [T, context, context] before and after, and its factor, in float64
        needed += 3 * 8 * max(tasks_per_batch, held_out) * context**2
    sizes = {"hidden": list(hidden), "context": context, "support": family.support}
    sizes |= {"inner_steps": inner_steps, "tasks_per_batch": tasks_per_batch}
    listed = ", ".join(f"{name}={value}" for name, value in sizes.items())
    require_memory(needed, f"a fit with {listed}")
