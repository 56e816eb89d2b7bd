"""Procedurally drawn faces, for users without data: simple, but no two alike."""

import math

import numpy as np
import torch
from torch import Tensor

from cavia.errors import require_at_least
from cavia.pictures.images import ImageSet
from cavia.tasks.batch import SPLITS, seeded_generator

AT_A_TIME = 64  # faces drawn together: this many fit the cache of a processor
SKIN = ((1.0, 0.86, 0.76), (0.96, 0.78, 0.65), (0.87, 0.65, 0.50), (0.72, 0.50, 0.36), (0.52, 0.34, 0.24))
HAIR = ((0.08, 0.06, 0.06), (0.25, 0.15, 0.09), (0.45, 0.25, 0.12), (0.62, 0.28, 0.12), (0.88, 0.72, 0.42), (0.7,) * 3)
IRIS = ((0.25, 0.15, 0.08), (0.35, 0.25, 0.12), (0.30, 0.45, 0.62), (0.32, 0.48, 0.32))


def synthetic_faces(train: int = 4000, val: int = 500, test: int = 500, size: int = 32, seed: int = 0) -> ImageSet:
    """Drawn faces in three splits, the same for the same seed.

    >>> faces = synthetic_faces(train=20, val=5, test=5, size=32)
    >>> faces.of("train").shape
    (20, 32, 32, 3)
    """
    counts = dict(zip(SPLITS, (train, val, test), strict=True))
    pixels = {
        split: draw_faces(count, size, seeded_generator(seed, f"faces {split}")) for split, count in counts.items()
    }
    return ImageSet(f"synthetic faces, seed {seed}", pixels)


def draw_faces(count: int, size: int, generator: torch.Generator) -> np.ndarray:
    """New faces, uint8 [count, size, size, 3]."""
    require_at_least("count", count, 1)
    require_at_least("size", size, 2)
    starts = range(0, count, AT_A_TIME)
    parts = [_Canvas(min(AT_A_TIME, count - start), size, generator).face() for start in starts]
    return torch.cat(parts).numpy()


class _Canvas:
    """N pictures of P pixels that are painted over and over, each time with another random shape and colour.

    pixels: [N, P, 3] in [0, 1]; every shape is a signed distance [N, P] in units of half a picture, below 0 inside.
    """

    def __init__(self, count: int, size: int, generator: torch.Generator):
        self.count, self.size, self.generator = count, size, generator
        centres = (torch.arange(size) + 0.5) / size * 2 - 1
        down, right = torch.meshgrid(centres, centres, indexing="ij")
        self.right, self.down = right.reshape(1, -1), down.reshape(1, -1)  # [1, P]
        self.pixels = torch.zeros(count, size**2, 3)

    def face(self) -> Tensor:
        """uint8 [N, size, size, 3]"""
        self._background()
        self._choose_head()
        self._hair_behind_and_shoulders()
        self._head()
        self._eyes()
        self._nose_and_mouth()
        self._fringe()
        self._light()
        return (self.pixels.clamp(0, 1) * 255).round().byte().view(-1, self.size, self.size, 3)

    def between(self, low: float, high: float) -> Tensor:
        """One random number for each picture, [N, 1]."""
        return low + (high - low) * torch.rand(self.count, 1, generator=self.generator)

    def sometimes(self, probability: float) -> Tensor:
        """1 for some pictures, 0 for the others, [N, 1]."""
        return (self.between(0, 1) < probability).float()

    def colour_from(self, palette: tuple[tuple[float, ...], ...], jitter: float = 0.05) -> Tensor:
        """A random blend of two neighbours in the palette, a little changed, [N, 1, 3]."""
        colours = torch.tensor(palette)
        place = self.between(0, len(palette) - 1 - 1e-4).flatten()
        low = place.long()
        blend = torch.lerp(colours[low], colours[low + 1], (place - low).unsqueeze(1))
        return (blend + jitter * torch.randn(self.count, 3, generator=self.generator)).clamp(0, 1).unsqueeze(1)

    def any_colour(self, low: float, high: float, saturation: float) -> Tensor:
        """[N, 1, 3] of random hue and value; saturation from 0 to the given."""
        hue = self.between(0, 1) + torch.tensor([[0.0, 1 / 3, 2 / 3]])
        wave = 0.5 + 0.5 * torch.cos(2 * math.pi * hue)  # [N, 3]
        return (self.between(low, high) * (1 - self.between(0, saturation) * wave)).unsqueeze(1)

    def paint(self, distance: Tensor, colour: Tensor, opacity: Tensor | float = 1.0, blur: float = 0.0) -> None:
        """Cover the inside of a shape [N, P] with a colour [N, 1, 3]; the edge is as wide as a pixel, plus blur."""
        cover = (0.5 - distance / (2 / self.size + blur)).clamp(0, 1) * opacity
        self.pixels = torch.lerp(self.pixels, colour.expand_as(self.pixels), cover.unsqueeze(-1))

    def _background(self) -> None:
        angle, steepness = self.between(0, 2 * math.pi), self.between(0.2, 0.7)
        along = 0.5 + steepness * (self.right * angle.cos() + self.down * angle.sin())
        ends = self.any_colour(0.15, 1.0, 0.8), self.any_colour(0.15, 1.0, 0.8)
        self.pixels = torch.lerp(ends[0], ends[1], along.clamp(0, 1).unsqueeze(-1))
        for _ in range(2):  # something out of focus behind
            spot = _ellipse(self.right, self.down, self.between(-1, 1), self.between(-1, 0.5), 0.5, 0.5)
            self.paint(spot, self.any_colour(0.1, 1.0, 0.8), self.between(0, 0.6), blur=0.6)

    def _choose_head(self) -> None:
        """Head coordinates: (across, along) = (0, 0) is the middle of the face, (0, 1) the chin; and its colours."""
        tilt, self.radius = self.between(-0.25, 0.25), self.between(0.5, 0.68)
        x = self.right - self.between(-0.14, 0.14)
        y = self.down - self.between(-0.02, 0.16)
        self.across = (x * tilt.cos() + y * tilt.sin()) / self.radius
        self.along = (y * tilt.cos() - x * tilt.sin()) / self.radius
        self.turn = self.between(-0.16, 0.16)  # the features move sideways, as when the head turns
        self.width = self.between(0.68, 0.84)
        self.skin, self.hair = self.colour_from(SKIN, 0.015), self.colour_from(HAIR, 0.03)

    def _shape(self, across: Tensor, along: Tensor, width: Tensor | float, height: Tensor | float) -> Tensor:
        """An ellipse in head coordinates, as distances in the picture."""
        return _ellipse(self.across, self.along, across, along, width, height) * self.radius

    def _hair_behind_and_shoulders(self) -> None:
        nothing = torch.zeros(1, 1)
        volume = self.between(1.08, 1.4)
        self.paint(self._shape(nothing, self.between(-0.3, -0.15), self.width * volume, 0.95), self.hair)
        long = self.sometimes(0.5)
        fall = self._shape(nothing, self.between(0.35, 0.7), self.width * volume, self.between(0.8, 1.3))
        self.paint(fall, self.hair * self.between(0.75, 1).unsqueeze(-1), long)
        shoulders = self._shape(nothing, self.between(2.0, 2.25), self.between(1.3, 1.8), 1.0)
        self.paint(shoulders, self.any_colour(0.1, 0.95, 0.9))
        self.paint(self._shape(nothing, torch.full((1, 1), 0.95), 0.36, 0.55), self.skin * 0.82)

    def _head(self) -> None:
        ear_height = self.between(-0.02, 0.12)
        for side in (-1, 1):
            self.paint(self._shape(side * self.width, ear_height, 0.11, 0.19), self.skin * 0.9)
        self.head = self._shape(torch.zeros(1, 1), torch.zeros(1, 1), self.width, 1.0)
        self.paint(self.head, self.skin)
        blush = self.skin * torch.tensor([1.0, 0.8, 0.78])
        amount, beard = self.between(0, 0.5), self.sometimes(0.2) * self.between(0.3, 0.9)
        for side in (-1, 1):
            self.paint(self._shape(side * 0.42 + self.turn, self.between(0.25, 0.3), 0.2, 0.16), blush, amount, 0.1)
        jaw = torch.maximum(self.head, (0.38 + 0.1 * self.across.abs() - self.along) * self.radius)
        self.paint(jaw, self.hair * 0.9, beard, blur=0.08)

    def _eyes(self) -> None:
        height, apart = self.between(-0.16, -0.02), self.between(0.3, 0.38)
        open_, wide = self.between(0.05, 0.11), self.between(0.14, 0.19)
        look, lift, iris = self.between(-0.05, 0.05), self.between(0.17, 0.25), self.colour_from(IRIS)
        brow_thickness, brow_slope = self.between(0.025, 0.055), self.between(-0.15, 0.25)
        white, dark = torch.full((1, 1, 3), 0.95), torch.full((1, 1, 3), 0.05)
        for side in (-1, 1):
            middle = side * apart + self.turn
            self.paint(self._shape(middle, height - 0.03, wide * 1.3, open_ * 2.2), self.skin * 0.75, 0.5, blur=0.06)
            eye = self._shape(middle, height, wide, open_)
            self.paint(eye - 0.02, dark, 0.6)  # lashes
            self.paint(eye, white)
            self.paint(torch.maximum(eye, self._shape(middle + look, height, 0.085, 0.085)), iris)
            self.paint(torch.maximum(eye, self._shape(middle + look, height, 0.04, 0.04)), dark)
            bend = height - lift + brow_slope * ((self.across - middle) * side - 0.05)
            self.paint(self._shape(middle, bend, wide * 1.35, brow_thickness), self.hair * 0.7, 0.85)
        self._glasses(height, apart)

    def _glasses(self, height: Tensor, apart: Tensor) -> None:
        worn, colour, round_ = self.sometimes(0.15), self.any_colour(0.02, 0.3, 0.5), self.between(0.18, 0.24)
        for side in (-1, 1):
            rim = self._shape(side * apart + self.turn, height, 0.25, round_).abs() - 0.012
            self.paint(rim, colour, worn)
        bridge = self._shape(self.turn, height - 0.03, apart - 0.24, 0.025)
        self.paint(bridge, colour, worn)

    def _nose_and_mouth(self) -> None:
        shade, tip = self.skin * 0.72, self.between(0.22, 0.32)
        side = self.sometimes(0.5) * 2 - 1
        self.paint(self._shape(self.turn * 1.2 + 0.07 * side, tip - 0.18, 0.04, 0.22), shade, 0.5, blur=0.05)
        self.paint(self._shape(self.turn * 1.2, tip, self.between(0.1, 0.16), 0.05), shade, 0.7, blur=0.04)
        smile, width, parted = self.between(-0.25, 0.9), self.between(0.2, 0.36), self.between(0, 0.09)
        middle = self.between(0.52, 0.6) + smile * 0.08 - smile * (self.across - self.turn) ** 2  # corners go up
        lips = self.skin * torch.tensor([0.85, 0.5, 0.5]) + self.between(0, 0.2).unsqueeze(-1) * torch.tensor([1, 0, 0])
        mouth = self._shape(self.turn, middle, width, 0.055 + parted * 0.8)
        self.paint(mouth, lips)
        inside = self._shape(self.turn, middle, width * 0.8, 0.012 + parted * 0.6)
        teeth = self.sometimes(0.7).unsqueeze(-1) * 0.75 + 0.15
        self.paint(inside, teeth.expand(-1, 1, 3), (parted > 0.03).float())
        self.paint(inside, lips * 0.5, (parted <= 0.03).float())

    def _fringe(self) -> None:
        """Hair over the forehead, above a line that slopes and bends differently for everyone; few are bald."""
        line = self.between(-0.75, -0.45) + self.between(-0.45, 0.45) * self.across
        line = line + self.between(-0.3, 0.7) * self.across**2
        top = self._shape(torch.zeros(1, 1), torch.zeros(1, 1), self.width * 1.06, 1.07)
        self.paint(torch.maximum(top, (self.along - line) * self.radius), self.hair, 1 - self.sometimes(0.1))

    def _light(self) -> None:
        """Light from one side: strong on the face, weak elsewhere; then the brightness of the whole picture."""
        angle, strength = self.between(0, 2 * math.pi), self.between(0, 0.4)
        slope = (self.across * angle.cos() + self.along * angle.sin()).clamp(-1.5, 1.5) * strength
        on_face = (0.5 - self.head / 0.3).clamp(0, 1)
        factor = (1 + slope * (0.35 + 0.65 * on_face)) * self.between(0.75, 1.1)
        self.pixels = self.pixels * factor.unsqueeze(-1)


def _ellipse(x: Tensor, y: Tensor, at_x: Tensor, at_y: Tensor, width: Tensor | float, height: Tensor | float) -> Tensor:
    """Distance to an ellipse of these half axes, to first order: f / |∇f| of f = |(x/w, y/h)| − 1, [N, P]."""
    x, y = (x - at_x) / width, (y - at_y) / height
    radius = (x.square() + y.square()).sqrt().clamp(min=1e-4)
    slope = ((x / width).square() + (y / height).square()).sqrt().clamp(min=1e-4) / radius
    return (radius - 1) / slope
