"""All experiments by name, in the paper's order."""

from typing import Any

from cavia.errors import CaviaError, closest
from cavia.paper import completion, dynamics, exploration, fewshot, modes, policies, sine
from cavia.paper.experiment import Experiment

CATALOGUE: dict[str, Experiment[Any]] = {
    experiment.id: experiment
    for section in (sine, completion, fewshot, policies, dynamics, modes, exploration)
    for experiment in section.EXPERIMENTS
}


def find(name: str) -> Experiment[Any]:
    """The experiment of that name."""
    if name not in CATALOGUE:
        raise CaviaError(f"unknown experiment {name!r}; {closest(name, CATALOGUE)}")
    return CATALOGUE[name]
