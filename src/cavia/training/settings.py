"""What makes a training run the run it is: the settings that a run folder is tied to."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cavia.errors import CaviaError, require_at_least, require_one_of, require_positive

PRECISIONS = ("float32", "bf16")
LATER = {"cooldown": 0.0, "precision": "float32"}  # settings that earlier versions did not have, and what they did


@dataclass(frozen=True)
class FitSettings:
    """The arguments of `cavia.fit` that decide its outcome; see there."""

    tasks_per_batch: int
    support: int | Sequence[int]
    query: int
    lr: float
    lr_decay: float
    lr_decay_every: int
    cooldown: float
    clip: float | None
    seed: int
    every: int
    validation_tasks: int
    validation_query: int
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("tasks_per_batch", "lr_decay_every", "every"):
            require_at_least(name, getattr(self, name), 1)
        for name in ("query", "validation_query", "validation_tasks", "seed"):
            require_at_least(name, getattr(self, name), 0)
        for name in ("lr", "lr_decay", *(["clip"] if self.clip is not None else [])):
            require_positive(name, getattr(self, name))
        for count in self.support_counts:
            require_at_least("support", count, 1)
        if not 0 <= self.cooldown <= 1:
            raise CaviaError(f"cooldown must be a share of the run, from 0 to 1, got {self.cooldown}")
        if not self.support_counts:
            raise CaviaError("support must name at least one number of points, got none")
        require_one_of("precision", self.precision, PRECISIONS)

    @property
    def support_counts(self) -> list[int]:
        """The numbers of support points that a batch may have."""
        return list(self.support) if isinstance(self.support, Sequence) else [self.support]

    def as_config(self) -> dict[str, Any]:
        """By name, as config.json has them: without those that do what earlier versions did, whose folders go on."""
        return {name: value for name, value in asdict(self).items() if name not in LATER or value != LATER[name]}

    def lr_at(self, iteration: int, share: float) -> float:
        """The outer learning rate after so many iterations, which are this share of the run."""
        decayed = self.lr * self.lr_decay ** (iteration // self.lr_decay_every)
        return decayed * min(1.0, (1 - share) / self.cooldown) if self.cooldown else decayed
