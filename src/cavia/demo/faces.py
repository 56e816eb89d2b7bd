"""The third panel: completes a picture from its known pixels."""

import base64
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavia.demo.models import Shown
from cavia.demo.numbers import as_json
from cavia.errors import CaviaError, require_one_of
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.pictures.complete import finer_places
from cavia.pictures.completion import pixel_coordinates
from cavia.pictures.datasets import CELEBA
from cavia.pictures.faces import draw_faces
from cavia.tasks.batch import seeded_generator

SIZE, PIXELS = CELEBA.size, CELEBA.size**2
WIDTH = 2 * SIZE  # of a completion: the network is a function of places, not of pixels
DRAWN, PATTERNS = 64, 200  # drawn faces to choose from; their known pixels, where the model's own faces come from
IMAGINED, PICTURES = "imagined", "celeba"


class Faces:
    """Models of pictures, each trained for its own number of known pixels, and pictures to try them on.

    models:    by the number of known pixels that each was trained for.
    data_root: where CelebA is, if it is there.
    """

    def __init__(self, models: Mapping[int, Shown], data_root: Path | None = None):
        self.models = dict(sorted(models.items()))
        self.places = pixel_coordinates(SIZE)
        drawn = draw_faces(DRAWN, SIZE, seeded_generator(0, "demo"))
        self.pictures: dict[str, np.ndarray] = {"drawn": drawn, IMAGINED: self._imagine(drawn)}
        if data_root is not None:
            self.pictures[PICTURES] = CELEBA.open(data_root).of("test")

    def describe(self) -> dict[str, Any]:
        return {
            "models": [model.describe() for model in self.models.values()],
            "size": SIZE,
            "width": WIDTH,
            "sources": {name: len(pictures) for name, pictures in self.pictures.items()},
        }

    def picture(self, source: str, number: int) -> dict[str, Any]:
        """One of the pictures, as the bytes of its pixels; indices wrap around."""
        require_one_of("source", source, self.pictures)
        pictures = self.pictures[source]
        return {"picture": _text(pictures[number % len(pictures)])}

    @torch.no_grad()
    def complete(self, picture: str, known: Sequence[int]) -> dict[str, Any]:
        """The completion of a picture from its known pixels, and the error over all of them.

        picture: the bytes of SIZE × SIZE pixels, in base64.
        known:   numbers of pixels, in row-major order.
        """
        colours = _pixels(picture)  # [PIXELS, 3]
        trained, model = self._fitting(len(known))
        learner, index = model.learner, torch.tensor(sorted(set(known)), dtype=torch.long)
        if len(index):
            adapted = learner.adapt(self.places[index][None], colours[index][None])
        else:
            adapted = learner.start(1).detach()
        fine = learner.predict(finer_places(SIZE, WIDTH)[None], adapted)[0]
        error = (learner.predict(self.places[None], adapted)[0] - colours).square().mean()
        return {
            "completion": _text((fine.clamp(0, 1) * 255).round().byte().numpy()),
            "mse": as_json(error),
            "model": list(self.models).index(trained),
            "context": as_json(adapted.context[0]) if CONTEXT in adapted.parameters else None,
        }

    def _fitting(self, known: int) -> tuple[int, Shown]:
        """The model trained with the closest number of known pixels, by ratio."""
        return min(self.models.items(), key=lambda entry: abs(math.log(entry[0] / max(known, 1))))

    @torch.no_grad()
    def _imagine(self, drawn: np.ndarray) -> np.ndarray:
        """Faces of the model's own, [DRAWN, SIZE, SIZE, 3]: contexts drawn from a normal distribution.

        Its mean and covariance are those of the contexts that the drawn faces have.
        """
        learner, generator = next(iter(self.models.values())).learner, seeded_generator(0, "imagined")
        index = torch.randperm(PIXELS, generator=generator)[:PATTERNS]
        colours = torch.from_numpy(drawn).flatten(1, 2)[:, index] / 255
        adapted = learner.adapt(self.places[index].expand(len(drawn), -1, -1), colours)
        if CONTEXT not in adapted.parameters:
            return drawn
        mean = adapted.context.mean(0)
        mixture = torch.randn(len(drawn), len(drawn), generator=generator) / len(drawn) ** 0.5
        context = mean + mixture @ (adapted.context - mean)
        pixels = learner.predict(self.places.expand(len(drawn), -1, -1), Adapted({CONTEXT: context}))
        return (pixels.clamp(0, 1) * 255).round().byte().view(-1, SIZE, SIZE, 3).numpy()


def _text(pixels: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(pixels).tobytes()).decode("ascii")


def _pixels(text: str) -> Tensor:
    """[PIXELS, 3] in [0, 1]"""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CaviaError(f"picture must be base64 ({error})") from error
    if len(raw) != 3 * PIXELS:
        raise CaviaError(f"picture must have {3 * PIXELS} bytes, {SIZE} × {SIZE} pixels of 3 colours, got {len(raw)}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(PIXELS, 3) / 255
