"""The models behind the page: published ones, or the one that `cavia serve` serves."""

from typing import Any, NamedTuple

from cavia.learners.base import Learner
from cavia.learners.gradient import GradientLearner
from cavia.published.models import pretrained, published


class Shown(NamedTuple):
    """A learner, and its description on the page."""

    label: str
    learner: GradientLearner
    about: str
    score: str

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "label": self.label,
            "about": self.about,
            "score": self.score,
            "trained_steps": self.learner.inner_steps,
            "adapts": sum(value.numel() for value in self.learner.start(1).values()),
        }


def find(name: str, label: str = "") -> Shown | None:
    """The published model of that name, if there is one and it adapts by gradient."""
    if name not in published():
        return None
    learner = pretrained(name)
    if not isinstance(learner, GradientLearner):
        return None
    return Shown(
        label or type(learner).__name__, learner, f"{name}: {published()[name].about}", published()[name].score
    )


def own(learner: Learner) -> Shown | None:
    """The served model, if the page can show it: a function of one number, or of a pixel's position."""
    fits = isinstance(learner, GradientLearner) and sizes(learner) in ((1, 1), (2, 3)) and learner.loss == "mse"
    if not fits:
        return None
    assert isinstance(learner, GradientLearner)
    return Shown(type(learner).__name__, learner, "the model that is being served", "")


def sizes(learner: Learner) -> tuple[int, int]:
    """The model's numbers of inputs and outputs; zeros if unknown."""
    return getattr(learner.model, "inputs", 0), getattr(learner.model, "outputs", 0)
