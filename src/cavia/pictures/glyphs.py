"""Procedurally drawn characters in classes, for users without labelled pictures."""

import math

import numpy as np
import torch
from torch import Tensor

from cavia.errors import require_at_least
from cavia.pictures.images import ImageSet
from cavia.tasks.batch import SPLITS, seeded_generator

AT_A_TIME = 32  # drawings painted together: as many as fit a processor's cache
STROKES = 4  # at most, of a glyph
TRIES = 6  # for each stroke, of which the best is kept
PIECES = 8  # straight pieces that stand for a curved stroke
FAR = 1e3  # where strokes lie that are not drawn


def synthetic_glyphs(
    train: int = 64, val: int = 16, test: int = 20, drawings: int = 20, size: int = 28, seed: int = 0
) -> ImageSet:
    """Drawn characters, black on white, in three splits; the same for the same seed.

    A class is 2 to 4 strokes, lines or arcs. Every drawing of it looks handwritten: the strokes lie a little
    differently, the whole is turned, sheared, scaled and shifted, and the pen is thinner or thicker.

    >>> glyphs = synthetic_glyphs(train=10, val=5, test=5, drawings=3)
    >>> glyphs.of("train").shape, glyphs.labels["train"][2:4]
    ((30, 28, 28, 3), ['train 0', 'train 1'])
    """
    counts = dict(zip(SPLITS, (train, val, test), strict=True))
    for name, value in (counts | {"drawings": drawings, "size": size}).items():
        require_at_least(name, value, 1)
    pixels, labels = {}, {}
    for split, count in counts.items():
        generator = seeded_generator(seed, f"glyphs {split}")
        strokes, drawn = (part.repeat_interleave(drawings, 0) for part in glyph_classes(count, generator))
        pixels[split] = draw_glyphs(strokes, drawn, size, generator)
        names = [f"{split} {index:0{len(str(count - 1))}}" for index in range(count)]
        labels[split] = [name for name in names for _ in range(drawings)]
    return ImageSet(f"synthetic glyphs, seed {seed}", pixels, labels=labels)


def glyph_classes(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random glyphs: start, middle and end of their strokes [N, STROKES, 3, 2], and which are drawn [N, STROKES].

    Places are (right, down) in units of half a picture.
    """
    everyone = torch.arange(count)
    strokes = _stroke(_between(-0.6, 0.6, (count, 1, 2), generator), generator)  # [N, 1, 3, 2]
    for i in range(1, STROKES):
        # From a point of an earlier stroke or, sometimes, from anywhere.
        point = torch.randint(3 * i, (count, TRIES), generator=generator)
        earlier = strokes.flatten(1, 2)[everyone.unsqueeze(1), point]
        anywhere = _between(-0.6, 0.6, (count, TRIES, 2), generator)
        joined = torch.rand(count, TRIES, 1, generator=generator) < 0.7
        tries = _stroke(torch.where(joined, earlier, anywhere), generator)  # [N, TRIES, 3, 2]
        # The one that keeps away from the others: tangles look alike.
        points, others = _curves(tries).flatten(1, 2), _curves(strokes).flatten(1, 2)
        away = torch.cdist(points, others).amin(2).unflatten(1, (TRIES, -1)).mean(2)  # [N, TRIES]
        strokes = torch.cat([strokes, tries[everyone, away.argmax(1)].unsqueeze(1)], 1)
    drawn = torch.arange(STROKES) < torch.randint(2, STROKES + 1, (count, 1), generator=generator)
    return _centred(strokes, drawn), drawn


def _stroke(start: Tensor, generator: torch.Generator) -> Tensor:
    """A line or an arc from each start [..., 2]: [..., 3, 2]. It heads across the middle: the glyph stays compact."""
    one = (*start.shape[:-1], 1)
    heading = torch.atan2(-start[..., 1:], -start[..., :1]) + _between(-1, 1, one, generator)
    way = _between(0.5, 1.3, one, generator) * torch.cat([heading.cos(), heading.sin()], -1)
    bend = _between(0.2, 0.55, one, generator) * (torch.randint(2, one, generator=generator) * 2 - 1)
    bend = torch.where(torch.rand(one, generator=generator) < 0.4, 0.0, bend)
    sideways = torch.stack([-way[..., 1], way[..., 0]], -1)
    return torch.stack([start, start + way / 2 + bend * sideways, start + way], -2)


def _between(low: float, high: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator)


def draw_glyphs(strokes: Tensor, drawn: Tensor, size: int, generator: torch.Generator) -> np.ndarray:
    """One drawing of each glyph [N, STROKES, 3, 2], no two alike: uint8 [N, size, size, 3]."""
    count = len(strokes)

    def between(low: float, high: float) -> Tensor:
        return _between(low, high, (count,), generator)

    strokes = strokes + 0.075 * torch.randn(strokes.shape, generator=generator)
    angle, shear, wide, high = between(-0.3, 0.3), between(-0.2, 0.2), between(0.8, 1.1), between(0.8, 1.1)
    turn = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    stretch = torch.stack([wide, torch.zeros(count), shear, high], 1).view(-1, 2, 2)
    shift = torch.stack([between(-0.15, 0.15), between(-0.15, 0.15)], 1)
    strokes = strokes @ (turn @ stretch).unsqueeze(1) + shift.view(-1, 1, 1, 2)
    pen = between(0.05, 0.085)
    parts = zip(strokes.split(AT_A_TIME), drawn.split(AT_A_TIME), pen.split(AT_A_TIME), strict=True)
    ink = torch.cat([_ink(*part, size) for part in parts])  # [N, size, size]
    grey = ((1 - ink) * 255).round().byte().numpy()
    return np.repeat(grey[..., None], 3, axis=-1)


def _centred(strokes: Tensor, drawn: Tensor) -> Tensor:
    """Move and scale every glyph into the same square, so that its place says nothing of its class."""
    curve = _curves(strokes)  # [N, STROKES, PIECES + 1, 2]
    hidden = ~drawn.view(*drawn.shape, 1, 1)
    low = curve.masked_fill(hidden, math.inf).amin((1, 2))
    high = curve.masked_fill(hidden, -math.inf).amax((1, 2))  # [N, 2]
    scale = 1.25 / (high - low).amax(1)
    return (strokes - ((low + high) / 2).view(-1, 1, 1, 2)) * scale.view(-1, 1, 1, 1)


def _curves(strokes: Tensor) -> Tensor:
    """Points along the parabola through start, middle and end: [..., 3, 2] → [..., PIECES + 1, 2]."""
    t = torch.linspace(0, 1, PIECES + 1)
    weights = torch.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)], 1)  # Lagrange's, at 0, ½ and 1
    return weights @ strokes


def _ink(strokes: Tensor, drawn: Tensor, pen: Tensor, size: int) -> Tensor:
    """How much of each pixel is ink, [N, size, size]: by the distance to the nearest stroke, one pixel soft."""
    centres = (torch.arange(size) + 0.5) / size * 2 - 1
    down, right = (grid.reshape(1, -1) for grid in torch.meshgrid(centres, centres, indexing="ij"))
    curve = _curves(strokes).masked_fill(~drawn.view(*drawn.shape, 1, 1), FAR)
    starts, ways = curve[:, :, :-1].flatten(1, 2), curve.diff(dim=2).flatten(1, 2)  # [N, pieces, 2]
    nearest = torch.full((len(strokes), size**2), math.inf)
    for start, way in zip(starts.unbind(1), ways.unbind(1), strict=True):
        x, y, along = right - start[:, :1], down - start[:, 1:], way / way.square().sum(1, keepdim=True).clamp(1e-9)
        share = (x * along[:, :1] + y * along[:, 1:]).clamp(0, 1)  # of the piece, at its point nearest to the pixel
        nearest = torch.minimum(nearest, (x - share * way[:, :1]).square() + (y - share * way[:, 1:]).square())
    return (0.5 + (pen.unsqueeze(1) - nearest.sqrt()) * size / 2).clamp(0, 1).unflatten(1, (size, size))
