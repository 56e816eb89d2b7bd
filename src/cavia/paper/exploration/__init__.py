"""Beyond the paper: navigation with sparse reward, where a policy must explore before it can adapt."""

from typing import Any

from cavia.paper.experiment import Experiment
from cavia.paper.exploration import summary, training
from cavia.paper.exploration.training import ExplorationSettings

QUICK: dict[str, Any] = {
    "iterations": 25, "every": 5, "validation_tasks": 10, "tasks_per_batch": 10, "later_rates": (1.0, 0.5),
    "cavia_lrs": (0.1,), "maml_lrs": (0.3,), "sampled_lrs": (3.0,),
}  # fmt: skip

EXPERIMENTS = (
    Experiment(
        id="exploration",
        title="Navigation with sparse reward: contexts sampled once per episode",
        reproduces="return by the number of updates; goals on MAESN's semicircle, reward only near the goal",
        beyond=True,
        sets={"quick": ExplorationSettings(**QUICK), "full": ExplorationSettings()},
        minutes={"quick": 1, "full": 30},
        cells=training.cells,
        tasks=training.dense,
        learner=training.learner,
        measure=training.measure,
        chooses=("methods", "cavia_lrs", "maml_lrs", "sampled_lrs"),
        summarise=summary.summary,
    ),
)
