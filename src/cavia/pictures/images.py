"""Data sets of pictures on disk: which file belongs to which split, for the layouts that users have."""

import os
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cavia.errors import CaviaError, require_one_of, shown
from cavia.kinds import checked
from cavia.pictures.decoding import Picture, decode
from cavia.tasks.batch import SPLITS

CELEBA_IMAGES, CELEBA_PARTITION = "img_align_celeba", "list_eval_partition.txt"


@checked
@dataclass(frozen=True)
class ImageSet:
    """Square RGB pictures in three splits.

    source: a short name of the data, for a run's config.json.
    pixels: split → uint8 [N, size, size, 3]; a memory map if they come from files.
    names:  split → the N file names, relative to the data set's folder; empty if there are no files.
    labels: split → the class of each of the N pictures; empty if they have none.

    >>> images = ImageSet.from_array(np.zeros((10, 32, 32, 3), np.uint8))
    >>> {split: len(pixels) for split, pixels in images.pixels.items()}
    {'train': 8, 'val': 1, 'test': 1}
    """

    source: str
    pixels: Mapping[str, np.ndarray]
    names: Mapping[str, list[str]] = field(default_factory=dict)
    labels: Mapping[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if set(self.pixels) != set(SPLITS):
            raise CaviaError(f"pixels need the splits {', '.join(SPLITS)}, got {', '.join(self.pixels) or 'none'}")
        if self.pixels["train"].ndim != 4:
            raise CaviaError(
                f"pixels must be uint8 [N, size, size, 3] in each split, got {shown(self.pixels['train'])}"
            )
        for split, array in self.pixels.items():
            if array.dtype != np.uint8 or array.ndim != 4 or array.shape[1:] != (self.size, self.size, 3):
                raise CaviaError(
                    f"pictures must be uint8 [N, size, size, 3] of one size, got {array.dtype} "
                    f"{list(array.shape)} in {split!r}"
                )
            if self.labels and len(self.labels.get(split, ())) != len(array):
                raise CaviaError(
                    f"every picture needs one label, got {len(self.labels.get(split, ()))} labels for the "
                    f"{len(array)} pictures in {split!r}"
                )

    @classmethod
    @checked
    def from_array(cls, pixels: np.ndarray, source: str = "array") -> "ImageSet":
        """Pictures [N, size, size, 3]: the last tenth is "test", the tenth before it "val", the rest "train"."""
        if pixels.ndim != 4:
            raise CaviaError(f"pixels must be uint8 [N, size, size, 3], got {shown(pixels)}")
        tenth = max(len(pixels) // 10, 1)
        if len(pixels) < 3:
            raise CaviaError(f"at least 3 pictures are needed, one for each split, got {len(pixels)}")
        bounds = (0, len(pixels) - 2 * tenth, len(pixels) - tenth, len(pixels))
        return cls(source, {split: pixels[a:b] for split, (a, b) in zip(SPLITS, pairwise(bounds), strict=True)})

    @property
    def size(self) -> int:
        """Pixels along one side."""
        return self.pixels["train"].shape[-2]

    @property
    def settings(self) -> dict[str, Any]:
        """What config.json says about the pictures: source, number in each split, number of classes, but no paths."""
        counts = {split: len(self.pixels[split]) for split in SPLITS}
        classes = {"classes": {split: len(set(self.labels.get(split, ()))) for split in SPLITS}} if self.labels else {}
        return {"source": self.source, **counts, **classes}

    @checked
    def of(self, split: str) -> np.ndarray:
        """The pictures [N, size, size, 3] of a split, which must have some."""
        require_one_of("split", split, self.pixels)
        if not len(self.pixels[split]):
            counts = ", ".join(f"{name} {len(array)}" for name, array in self.pixels.items())
            raise CaviaError(f"the split {split!r} of {self.source} has no pictures ({counts})")
        return self.pixels[split]


def as_path(images: str | os.PathLike[str]) -> Path:
    """The path of a folder of pictures; an error if no file system takes such a name."""
    path = Path(images)
    try:
        path.is_dir()
    except (OSError, ValueError) as error:
        raise CaviaError(f"images={shown(str(images))} cannot be the name of a folder: {error}") from error
    if not str(images):
        raise CaviaError("images must name a folder, got ''; for the current one say '.'")
    return path


def read_images(root: str | os.PathLike[str], size: int, cache: Path | None = None) -> ImageSet:
    """The pictures under a folder, size × size: as CelebA if it has CelebA's layout, otherwise as a plain folder."""
    root = as_path(root)
    is_celeba = (root / CELEBA_IMAGES).is_dir() or (root / CELEBA_PARTITION).exists()
    return read_celeba(root, size, cache) if is_celeba else read_folder(root, size, cache)


def read_celeba(root: Path, size: int, cache: Path | None = None) -> ImageSet:
    """CelebA as it is distributed, with its official splits.

    root/img_align_celeba/*.jpg and root/list_eval_partition.txt, with lines `000001.jpg 0` (0 train, 1 val, 2 test).
    Part of the pictures is enough; those that are listed but missing are left out.
    """
    folder, partition = root / CELEBA_IMAGES, root / CELEBA_PARTITION
    for path in (folder, partition):
        if not path.exists():
            raise CaviaError(f"CelebA needs {CELEBA_IMAGES}/ and {CELEBA_PARTITION} in {root}; there is no {path}")
    present = set(os.listdir(folder))  # noqa: PTH208  # names are all that is needed, 200,000 of them
    listed = list(_partition(partition))
    pictures = [picture for picture in listed if picture.name in present]
    check_listed(len(pictures), len(listed), f"{partition} lists", folder)
    return decoded_set("CelebA", folder, pictures, size, cache)


def check_listed(present: int, listed: int, by: str, folder: Path) -> None:
    """Raise if none of the pictures listed is in the folder; warn if some are not."""
    if not present:
        raise CaviaError(f"none of the {listed} pictures that {by} is in {folder}")
    if present < listed:
        what = f"{listed - present} of the {listed} pictures listed"
        warnings.warn(f"{folder} lacks {what}; they are left out", stacklevel=3)


def _partition(path: Path) -> Iterator[Picture]:
    split_of = dict(zip("012", SPLITS, strict=True))
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match line.split():
            case [name, code] if code in split_of:
                yield Picture(name, split_of[code])
            case [_, *_]:
                raise CaviaError(f'{path}, line {number}: expected "file 0", "file 1" or "file 2", got {line!r}')


def read_folder(root: Path, size: int, cache: Path | None = None) -> ImageSet:
    """All pictures under a folder, of any format that Pillow reads.

    With a sub-folder `train`, the splits are the sub-folders train, val and test. Otherwise a hash of each file's
    relative path decides, 80/10/10, so that a picture stays in its split whatever is added or removed.
    """
    if not root.is_dir():
        raise CaviaError(f"there is no folder {root}")
    names = sorted(picture_files(root))
    if (root / "train").is_dir():
        tops = [(name, name.partition("/")[0]) for name in names]
        pictures = [Picture(name, top) for name, top in tops if top in SPLITS]
    else:
        pictures = [Picture(name, _split_by_hash(name)) for name in names]
    if not pictures:
        raise CaviaError(f"there are no pictures in {root}")
    return decoded_set("folder", root, pictures, size, cache)


def picture_files(root: Path) -> Iterator[str]:
    """Paths relative to root, with /, of the files whose ending is that of a format that Pillow can open."""
    from PIL import Image

    endings = tuple(ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN)
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        prefix = Path(folder).relative_to(root).as_posix() + "/"
        prefix = "" if prefix == "./" else prefix
        yield from (prefix + name for name in files if name.lower().endswith(endings) and not name.startswith("."))


def _split_by_hash(name: str) -> str:
    tenth = zlib.crc32(name.encode(errors="surrogateescape")) % 10
    return "train" if tenth < 8 else SPLITS[tenth - 7]


def decoded_set(source: str, root: Path, pictures: list[Picture], size: int, cache: Path | None) -> ImageSet:
    """The pictures that can be read, size × size, by split and name; with labels if all of them have one."""
    pictures = sorted(pictures, key=lambda picture: (SPLITS.index(picture.split), picture.name))
    kept, pixels = decode(root, pictures, size, cache)
    counts = [sum(picture.split == split for picture in kept) for split in SPLITS]
    bounds = np.cumsum([0, *counts])
    parts = dict(zip(SPLITS, pairwise(bounds.tolist()), strict=True))
    names = {split: [picture.name for picture in kept[a:b]] for split, (a, b) in parts.items()}
    known = [picture.label for picture in kept if picture.label is not None]
    labels = {split: known[a:b] for split, (a, b) in parts.items()} if len(known) == len(kept) else {}
    return ImageSet(source, {split: pixels[a:b] for split, (a, b) in parts.items()}, names, labels)
