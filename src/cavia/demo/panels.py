"""The panels that have a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cavia.demo.curves import Curves
from cavia.demo.faces import Faces
from cavia.demo.models import Shown, find, own, sizes
from cavia.demo.navigation import Walks
from cavia.demo.plane import Plane
from cavia.envs.navigation import Navigation
from cavia.errors import CaviaError
from cavia.learners.base import Learner
from cavia.pictures.datasets import CELEBA
from cavia.published.models import published
from cavia.tools.opening import open_policy

KNOWN = (10, 100, 1000)  # pixels that there are published models for, or will be
OWN_KNOWN = 100  # what a model of the user's is taken to be trained for


class Panels:
    """What the page shows: the published models, or a user's learner.

    A panel for which there is no model is None, and the page leaves it out.
    """

    def __init__(self, data_root: Path | None = None, learner: Learner | None = None):
        given = None if learner is None else own(learner)
        if learner is not None and given is None:
            raise CaviaError(
                f"the page cannot show this {type(learner).__name__}: it takes {sizes(learner)[0]} numbers to "
                f"{sizes(learner)[1]}, instead of 1 to 1 (curves) or 2 to 3 (pictures), or its loss is not 'mse'"
            )
        pictures = _with_pictures(data_root)
        curves = list(_curves(given))
        self.curves = Curves(curves) if curves else None
        plane = None if given else find("sine-2")
        self.plane = Plane(plane) if plane else None
        faces = dict(_faces(given))
        self.faces = Faces(faces, pictures) if faces else None
        self.navigation = None if given else _navigation()

    def describe(self) -> dict[str, Any]:
        """What the page needs to know when it loads."""
        from cavia import __version__

        named = {"curves": self.curves, "plane": self.plane, "faces": self.faces, "navigation": self.navigation}
        return {"version": __version__} | {name: panel.describe() for name, panel in named.items() if panel}


def _curves(given: Shown | None) -> Iterator[Shown]:
    if given is None:
        yield from filter(None, (find("sine"), find("sine-maml")))
    elif sizes(given.learner) == (1, 1):
        yield given


def _faces(given: Shown | None) -> Iterator[tuple[int, Shown]]:
    if given is None:
        yield from ((known, model) for known in KNOWN if (model := find(f"completion-{known}")))
    elif sizes(given.learner) == (2, 3):
        yield OWN_KNOWN, given


def _navigation() -> Walks | None:
    model = find("navigation")
    if model is None:
        return None
    policy = open_policy(published()["navigation"].folder)
    return Walks(model, policy) if isinstance(policy.env, Navigation) else None


def _with_pictures(data_root: Path | None) -> Path | None:
    """The folder, if CelebA is in it; an error if it was named and has none."""
    if data_root is not None:
        folder = data_root / CELEBA.folder
        if not all((folder / part).exists() for part in CELEBA.parts):
            raise CaviaError(f"no {CELEBA.name} in {folder}: put {CELEBA.needs} there, or leave out --data-root")
    return data_root
