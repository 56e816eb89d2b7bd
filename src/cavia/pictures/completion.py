"""Image completion: a task is a picture, its points are pixels (Section 5.1.2 of the paper)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_one_of
from cavia.kinds import checked
from cavia.pictures.images import ImageSet, read_images
from cavia.tasks.batch import TaskBatch, TaskFamily

ORDERS = ("random", "ordered")


class Completion(TaskFamily):
    """Pictures with some known pixels: x is a pixel's position [2], y its colour [3].

    images: a folder of pictures (CelebA's layout or any other, see `read_images`), an `ImageSet`, or an array
            [N, size, size, 3] of bytes.
    size:   every picture is squashed to size × size.
    order:  the known pixels are "random", or the first ones in row-major order ("ordered").

    A position is (row, column) / (size − 1), so pixels run from (0, 0) to (1, 1); a colour is RGB in [0, 1].

    >>> faces = Completion(np.zeros((10, 32, 32, 3), np.uint8))
    >>> batch = faces.sample(tasks=5, support=10, query=0, generator=torch.Generator().manual_seed(0))
    >>> batch.support_x.shape, batch.query_y.shape
    (torch.Size([5, 10, 2]), torch.Size([5, 1024, 3]))
    """

    def __init__(
        self, images: ImageSet | str | os.PathLike[str] | np.ndarray, size: int = 32, order: str = "random"
    ) -> None:
        require_at_least("size", size, 2)
        require_one_of("order", order, ORDERS)
        if isinstance(images, np.ndarray):
            images = ImageSet.from_array(images)
        elif not isinstance(images, ImageSet):
            images = read_images(images, size)
        if images.size != size:
            raise CaviaError(f"the pictures have size {images.size}, but size is {size}; give size={images.size}")
        self.images, self.size, self.order = images, size, order
        self.coordinates = pixel_coordinates(size)

    @property
    def settings(self) -> dict[str, Any]:
        """What a run's config.json says about this family."""
        return {"images": self.images.settings, "size": self.size, "order": self.order}

    @classmethod
    def reopen(cls, settings: Mapping[str, Any], root: Path) -> Self:
        from cavia.pictures.datasets import reopened
        from cavia.pictures.faces import synthetic_faces

        return reopened(cls, settings, root, synthetic_faces)

    @checked
    def sample(
        self, tasks: int, support: int, query: int | None, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """Pixels of `tasks` pictures: support_x [T, support, 2], support_y [T, support, 3], and the same of query.

        query: how many random pixels to predict; 0, None or size² is all of them, in row-major order.
        The attribute "picture" [T] is each picture's index in its split. In "train" pictures are drawn with
        replacement; elsewhere all come once before any comes twice.
        """
        pixels = self.size**2
        require_at_least("tasks", tasks, 1)
        for name, value, least in (("support", support, 1), ("query", query or 0, 0)):
            if require_at_least(name, value, least) > pixels:
                raise CaviaError(f"{name} must be at most {pixels}, the pixels of a {self.size}×{self.size} picture")
        pictures = self.images.of(split)
        if split == "train":
            index = torch.randint(len(pictures), (tasks,), generator=generator, device=generator.device)
        else:
            order = torch.randperm(len(pictures), generator=generator, device=generator.device)
            index = order[torch.arange(tasks, device=generator.device) % len(pictures)]
        chosen = torch.from_numpy(pictures[index.cpu().numpy()]).to(generator.device)
        colours = chosen.flatten(1, 2) / 255  # [T, size², 3]
        support_x, support_y = self._known(colours, support, generator)
        query_x, query_y = self._some(colours, query or pixels, generator)
        return TaskBatch(support_x, support_y, query_x, query_y, attributes={"picture": index})

    def _known(self, colours: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        if self.order == "random":
            return self._some(colours, count, generator)
        return self._places(colours)[:, :count], colours[:, :count]

    def _some(self, colours: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Places [T, count, 2] and colours [T, count, 3] of random pixels, none twice; all of them in order."""
        if count == self.size**2:
            return self._places(colours), colours
        scores = torch.rand(colours.shape[:2], generator=generator, device=colours.device)
        index = scores.topk(count, sorted=False).indices  # [T, count]: the largest of random scores
        picked = colours.gather(1, index.unsqueeze(-1).expand(-1, -1, 3))
        return self.coordinates.to(colours.device)[index], picked

    def _places(self, colours: Tensor) -> Tensor:
        """[T, size², 2]"""
        return self.coordinates.to(colours.device).expand(len(colours), -1, -1)


def pixel_coordinates(size: int) -> Tensor:
    """Every pixel's (row, column) / (size − 1), in row-major order: [size², 2]."""
    steps = torch.linspace(0, 1, size)
    return torch.cartesian_prod(steps, steps)
