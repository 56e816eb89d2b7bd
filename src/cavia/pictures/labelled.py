"""Data sets of labelled pictures on disk, with whole classes in each split: for few-shot classification."""

import csv
import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from cavia.errors import CaviaError
from cavia.pictures.decoding import Picture
from cavia.pictures.images import ImageSet, as_path, check_listed, decoded_set, picture_files
from cavia.tasks.batch import SPLITS

MINIIMAGENET_IMAGES = "images"
OMNIGLOT_LAYOUTS = (("background", "evaluation"), ("images_background", "images_evaluation"))
OMNIGLOT_CLASSES = {"train": 1100, "val": 100, "test": 423}


def read_classes(root: str | os.PathLike[str], size: int, cache: Path | None = None) -> ImageSet:
    """The labelled pictures under a folder, size × size: by its layout as Mini-ImageNet, Omniglot or class folders."""
    root = as_path(root)
    if (root / MINIIMAGENET_IMAGES).is_dir() and any((root / f"{split}.csv").exists() for split in SPLITS):
        return read_miniimagenet(root, size, cache)
    if _omniglot_parts(root):
        return read_omniglot(root, size, cache)
    return read_labelled_folder(root, size, cache)


def read_miniimagenet(root: str | os.PathLike[str], size: int = 84, cache: Path | None = None) -> ImageSet:
    """Mini-ImageNet with the splits of Ravi and Larochelle, 64, 16 and 20 classes.

    root/images/* and root/{train,val,test}.csv with the header `filename,label`. A row means the picture of that name
    whatever its ending (.jpg, .webp). Part of the pictures is enough; those that are listed but missing are left out.
    """
    root = Path(root)
    folder, lists = root / MINIIMAGENET_IMAGES, {split: root / f"{split}.csv" for split in SPLITS}
    for path in (folder, *lists.values()):
        if not path.exists():
            raise CaviaError(f"Mini-ImageNet needs images/ and train.csv, val.csv, test.csv; there is no {path}")
    listed = [Picture(name, split, label) for split, path in lists.items() for name, label in _rows(path)]
    file_of = {_stem(name): name for name in sorted(picture_files(folder), reverse=True)}
    stems = ((picture, _stem(picture.name)) for picture in listed)
    pictures = [picture._replace(name=file_of[stem]) for picture, stem in stems if stem in file_of]
    check_listed(len(pictures), len(listed), f"the csv files in {root} list", folder)
    _check_listed_once(root, pictures)
    return _labelled_set("Mini-ImageNet", folder, pictures, size, cache)


def read_omniglot(root: str | os.PathLike[str], size: int = 28, cache: Path | None = None) -> ImageSet:
    """Omniglot's characters, shuffled as is usual in few-shot learning: 1100 train, 100 val, 423 test.

    root/{background,evaluation}/<character>/*.png, or root/images_{background,evaluation}/<alphabet>/<character>/*.png
    as distributed. A class is called background/0001, by the number that its files bear, or by its folder if they
    bear none. The order of a hash of that name is the shuffle. Of fewer characters, each split gets the same share.
    """
    root = Path(root)
    parts = _omniglot_parts(root)
    if not parts:
        raise CaviaError(f"Omniglot needs background/ or images_background/ in {root}; there is neither")
    names = [f"{part}/{name}" for part in parts for name in picture_files(root / part) if "/" in name]
    label_of = {name: _character(name) for name in names}
    split_of = _omniglot_splits(set(label_of.values()), root)
    pictures = [Picture(name, split_of[label], label) for name, label in label_of.items()]
    return _labelled_set("Omniglot", root, pictures, size, cache)


def read_labelled_folder(root: str | os.PathLike[str], size: int, cache: Path | None = None) -> ImageSet:
    """root/<split>/<class>/* for the splits train, val and test, of any format that Pillow reads.

    Pictures in deeper folders belong to the class folder that they are under; those outside class folders are ignored.
    """
    root = Path(root)
    for folder in (root, *(root / split for split in SPLITS)):
        if not folder.is_dir():
            raise CaviaError(
                f"there is no folder {folder}; labelled pictures are expected in train/<class>/, val/<class>/ and "
                "test/<class>/, or laid out as Mini-ImageNet (images/, train.csv, …) or Omniglot (background/, …)"
            )
    pictures, loose = [], []
    for split in SPLITS:
        files = sorted(picture_files(root / split))
        named = [Picture(f"{split}/{name}", split, name.partition("/")[0]) for name in files if "/" in name]
        if not named:
            what = f"{len(files)} pictures, but none in a class folder" if files else "no pictures"
            raise CaviaError(f"{root / split} has {what}; put those of each class into {root / split}/<class>/")
        pictures += named
        loose += [f"{split}/{name}" for name in files if "/" not in name]
    if loose:
        named_few = ", ".join(loose[:3]) + (", …" if len(loose) > 3 else "")
        warnings.warn(f"{root}: {len(loose)} pictures in no class folder are left out: {named_few}", stacklevel=2)
    return _labelled_set("folder", root, pictures, size, cache)


def _labelled_set(source: str, root: Path, pictures: list[Picture], size: int, cache: Path | None) -> ImageSet:
    """Check that no class is in two splits, before spending time on decoding."""
    split_of: dict[str | None, str] = {}
    for picture in pictures:
        if (other := split_of.setdefault(picture.label, picture.split)) != picture.split:
            raise CaviaError(
                f"the class {picture.label!r} is in both {other!r} and {picture.split!r} of {root}; "
                "a class must be in one split only"
            )
    return decoded_set(source, root, pictures, size, cache)


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """(file name, class) of each line of a csv file with the columns filename and label."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        if not {"filename", "label"} <= set(reader.fieldnames or ()):
            header = ",".join(reader.fieldnames or ())
            raise CaviaError(f"{path}, line 1: expected the header filename,label, got {header!r}")
        for row in reader:
            if not row["filename"] or not row["label"]:
                raise CaviaError(f"{path}, line {reader.line_num}: expected a file name and a label")
            yield row["filename"], row["label"]


def _check_listed_once(root: Path, pictures: list[Picture]) -> None:
    """A picture that is listed twice could be in the support and the query of one task."""
    seen: set[str] = set()
    for picture in pictures:
        if picture.name in seen:
            raise CaviaError(f"the csv files in {root} list {_stem(picture.name)} twice; remove one of the lines")
        seen.add(picture.name)


def _stem(name: str) -> str:
    """A file name without its folder and ending."""
    file = name.rpartition("/")[2]
    return file.rpartition(".")[0] or file


def _omniglot_parts(root: Path) -> list[str]:
    """The folders with characters; of one layout only, because two would show every drawing twice."""
    layouts = ([part for part in layout if (root / part).is_dir()] for layout in OMNIGLOT_LAYOUTS)
    return next((parts for parts in layouts if parts), [])


def _character(name: str) -> str:
    """The class of an Omniglot drawing: background/0709 of images_background/Magi/character01/0709_01.png."""
    folder, _, file = name.removeprefix("images_").rpartition("/")
    numbered = re.match(r"(\d{4})_\d{2}\.", file)
    return f"{folder.partition('/')[0]}/{numbered[1]}" if numbered else folder


def _omniglot_splits(classes: set[str], root: Path) -> dict[str, str]:
    """class → split"""
    if len(classes) < len(SPLITS):
        raise CaviaError(f"at least 3 characters are needed, one for each split, {root} has {len(classes)}")
    shuffled = sorted(classes, key=lambda name: hashlib.sha256(name.encode(errors="surrogateescape")).digest())
    share = len(classes) / sum(OMNIGLOT_CLASSES.values())
    val, test = (max(round(share * OMNIGLOT_CLASSES[split]), 1) for split in ("val", "test"))
    train = len(classes) - val - test
    return dict(zip(shuffled, ["train"] * train + ["val"] * val + ["test"] * test, strict=True))
