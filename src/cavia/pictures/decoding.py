"""Pictures decoded once: a list of files becomes one uint8 memory map in a cache folder."""

import hashlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cavia.cache import cache_folder
from cavia.errors import CaviaError, require_at_least
from cavia.temporaries import temporary
from cavia.tensor_file import read_json, write_json

FORMAT = "1 upright RGB Lanczos"  # part of the key: another way to decode is another cache
AT_A_TIME = 64  # pictures that a thread decodes in one go


class Picture(NamedTuple):
    """One file of a data set: its path relative to the data set's folder, its split and, if it has one, its class."""

    name: str
    split: str
    label: str | None = None


def decode(
    root: Path, pictures: Sequence[Picture], size: int, cache: Path | None = None
) -> tuple[list[Picture], np.ndarray]:
    """The pictures that can be read, in their order, and their pixels [N, size, size, 3], a uint8 memory map.

    Every picture is converted to RGB and squashed to size × size (Lanczos). The result is kept in the cache under a
    key made of the names, byte sizes and modification times of the files, and of `size`; no file is opened to compute
    it. So a file that is changed without a change of its length and time goes unnoticed.

    cache: the folder to keep it in, by default `cache_folder()`. Whatever is in there may be deleted at any time.
    """
    require_at_least("size", size, 1)
    folder = (cache or cache_folder()) / _key(root, pictures, size)
    kept = _load(folder, len(pictures), size)
    if kept is None:
        _build(folder, root, [picture.name for picture in pictures], size)
        kept = _load(folder, len(pictures), size)
        if kept is None:
            raise CaviaError(f"the cache {folder} cannot be read back after writing it; delete it and try again")
    unreadable, pixels = kept
    if unreadable:
        named = ", ".join(unreadable[:3]) + (", …" if len(unreadable) > 3 else "")
        warnings.warn(
            f"{root}: skipped {len(unreadable)} of {len(pictures)} pictures as damaged: {named}", stacklevel=3
        )
    if len(unreadable) == len(pictures):
        raise CaviaError(f"none of the {len(pictures)} pictures in {root} can be read")
    skipped = set(unreadable)
    return [picture for picture in pictures if picture.name not in skipped], pixels


def _key(root: Path, pictures: Sequence[Picture], size: int) -> str:
    digest = hashlib.sha256(f"{FORMAT} {size}".encode())
    prefix = f"{root}{os.sep}"
    for picture in pictures:
        try:
            stat = os.stat(prefix + picture.name)  # noqa: PTH116  # Path objects would take three times as long
        except OSError as error:
            raise CaviaError(f"cannot read {prefix}{picture.name}: {error.strerror or error}") from error
        digest.update(f"{picture.name}\0{stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _load(folder: Path, count: int, size: int) -> tuple[list[str], np.ndarray] | None:
    """The names of unreadable pictures and the pixels of the others; None if the cache is missing or damaged."""
    try:
        unreadable = read_json(folder / "index.json")["unreadable"]
        shape = (count - len(unreadable), size, size, 3)
        if shape[0] == 0:
            return unreadable, np.zeros(shape, np.uint8)
        pixels = np.load(folder / "pixels.npy", mmap_mode="r", allow_pickle=False)
    except (CaviaError, OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    return (unreadable, pixels) if pixels.shape == shape and pixels.dtype == np.uint8 else None


def _build(folder: Path, root: Path, names: list[str], size: int) -> None:
    """Decode into a temporary folder next to the final one, then rename: a crash leaves no half-written cache."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CaviaError(
            f"cannot write to the cache {folder.parent}: {error.strerror or error}; set CAVIA_CACHE to another folder"
        ) from error
    try:
        with temporary(folder, folder=True) as unfinished:
            with warnings.catch_warnings():  # out here, because it is not for threads
                warnings.simplefilter("ignore")  # odd metadata is no reason to stop
                unreadable = _decode_all(unfinished / "pixels.npy", root, names, size)
            write_json(unfinished / "index.json", {"unreadable": unreadable})
            if _load(folder, len(names), size) is None:  # otherwise another process has built the same meanwhile
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # another process may be at it; the caller checks the result
                    unfinished.rename(folder)
    except OSError as error:
        raise CaviaError(
            f"cannot write the cache {folder}: {error.strerror or error}; set CAVIA_CACHE to another folder"
        ) from error


def _decode_all(file: Path, root: Path, names: list[str], size: int) -> list[str]:
    """Write the pixels of all readable pictures, one after the other; returns the names of the others."""
    unreadable: list[str] = []
    row = 0
    pixels = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=(len(names), size, size, 3))
    for name, picture in _showing(_in_parallel(root, names, size), len(names), root):
        if picture is None:
            unreadable.append(name)
        else:
            pixels[row] = picture
            row += 1
    pixels.flush()
    del pixels
    if 0 < row < len(names):
        _shorten(file, row)
    return unreadable


def _shorten(file: Path, rows: int) -> None:
    """Keep the first rows of an array on disk."""
    pixels = np.load(file, mmap_mode="r", allow_pickle=False)
    shorter = file.with_suffix(".shorter")
    np.lib.format.open_memmap(shorter, mode="w+", dtype=np.uint8, shape=(rows, *pixels.shape[1:]))[:] = pixels[:rows]
    shorter.replace(file)


def _in_parallel(root: Path, names: list[str], size: int) -> Iterator[tuple[str, np.ndarray | None]]:
    """(name, pixels [size, size, 3] or None) in order. Threads do: Pillow decodes and resizes without the GIL."""

    def some(part: list[str]) -> list[np.ndarray | None]:
        return [decode_one(root / name, size) for name in part]

    parts = [names[start : start + AT_A_TIME] for start in range(0, len(names), AT_A_TIME)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for part, decoded in zip(parts, pool.map(some, parts), strict=True):
                yield from zip(part, decoded, strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def decode_one(path: Path, size: int) -> np.ndarray | None:
    """[size, size, 3] uint8, upright, or None if the file is damaged or no picture. A forbidden file is an error."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as picture:
            upright = ImageOps.exif_transpose(picture)  # cameras store pictures lying on their side, with a note
            return np.asarray(upright.convert("RGB").resize((size, size), Image.Resampling.LANCZOS))
    except OSError as error:
        if error.errno is not None:  # from the system; Pillow's own errors carry no number
            raise CaviaError(f"cannot read {path}: {error.strerror}") from error
        return None
    except Exception:  # Pillow's readers raise whatever a damaged file leads them into
        return None


def _showing(
    decoded: Iterable[tuple[str, np.ndarray | None]], count: int, root: Path
) -> Iterator[tuple[str, np.ndarray | None]]:
    """The same, with a bar in a terminal and one line elsewhere."""
    from rich.console import Console
    from rich.progress import track

    title = f"decoding {count} pictures of {root} (once)"
    if sys.stderr.isatty():
        yield from track(decoded, title, total=count, console=Console(stderr=True))
    else:
        print(title, file=sys.stderr, flush=True)
        yield from decoded
