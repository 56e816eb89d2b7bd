"""The known data sets: where they are in a data folder, and how to read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cavia.building import build
from cavia.errors import CaviaError, closest, require_at_least
from cavia.pictures.faces import synthetic_faces
from cavia.pictures.glyphs import synthetic_glyphs
from cavia.pictures.images import CELEBA_IMAGES, CELEBA_PARTITION, ImageSet, read_celeba
from cavia.pictures.labelled import read_miniimagenet, read_omniglot


@dataclass(frozen=True)
class DataSet:
    """Pictures on disk, and drawn ones that stand in for them.

    name:     what `ImageSet.source` says.
    folder:   under the data folder.
    size:     of the pictures, as the paper has them.
    needs:    what to put into the folder, in words.
    parts:    some of its files, to see whether the data set is there.
    episodes: how its pictures become few-shot tasks: arguments of `Episodes`.
    """

    name: str
    folder: str
    size: int
    read: Callable[[Path, int], ImageSet]
    draw: Callable[..., ImageSet]
    needs: str
    parts: tuple[str, ...] = ()
    episodes: dict[str, Any] | None = None

    def open(self, root: Path, synthetic: bool = False, size: int | None = None) -> ImageSet:
        """The pictures under the data folder `root`, or drawn ones, size × size."""
        size = size or self.size
        if synthetic:
            return self.draw(size=size)
        folder = root / self.folder
        if not folder.is_dir() or not all((folder / part).exists() for part in self.parts):
            raise CaviaError(
                f"no {self.name} in {folder}: put {self.needs} there, name another --data-root, or try --data synthetic"
            )
        return self.read(folder, size)


CELEBA = DataSet(
    "CelebA",
    "celeba",
    32,
    read_celeba,
    synthetic_faces,
    f"{CELEBA_IMAGES}/ and {CELEBA_PARTITION} (from the CelebA project page, "
    "mmlab.ie.cuhk.edu.hk/projects/CelebA.html)",
    (CELEBA_IMAGES, CELEBA_PARTITION),
)
MINI_IMAGENET = DataSet(
    "Mini-ImageNet",
    "miniimagenet",
    84,
    read_miniimagenet,
    synthetic_glyphs,
    "images/ and train.csv, val.csv, test.csv (the split of Ravi and Larochelle: filename,label)",
    episodes={"channels": 3},
)
OMNIGLOT = DataSet(
    "Omniglot",
    "omniglot",
    28,
    read_omniglot,
    synthetic_glyphs,
    "images_background/ and images_evaluation/ (from the Omniglot project, github.com/brendenlake/omniglot)",
    episodes={"channels": 1, "rotations": True, "invert": True},  # black on white; a turned character is another one
)
LARGEST_SIDE = 1024  # pixels
DATA_SETS = {one.name: one for one in (CELEBA, MINI_IMAGENET, OMNIGLOT)}


def reopened(kind: type[Any], settings: Mapping[str, Any], root: Path, draw: Callable[..., ImageSet]) -> Any:
    """The family of pictures whose `settings` these are, on the data set under the data folder `root`.

    draw: what drew its pictures, if they are synthetic.
    """
    source = str(settings["images"]["source"])
    size = require_at_least("size", settings["size"], 1, LARGEST_SIDE)
    if source.startswith("synthetic"):
        images = draw(size=size)
    elif source in DATA_SETS:
        images = DATA_SETS[source].open(root, size=size)
    else:
        raise CaviaError(f"pictures of the source {source!r} cannot be found again; {closest(source, DATA_SETS)}")
    family = build(kind, {name: value for name, value in settings.items() if name != "images"} | {"images": images}, "")
    if family.settings != settings:
        raise CaviaError(
            f"the model was trained on other tasks ({settings}) than {root} gives ({family.settings}); score it with "
            f"cavia.evaluate and its own {kind.__name__}"
        )
    return family
