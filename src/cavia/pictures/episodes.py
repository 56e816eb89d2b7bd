"""Few-shot classification: a task is to classify new classes from a few pictures of each (Section 5.2)."""

import os
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_one_of
from cavia.kinds import checked
from cavia.pictures.images import ImageSet
from cavia.pictures.labelled import read_classes
from cavia.tasks.batch import SPLITS, TaskBatch, TaskFamily

AT_A_TIME = 10**8  # bytes of pictures that `evaluate` draws together


class Episodes(TaskFamily):
    """Few-shot classification of pictures into `ways` classes: x is a picture [channels, size, size], y its label.

    images:    a labelled `ImageSet`, or a folder (Mini-ImageNet, Omniglot or class folders, see `read_classes`).
    ways:      classes per task. Their labels 0 … ways − 1 are reassigned for every task.
    shots:     pictures of each class to adapt on.
    queries:   pictures of each class to score the result on.
    size:      the pictures of a folder are squashed to size × size; an `ImageSet` has its size.
    channels:  3 for RGB, 1 for the mean of the three.
    rotations: every class counts as four, its pictures turned anticlockwise by 0, 90, 180 and 270 degrees.
    invert:    1 − x, so that black ink on white is 1 on 0.

    >>> glyphs = Episodes(synthetic_glyphs(train=8, val=5, test=5), ways=5, shots=1, queries=15, channels=1)
    >>> batch = glyphs.sample(4, None, None, torch.Generator().manual_seed(0))
    >>> batch.support_x.shape, batch.query_y.shape
    (torch.Size([4, 5, 1, 28, 28]), torch.Size([4, 75]))
    """

    support: int
    query: int

    def __init__(
        self,
        images: ImageSet | str | os.PathLike[str],
        ways: int = 5,
        shots: int = 1,
        queries: int = 15,
        size: int | None = None,
        channels: int = 3,
        rotations: bool = False,
        invert: bool = False,
    ) -> None:
        self.ways = require_at_least("ways", ways, 2)
        self.shots = require_at_least("shots", shots, 1)
        self.queries = require_at_least("queries", queries, 1)
        if channels not in (1, 3):
            raise CaviaError(f"channels must be 1 (grey) or 3 (RGB), got {channels!r}")
        if not isinstance(images, ImageSet):
            if size is None:
                raise CaviaError(f"size is needed to read the pictures of {os.fspath(images)}; give size=84, say")
            images = read_classes(images, size)
        if size not in (None, images.size):
            raise CaviaError(f"the pictures have size {images.size}, but size is {size}; give size={images.size}")
        if not images.labels:
            raise CaviaError(f"the pictures of {images.source} have no labels; see ImageSet.labels")
        self.images, self.size, self.channels = images, images.size, channels
        self.rotations, self.invert = rotations, invert
        self.support, self.query = ways * shots, ways * queries  # points of all classes of a task together
        self.at_a_time = max(1, AT_A_TIME // ((self.support + self.query) * images.size**2 * 3 * 4))
        self._members = {split: _Members(images.labels.get(split, [])) for split in SPLITS}
        for a, b in combinations(SPLITS, 2):
            if common := set(self.classes[a]) & set(self.classes[b]):
                raise CaviaError(
                    f"the class {min(common)!r} of {images.source} is in {a!r} and in {b!r}; it must be in one"
                )
        for split in SPLITS:
            self._check_enough(split, shots + queries, f"{shots=} and {queries=}")

    def pictures_of_each_class(self, split: str) -> int:
        """The smallest number of pictures per class in the split."""
        return self._members[split].smallest[0]

    @property
    def classes(self) -> dict[str, list[str]]:
        """split → the names of its classes, sorted: what the attribute "classes" counts."""
        return {split: members.names for split, members in self._members.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """What a run's config.json says about this family."""
        names = ("ways", "shots", "queries", "size", "channels", "rotations", "invert")
        return {"images": self.images.settings, **{name: getattr(self, name) for name in names}}

    @classmethod
    def reopen(cls, settings: Mapping[str, Any], root: Path) -> Self:
        from cavia.pictures.datasets import reopened
        from cavia.pictures.glyphs import synthetic_glyphs

        return reopened(cls, settings, root, synthetic_glyphs)

    @checked
    def sample(
        self, tasks: int, support: int | None, query: int | None, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """`tasks` new tasks: support_x [T, support, channels, size, size], support_y [T, support], and so for query.

        support, query: points per task, the same number of each class; None is the family's own number.
        Points are sorted by class, in the order of the labels. x.flatten(0, 1) is channels-last in memory.
        The attribute "classes" [T, ways] is the index in `classes[split]` of each label's class; with rotations it is
        four times that index, plus the number of quarter turns.
        """
        require_at_least("tasks", tasks, 1)
        require_one_of("split", split, SPLITS)
        support = self.support if support is None else support
        query = self.query if query is None else query
        shots, queries = self._per_class("support", support), self._per_class("query", query)
        self._check_enough(split, shots + queries, f"{support=} and {query=}")
        members, device, turns = self._members[split], generator.device, 4 if self.rotations else 1
        # The largest of random scores are a random choice in random order.
        scores = torch.rand(tasks, len(members.names) * turns, generator=generator, device=device)
        classes = scores.topk(self.ways).indices  # [T, ways]
        index = members.draw(classes // turns, shots + queries, generator)  # [T, ways, shots + queries]
        labels = torch.arange(self.ways, device=device)

        def points(index: Tensor) -> tuple[Tensor, Tensor]:  # index [T, ways, n]
            each = index.shape[-1]
            quarter = (classes % turns).repeat_interleave(each, dim=1)  # [T, ways · n]
            return self._pictures(split, index.flatten(1), quarter), labels.repeat_interleave(each).repeat(tasks, 1)

        return TaskBatch(*points(index[..., :shots]), *points(index[..., shots:]), attributes={"classes": classes})

    def _pictures(self, split: str, index: Tensor, quarter: Tensor) -> Tensor:
        """The pictures at index [T, N], turned by quarter · 90° [T, N]: [T, N, channels, size, size] in [0, 1]."""
        chosen = self.images.of(split)[index.flatten().cpu().numpy()]
        pixels = torch.from_numpy(np.asarray(chosen)).to(index.device)  # [T·N, size, size, 3] uint8
        for turns in (1, 2, 3) if self.rotations else ():
            rows = (quarter.flatten() == turns).nonzero().flatten()
            pixels[rows] = pixels[rows].rot90(turns, dims=(1, 2))
        if self.invert:
            pixels = 255 - pixels
        values = pixels.float()
        if self.channels == 1:
            values = values.mean(-1, keepdim=True)
        # The permuted view keeps the channels last in memory, the layout that convolutions are fast in.
        return values.div_(255).unflatten(0, index.shape).permute(0, 1, 4, 2, 3)

    def _per_class(self, name: str, points: int) -> int:
        """Points of each class, of points per task."""
        require_at_least(name, points, self.ways)
        if points % self.ways:
            raise CaviaError(f"{name} must be a multiple of {self.ways}, the ways, got {points}")
        return points // self.ways

    def _check_enough(self, split: str, needed: int, why: str) -> None:
        """Raise unless a split has `ways` classes, and `needed` pictures of each; why: the arguments that need them."""
        members, turns = self._members[split], 4 if self.rotations else 1
        if len(members.names) * turns < self.ways:
            raise CaviaError(
                f"ways must be at most {len(members.names) * turns}, the classes in {split!r} of {self.images.source}, "
                f"got {self.ways}"
            )
        fewest, name = members.smallest
        if fewest < needed:
            raise CaviaError(
                f"the class {name!r} in {split!r} of {self.images.source} has {fewest} pictures, but a task needs "
                f"{needed} of each class ({why})"
            )


class _Members:
    """Which pictures of a split are of which class.

    names:    the C classes, sorted
    counts:   [C] how many pictures each has
    pictures: [C, M] their indices in the split, M in the largest class; in the others the rest is padding
    """

    def __init__(self, labels: list[str]) -> None:
        names, inverse, counts = np.unique(np.array(labels, dtype=str), return_inverse=True, return_counts=True)
        order = np.argsort(inverse, kind="stable")  # the pictures, class by class
        place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, … within each class
        pictures = np.zeros((len(names), counts.max(initial=0)), np.int64)
        pictures[inverse[order], place] = order
        self.names: list[str] = names.tolist()
        self.counts, self.pictures = torch.from_numpy(counts), torch.from_numpy(pictures)

    @property
    def smallest(self) -> tuple[int, str]:
        """How many pictures the class with the fewest has, and its name."""
        index = int(self.counts.argmin())
        return int(self.counts[index]), self.names[index]

    def draw(self, classes: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Random pictures of each class [T, ways], in random order, none twice: [T, ways, count]."""
        device = generator.device
        pictures, counts = self.pictures.to(device), self.counts.to(device)
        scores = torch.rand(*classes.shape, pictures.shape[1], generator=generator, device=device)
        padding = torch.arange(pictures.shape[1], device=device) >= counts[classes].unsqueeze(-1)
        places = scores.masked_fill_(padding, -1).topk(count).indices  # [T, ways, count]
        return pictures[classes.unsqueeze(-1), places]
