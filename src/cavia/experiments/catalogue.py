"""All experiments by name."""

from cavia.errors import CaviaError, closest
from cavia.experiments import completion, fewshot, reinforcement, sine
from cavia.experiments.base import Experiment

CATALOGUE: dict[str, Experiment] = {
    experiment.id: experiment
    for experiment in (
        *sine.EXPERIMENTS,
        *completion.EXPERIMENTS,
        *fewshot.EXPERIMENTS,
        *reinforcement.EXPERIMENTS,
    )
}


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in CATALOGUE:
        raise CaviaError(f"unknown experiment {name!r}; {closest(name, CATALOGUE)}")
    return CATALOGUE[name]
