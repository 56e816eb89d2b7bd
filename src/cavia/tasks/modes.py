"""Curves of several kinds: a distribution of tasks with many modes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cavia.errors import CaviaError, closest, require_at_least, require_one_of
from cavia.kinds import checked
from cavia.machine import require_memory
from cavia.tasks.batch import SPLITS, TaskBatch, TaskFamily

X = (-5.0, 5.0)
Curve = Callable[[Tensor, Tensor], Tensor]  # x [T, N, 1] and four numbers of each task between 0 and 1 [T, 1, 4] → y


def _between(low: float, high: float, share: Tensor) -> Tensor:
    return low + (high - low) * share


def _steepness(share: Tensor) -> Tensor:
    """From 0.02 to 0.15, up or down."""
    return torch.where(share < 0.5, -1.0, 1.0) * _between(0.02, 0.15, (2 * share) % 1)


def _wave(n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Amplitude, frequency and phase, [T, 1, 1] each."""
    return (
        _between(0.1, 5, n[..., :1]),
        _between(0.5, 2.0, n[..., 1:2]),
        _between(0, 2 * math.pi, n[..., 2:3]),
    )


def _shift(n: Tensor) -> tuple[Tensor, Tensor]:
    return _between(-3, 3, n[..., 1:2]), _between(-3, 3, n[..., 2:3])


def _sine(x: Tensor, n: Tensor) -> Tensor:
    amplitude, frequency, phase = _wave(n)
    return amplitude * (frequency * x + phase).sin()


def _line(x: Tensor, n: Tensor) -> Tensor:
    return _between(-3, 3, n[..., :1]) * x + _between(-3, 3, n[..., 1:2])


def _quadratic(x: Tensor, n: Tensor) -> Tensor:
    centre, height = _shift(n)
    return _steepness(n[..., :1]) * (x - centre).square() + height


def _l1(x: Tensor, n: Tensor) -> Tensor:
    centre, height = _shift(n)
    return _steepness(n[..., :1]) * (x - centre).abs() + height


def _sawtooth(x: Tensor, n: Tensor) -> Tensor:
    amplitude, frequency, phase = _wave(n)
    return amplitude * (2 * ((frequency * x + phase) / (2 * math.pi) % 1) - 1)


WAVES, PARAMETERS = ("sine", "sawtooth"), ("amplitude", "frequency", "phase")
KINDS: dict[str, Curve] = {
    "sine": _sine,
    "line": _line,
    "quadratic": _quadratic,
    "l1": _l1,
    "sawtooth": _sawtooth,
}


@dataclass(frozen=True)
class Modes(TaskFamily):
    """Curves of several kinds, one kind per task, with x from [-5, 5].

    sine:      A sin(ω x + b), A from 0.1 to 5, ω from 0.5 to 2, b from 0 to 2π
    line:      A x + b, both from -3 to 3
    quadratic: A (x − c)² + b, |A| from 0.02 to 0.15, b and c from -3 to 3
    l1:        A |x − c| + b, likewise
    sawtooth:  from −A to A, with the period and phase of a sine

    The first four are those of Vuorio et al. (2019), without noise. Learners do not see the kind; the attribute
    "kind" is its index in `kinds`. Query points are spread as for `Sine`. A family of only sines and sawtooths also has
    the attributes "amplitude", "frequency" and "phase": A, ω and b.

    >>> batch = Modes().sample(tasks=25, support=10, query=10, generator=torch.Generator().manual_seed(0))
    >>> batch.support_x.shape, batch.attributes["kind"].shape
    (torch.Size([25, 10, 1]), torch.Size([25]))
    """

    kinds: tuple[str, ...] = tuple(KINDS)
    draws_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(map(str, self.kinds)))
        if not self.kinds:
            raise CaviaError(f"kinds must name at least one of {', '.join(KINDS)}, got none")
        for kind in self.kinds:
            if kind not in KINDS:
                raise CaviaError(f"kinds has no {kind!r}; {closest(kind, KINDS)}")

    @checked
    def sample(
        self, tasks: int, support: int, query: int, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """Points [T, support or query, 1] of `tasks` new curves."""
        for name, value in (("tasks", tasks), ("support", support), ("query", query)):
            require_at_least(name, value, 1)
        require_one_of("split", split, SPLITS)
        require_memory(
            8 * len(self.kinds) * tasks * (support + query), f"tasks={tasks} with support={support} and query={query}"
        )
        device = generator.device
        kind = torch.randint(len(self.kinds), (tasks,), generator=generator, device=device)
        numbers = torch.rand(tasks, 1, 4, generator=generator, device=device)
        x = _between(*X, torch.rand(tasks, support + query, 1, generator=generator, device=device))
        if split != "train":
            spread = torch.linspace(*X, query, device=device).view(1, query, 1).expand(tasks, -1, -1)
            x = torch.cat([x[:, :support], spread], 1)
        every = torch.stack([KINDS[name](x, numbers) for name in self.kinds])  # [kinds, T, N, 1]
        y = every[kind, torch.arange(tasks, device=device)]
        known = {"kind": kind}
        if set(self.kinds) <= set(WAVES):
            known |= {name: value.flatten() for name, value in zip(PARAMETERS, _wave(numbers), strict=True)}
        return TaskBatch(x[:, :support], y[:, :support], x[:, support:], y[:, support:], attributes=known)
