"""Sine curves: the regression problem of Section 5.1.1 of the paper."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from cavia.errors import CaviaError, require_at_least, require_one_of
from cavia.kinds import checked
from cavia.machine import require_memory
from cavia.tasks.batch import SPLITS, TaskBatch, TaskFamily

LARGEST = 1e30  # of a range: squares of its numbers are no longer float32


@dataclass(frozen=True)
class Sine(TaskFamily):
    """Curves y = A·sin(x − p) with A and p drawn uniformly for each task, and x from [-5, 5].

    The paper's text says amplitudes up to 0.5, a misprint: its errors need 5.0.

    Support points are always random. Query points are random in training; in "val" and "test" they are spread
    evenly over [-5, 5], so that a score is the error of the whole curve.

    >>> batch = Sine().sample(tasks=25, support=10, query=10, generator=torch.Generator().manual_seed(0))
    >>> batch.support_x.shape, batch.query_y.shape
    (torch.Size([25, 10, 1]), torch.Size([25, 10, 1]))
    """

    amplitude: tuple[float, float] = (0.1, 5.0)
    phase: tuple[float, float] = (0.0, math.pi)
    x: tuple[float, float] = (-5.0, 5.0)
    draws_ahead: ClassVar[bool] = True  # see `TaskFamily`

    def __post_init__(self) -> None:
        for name in ("amplitude", "phase", "x"):
            low, high = getattr(self, name)
            if not (abs(low) < LARGEST and abs(high) < LARGEST):
                raise CaviaError(f"{name} must be a finite range (low, high) below {LARGEST:g}, got ({low}, {high})")
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise CaviaError(f"{name} must be a finite range (low, high) with low <= high, got ({low}, {high})")

    @checked
    def sample(
        self, tasks: int, support: int, query: int, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """Points [T, support or query, 1] of `tasks` new curves; their amplitude and phase [T] as attributes."""
        require_at_least("tasks", tasks, 1)
        require_at_least("support", support, 1)
        require_at_least("query", query, 1)
        require_one_of("split", split, SPLITS)
        require_memory(8 * tasks * (support + query), f"tasks={tasks} with support={support} and query={query}")

        def uniform(low_high: tuple[float, float], *size: int) -> torch.Tensor:
            low, high = low_high
            return torch.rand(size, generator=generator, device=generator.device).mul_(high - low).add_(low)

        amplitude, phase = uniform(self.amplitude, tasks, 1, 1), uniform(self.phase, tasks, 1, 1)
        if split == "train":
            x = uniform(self.x, tasks, support + query, 1)
            support_x, query_x = x[:, :support], x[:, support:]
        else:
            support_x = uniform(self.x, tasks, support, 1)
            query_x = torch.linspace(*self.x, query, device=generator.device).expand(tasks, query).unsqueeze(-1)
        return TaskBatch(
            support_x,
            amplitude * torch.sin(support_x - phase),
            query_x,
            amplitude * torch.sin(query_x - phase),
            attributes={"amplitude": amplitude.flatten(), "phase": phase.flatten()},
        )
