"""The published models by name, what they are, and how well they do."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from cavia.errors import CaviaError, closest
from cavia.kinds import checked
from cavia.learners.base import Learner
from cavia.learners.saving import load
from cavia.tensor_file import read_json

FOLDER = Path(str(files("cavia.published")))


class Published(NamedTuple):
    """A model that comes with the package.

    about:   what it was trained for.
    score:   how well it does on unseen tasks, in words; `command` measures it again.
    source:  the experiment, its settings and its cell, and the commit that trained it.
    licence: of the data that it saw.
    """

    name: str
    about: str
    score: str
    command: str
    source: str
    licence: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name


@cache
def published() -> dict[str, Published]:
    """Every published model by its name."""
    return {name: Published(name, **values) for name, values in read_json(FOLDER / "models.json").items()}


@checked
def pretrained(name: str) -> Learner:
    """A trained learner that comes with the package, ready to `adapt` and `predict`.

    name: as `cavia models` lists them, for instance "sine".
    """
    if name not in published():
        raise CaviaError(f"there is no published model {name!r}; {closest(str(name), published())}")
    return load(published()[name].folder / "model.cavia")
