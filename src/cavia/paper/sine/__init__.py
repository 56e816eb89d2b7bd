"""Table 1 and Figures 3 and 4: sine regression (Section 5.1.1)."""

from typing import Any

from cavia.paper.experiment import Experiment
from cavia.paper.sine import summary, systems, training
from cavia.paper.sine.systems import MethodsSettings, WalkSettings
from cavia.paper.sine.training import ComparedSettings, EmbeddingSettings, RatesSettings, StepsSettings, Table1Settings

COMMON: dict[str, Any] = {
    "tasks": training.tasks,
    "learner": training.learner,
    "chooses": ("contexts", "maml_lrs", "rates", "methods"),
}
BEYOND: dict[str, Any] = {
    "tasks": training.tasks,
    "learner": systems.learner,
    "chooses": ("methods",),
    "beyond": True,
}

EXPERIMENTS = (
    Experiment(
        id="table1",
        title="Sine regression: CAVIA and MAML",
        reproduces="Table 1: MSE by the number of additional input parameters",
        sets={
            "quick": Table1Settings(iterations=6000, contexts=(0, 2, 5), maml_lrs=(0.01,)),
            "full": Table1Settings(),
            "first": Table1Settings(contexts=(2, 5), maml_lrs=(0.003,)),  # what `make run` shows
        },
        minutes={"quick": 2, "full": 7, "first": 1},
        cells=training.table1_cells,
        measure=training.errors_and_curves,
        summarise=summary.table1_summary,
        **COMMON,
    ),
    Experiment(
        id="fig3a",
        title="Sine regression: more gradient steps than in training",
        reproduces="Figure 3a: test MSE by the number of gradient steps",
        sets={"quick": StepsSettings(iterations=8000, maml_lrs=(0.01,)), "full": StepsSettings()},
        minutes={"quick": 1, "full": 1},
        cells=training.steps_cells,
        measure=training.errors,
        summarise=summary.steps_summary,
        **COMMON,
    ),
    Experiment(
        id="fig3b",
        title="Sine regression: sensitivity to the inner learning rate",
        reproduces="Figure 3b: test MSE by inner learning rate",
        sets={"quick": ComparedSettings(iterations=3000, rates=(1e-3, 1e-2, 1e-1, 1.0)), "full": ComparedSettings()},
        minutes={"quick": 1, "full": 1},
        cells=training.rates_cells,
        measure=training.errors,
        summarise=summary.rates_summary,
        **COMMON,
    ),
    Experiment(
        id="fig3c",
        title="Sine regression: the context gradient compensates for the inner rate",
        reproduces="Figure 3c: inner learning rate against the norm of the context gradient",
        sets={"quick": RatesSettings(iterations=5000, rates=(1e-3, 1e-2, 1e-1, 1.0)), "full": RatesSettings()},
        minutes={"quick": 1, "full": 1},
        cells=training.norms_cells,
        measure=training.gradient_norms,
        summarise=summary.norms_summary,
        **COMMON,
    ),
    Experiment(
        id="fig4",
        title="Sine regression: what two context parameters encode",
        reproduces="Figure 4: adapted contexts, coloured by amplitude and phase",
        sets={"quick": EmbeddingSettings(iterations=8000), "full": EmbeddingSettings()},
        minutes={"quick": 1, "full": 1},
        cells=training.embedding_cells,
        measure=training.embedding,
        summarise=summary.embedding_summary,
        **COMMON,
    ),
    Experiment(
        id="sine_steps",
        title="Sine regression: a hundred steps",
        reproduces="error of inner optimisers after many more steps than in training",
        sets={"quick": WalkSettings(iterations=1000), "full": WalkSettings()},
        minutes={"quick": 5, "full": 60},
        cells=systems.walk_cells,
        measure=training.errors,
        summarise=systems.walk_summary,
        **BEYOND,
    ),
    Experiment(
        id="sine_methods",
        title="Sine regression: every method",
        reproduces="error of every applicable method after equal training time",
        sets={"quick": MethodsSettings(minutes=0.3), "full": MethodsSettings()},
        minutes={"quick": 5, "full": 110},
        cells=systems.methods_cells,
        measure=systems.as_trained,
        summarise=systems.methods_summary,
        **BEYOND,
    ),
)
