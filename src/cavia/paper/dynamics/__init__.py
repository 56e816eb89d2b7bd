"""Beyond the paper: dynamical systems, each with its own parameters."""

from cavia.paper.dynamics import summary, training
from cavia.paper.dynamics.training import DynamicsSettings
from cavia.paper.experiment import Experiment

EXPERIMENTS = (
    Experiment(
        id="dynamics",
        title="Dynamical systems: adapting to one trajectory",
        reproduces="trajectory error on training systems and on new ones, with CoDA's equations",
        beyond=True,
        sets={
            "quick": DynamicsSettings(systems=("Lotka–Volterra",), iterations=150, every=50, probes=100),
            "full": DynamicsSettings(),
        },
        minutes={"quick": 2, "full": 60},
        cells=training.cells,
        tasks=training.tasks,
        learner=training.learner,
        measure=training.measure,
        chooses=("systems", "methods"),
        summarise=summary.summary,
        fit=training.fit,
        before=training.before,
    ),
)
