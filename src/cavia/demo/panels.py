"""The panels that there are models for."""

from pathlib import Path
from typing import Any

from cavia.demo.curves import Curves
from cavia.demo.models import Shown, find, own, sizes
from cavia.errors import CaviaError
from cavia.learners.base import Learner


class Panels:
    """What the page shows: the published models, or one learner of the user's."""

    def __init__(self, data_root: Path | None = None, learner: Learner | None = None):
        given = None if learner is None else own(learner)
        if learner is not None and given is None:
            raise CaviaError(
                f"the page cannot show this {type(learner).__name__}: it takes {sizes(learner)[0]} numbers to "
                f"{sizes(learner)[1]}, instead of 1 to 1 (curves) or 2 to 3 (pictures)"
            )
        self.curves = Curves(_curves(given))

    def describe(self) -> dict[str, Any]:
        """What the page needs to know at its start."""
        from cavia import __version__

        return {"version": __version__, "curves": self.curves.describe()}


def _curves(given: Shown | None) -> list[Shown]:
    if given is not None:
        return [given] if sizes(given.learner) == (1, 1) else []
    found = (find("sine"), find("sine-maml"))
    return [model for model in found if model is not None]
