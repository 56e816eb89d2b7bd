"""All experiments by name, in display order: the paper's own, then those beyond it."""

from typing import Any

from cavia.errors import CaviaError, closest
from cavia.paper import completion, dynamics, exploration, fewshot, modes, policies, sine
from cavia.paper.experiment import Experiment

SECTIONS: tuple[Any, ...] = (dynamics, modes, exploration, sine, completion, fewshot, policies)
CATALOGUE: dict[str, Experiment[Any]] = {
    experiment.id: experiment
    for beyond in (False, True)
    for section in SECTIONS
    for experiment in section.EXPERIMENTS
    if experiment.beyond == beyond
}


def find(name: str) -> Experiment[Any]:
    """The experiment of that name."""
    if name not in CATALOGUE:
        raise CaviaError(f"unknown experiment {name!r}; {closest(name, CATALOGUE)}")
    return CATALOGUE[name]


def is_beyond(name: str) -> bool:
    """Whether the experiment is not in the paper; true for unknown names."""
    return name not in CATALOGUE or CATALOGUE[name].beyond
