"""`cavia fit`: a network for a table, trained on its tasks, judged on tasks that it never saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cavia.evaluation.evaluate import Evaluation, evaluate, half_width
from cavia.learners.gradient import CAVIA
from cavia.models.mlp import MLP
from cavia.tables.model import TableModel
from cavia.tables.tasks import Tasks
from cavia.tasks.batch import SPLITS
from cavia.training.adam import Adam
from cavia.training.feed import Validation
from cavia.training.fit import fit
from cavia.training.progress import Show
from cavia.training.run import FitResult


@dataclass(frozen=True)
class FittedTable:
    """A trained model for a table with what is known of it."""

    model: TableModel
    family: Tasks
    result: FitResult
    evaluation: Evaluation

    def summary(self) -> str:
        """What `cavia fit` prints."""
        encoding = self.model.encoding
        counts = ", ".join(f"{len(self.family.splits[split])} {split}" for split in SPLITS)
        left_out = f"; {len(self.family.dropped)} too small, left out" if self.family.dropped else ""
        scores = self.scores()
        error = "accuracy" if encoding.target.levels else f"root mean squared error of {encoding.target.name}"
        lines = [
            f"{len(self.family.names)} tasks ({counts}{left_out}), {len(self.family.x)} rows, {encoding.width} inputs "
            f"from {', '.join(one.name for one in encoding.inputs)}",
            f"{error} on {len(self.family.splits['test'])} unseen tasks, {self.family.support} points to adapt on:",
        ]
        lines += [f"  {step} steps: {mean:.4g} ± {width:.2g}" for step, (mean, width) in enumerate(scores)]
        return "\n".join(lines)

    def scores(self) -> list[tuple[float, float]]:
        """After 0, 1, … steps: mean over unseen tasks, its 95 % half width; RMSE in the target's unit, or accuracy."""
        values: Tensor = self.evaluation.scores
        if not self.model.encoding.target.levels:
            values = values.sqrt() * self.model.encoding.target.scale
        return list(zip(values.mean(1).tolist(), half_width(values).tolist(), strict=True))


def fit_table(
    source: Any,
    task: str,
    target: str,
    *,
    inputs: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    hidden: Sequence[int] = (64, 64),
    context: int = 5,
    inner_lr: float = 0.5,
    inner_steps: int = 2,
    support: int = 10,
    order: str = "random",
    too_small: str = "refuse",
    iterations: int = 5000,
    tasks_per_batch: int = 25,
    lr: float = 1e-3,
    seed: int = 0,
    progress: bool | Show = True,
) -> FittedTable:
    """Train CAVIA on a table with one row per point and a column that names the task.

    source: as for `cavia.Tasks.from_table`, as are task, target, inputs, categorical, support, order and too_small.
    The others are those of `cavia.MLP`, `cavia.CAVIA` and `cavia.fit`.
    """
    family = Tasks.from_table(
        source,
        task,
        target,
        inputs=inputs,
        categorical=categorical,
        seed=seed,
        support=support,
        order=order,
        too_small=too_small,
    )
    encoding = family.encoding
    assert encoding is not None  # from_table made it
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = MLP(encoding.width, encoding.outputs, hidden, context)
    learner = CAVIA(network, encoding.loss, inner_lr, inner_steps)
    result = fit(
        learner,
        family,
        iterations,
        tasks_per_batch=tasks_per_batch,
        outer=Adam(lr=lr, cooldown=0.3),
        query=min(family.query, 100),
        validation=Validation(len(family.splits["val"]), query=family.query),
        seed=seed,
        progress=progress,
    )
    evaluation = evaluate(learner, family, tasks=len(family.splits["test"]), seed=seed)
    return FittedTable(TableModel(learner, encoding), family, result, evaluation)
