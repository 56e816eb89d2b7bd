"""Completion of a user's own picture by a trained model."""

import io
import warnings
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least
from cavia.evaluation.evaluate import device_of
from cavia.learners.base import Learner
from cavia.learners.losses import mse
from cavia.pictures.completion import Completion
from cavia.pictures.decoding import decode_one
from cavia.pictures.images import ImageSet
from cavia.pictures.pixels import with_known_only
from cavia.tasks.batch import SPLITS, seeded_generator

DARK_GREY = 0.25  # where nothing is known
WIDEST = 4096
AT_A_TIME = 2**16  # places evaluated together, to bound memory


class Completed(NamedTuple):
    """Three pictures [width, width, 3] in [0, 1], and how far the completion is off.

    known:      the known pixels, dark grey elsewhere.
    completion: what the network makes of them, evaluated at every place.
    original:   the picture at the size that the network sees.
    mse:        mean squared error over the size × size pixels, a scalar.
    """

    known: Tensor
    completion: Tensor
    original: Tensor
    mse: Tensor


@torch.no_grad()
def complete(
    learner: Learner,
    picture: str | PathLike[str],
    known: int = 100,
    size: int = 32,
    width: int = 256,
    seed: int = 0,
    ordered: bool = False,
) -> Completed:
    """Complete one picture from some of its pixels.

    picture: a file of any format that Pillow reads; it is squashed to size × size.
    known:   how many of the size² pixels the learner adapts on.
    width:   pixels along one side of what is returned. The network is a function of places, so the completion is
             evaluated at width × width of them; the other two are enlarged pixel by pixel.
    seed:    which pixels are known.
    ordered: the known pixels are the first ones in row-major order instead of random ones.
    """
    _check(learner, known, size, width)
    pixels = _read(Path(picture), size)[None]  # [1, size, size, 3]
    family = Completion(ImageSet("picture", dict.fromkeys(SPLITS, pixels)), size, "ordered" if ordered else "random")
    batch = family.sample(1, known, None, seeded_generator(seed, "complete"), "test").to(device_of(learner))
    adapted = learner.adapt(batch.support_x, batch.support_y)
    error = mse(learner.predict(batch.query_x, adapted), batch.query_y).mean()

    places = finer_places(size, width).to(batch.query_x.device)
    parts = [learner.predict(part.unsqueeze(0), adapted).squeeze(0) for part in places.split(AT_A_TIME)]
    only_known = with_known_only(batch.support_x[0], batch.support_y[0], size, DARK_GREY)
    return Completed(
        _enlarge(only_known, size, width),
        torch.cat(parts).clamp(0, 1).view(width, width, 3),
        _enlarge(batch.query_y[0], size, width),
        error,
    )


def as_panels(completed: Completed) -> bytes:
    """The known pixels, the completion and the original side by side, as a PNG."""
    from PIL import Image

    row = torch.cat([completed.known, completed.completion, completed.original], 1)  # [width, 3 width, 3]
    file = io.BytesIO()
    Image.fromarray((row * 255).round().byte().cpu().numpy()).save(file, "PNG")
    return file.getvalue()


def _check(learner: Learner, known: int, size: int, width: int) -> None:
    inputs, outputs = getattr(learner.model, "inputs", 2), getattr(learner.model, "outputs", 3)
    if (inputs, outputs) != (2, 3):
        raise CaviaError(
            f"this model is not for pictures: it takes {inputs} inputs and gives {outputs} outputs instead of a place "
            "(2) and its colour (3); take one that table2 or fig5 trained"
        )
    require_at_least("size", size, 2)
    if not size <= require_at_least("width", width, 2) <= WIDEST:
        raise CaviaError(f"width must be from {size}, the size, to {WIDEST}, got {width}")
    if require_at_least("known", known, 1) > size**2:
        raise CaviaError(f"known must be at most {size**2}, the pixels of a {size}×{size} picture, got {known}")


def _read(path: Path, size: int) -> np.ndarray:
    """[size, size, 3] uint8"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata is no reason to stop
        pixels = decode_one(path, size)
    if pixels is None:
        raise CaviaError(f"{path} is damaged, or no picture of a known format")
    return pixels


def finer_places(size: int, width: int) -> Tensor:
    """Places [width², 2] of finer pixels over the same picture, in row-major order.

    The centre of each finer pixel, in units of the coarse ones; beyond the outermost centres, where nothing was ever
    trained, those.
    """
    steps = ((torch.arange(width) + 0.5) * size / width - 0.5).clamp(0, size - 1) / (size - 1)
    return torch.cartesian_prod(steps, steps)


def _enlarge(colours: Tensor, size: int, width: int) -> Tensor:
    """Nearest neighbour: [size², 3] → [width, width, 3]."""
    index = torch.arange(width, device=colours.device) * size // width
    return colours.view(size, size, 3)[index][:, index]
