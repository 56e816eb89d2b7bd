"""Beyond the paper: multi-modal tasks, and the hybrid of CAVIA and MAML that the paper suggests."""

from cavia.paper.experiment import Experiment
from cavia.paper.modes import summary, training
from cavia.paper.modes.training import ModesSettings

EXPERIMENTS = (
    Experiment(
        id="modes",
        title="Regression with many modes: CAVIA, MAML and both",
        reproduces="error on a mixture of sines, lines, quadratics, ℓ1 curves and sawtooths",
        beyond=True,
        sets={
            "quick": ModesSettings(iterations=2000, inner_steps=(1,), cavia_lrs=(1.0,), maml_lrs=(0.01,)),
            "full": ModesSettings(),
        },
        minutes={"quick": 2, "full": 60},
        cells=training.cells,
        tasks=training.tasks,
        learner=training.learner,
        measure=training.errors,
        chooses=("methods", "inner_steps", "cavia_lrs", "maml_lrs"),
        summarise=summary.summary,
    ),
)
