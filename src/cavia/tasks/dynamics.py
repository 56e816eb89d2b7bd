"""Dynamical systems: a task is a system with its own parameters, a point is one of its trajectories."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_one_of, require_positive, shown
from cavia.kinds import checked
from cavia.machine import require_memory
from cavia.tasks.batch import SPLITS, TaskBatch, TaskFamily
from cavia.tasks.integrating import rk4
from cavia.tasks.points import Array, as_tensor

LAST_SEED = 2**31 - 1  # of NumPy's generator: the seeds of the benchmark's test trajectories count down from it
VALIDATION_SEED = 10_000  # the seeds of our validation trajectories count up from it
MOST = 1000  # trajectories per system
Systems: TypeAlias = dict[str, list[tuple[float, ...]]]


@dataclass(frozen=True)
class Dynamics(TaskFamily):
    """Systems of one kind, simulated in float64, and trajectories of each.

    A point is a trajectory. Its x is {"state": [T, N, W, D], "times": [T, N, W, S]}, its y the states at these times,
    [T, N, W, S, D]. W counts windows: a whole trajectory is one window of `steps` times; cut into windows of 1, every
    state but the last starts a window whose y is the next state.

    The systems of "train" have a few known trajectories each; support and query are drawn from them. Those of "val"
    and "test" are new systems: support trajectories are known, query trajectories are others, always whole.

    known:          make "val" and "test" the training systems, with their known trajectories as support.
    support_window: times in a window of a support trajectory; None: all.
    query_window:   times in a window of a query trajectory in training; None: all.
    """

    known: bool = False
    support_window: int | None = None
    query_window: int | None = None

    support = 1
    query = 3

    names: ClassVar[tuple[str, ...]]  # of the parameters that differ between systems
    systems: ClassVar[Systems]  # split → parameters of its systems
    ranges: ClassVar[tuple[tuple[float, float], ...]]  # of the initial states, drawn uniformly
    dt: ClassVar[float]
    steps: ClassVar[int]
    trajectories: ClassVar[int]  # known ones of each training system
    substeps: ClassVar[int] = 50  # of the simulation, per dt

    def __post_init__(self) -> None:
        for name in ("support_window", "query_window"):
            if getattr(self, name) is not None:
                require_at_least(name, getattr(self, name), 1, self.steps)

    @staticmethod
    @abstractmethod
    def derivative(state: Tensor, parameters: Tensor) -> Tensor:
        """The true field: state [..., D] and parameters [..., P] → [..., D]."""

    @checked
    def sample(
        self, tasks: int, support: int, query: int, generator: torch.Generator, split: str = "train"
    ) -> TaskBatch:
        """`tasks` systems, none repeated before all were drawn; their parameters [T] are attributes."""
        for name, value in (("support", support), ("query", query)):
            require_at_least(name, value, 1, MOST)
        require_at_least("tasks", tasks, 1)
        require_one_of("split", split, SPLITS)
        size = 8 * tasks * (support + query) * self.steps**2 * len(self.ranges)
        require_memory(size, f"tasks={tasks} with support={support} and query={query}")
        parameters = torch.tensor(self.systems["train" if self.known else split], dtype=torch.float64)
        which = self._permutations(len(parameters), tasks, generator)
        if split == "train":
            if max(support, query) > self.trajectories:
                raise CaviaError(
                    f"a training system has {self.trajectories} trajectories, got support={support} and query={query}"
                )
            states = self._states(parameters, _seeds("known", self.trajectories))
            order = torch.stack([torch.randperm(self.trajectories, generator=generator) for _ in range(tasks)])
            chosen = order[:, :support], order[:, self.trajectories - query :]  # disjoint, if there are enough
            pools = [states[which.unsqueeze(1), one] for one in chosen]
        else:
            kind = "known" if self.known or split == "test" else "val"
            kinds = ((kind, support), ("test query" if split == "test" else "val query", query))
            pools = [self._states(parameters, _seeds(*one))[which] for one in kinds]
        window = self.query_window if split == "train" else None
        return self._batch(parameters[which], pools[0], pools[1], window)

    @checked
    def of(self, parameters: Array, support: int, query: int, generator: torch.Generator) -> TaskBatch:
        """Systems with parameters of your choice, [T, P], and new trajectories of each; the query is always whole."""
        parameters = as_tensor("parameters", parameters).double()
        if parameters.ndim != 2 or parameters.shape[1] != len(self.names) or not parameters.isfinite().all():
            names = ", ".join(self.names)
            raise CaviaError(f"parameters must be finite [T, {len(self.names)}] ({names}), got {shown(parameters)}")
        for name, value in (("support", support), ("query", query)):
            require_at_least(name, value, 1, MOST)
        sizes = len(parameters), support + query, len(self.ranges)
        require_memory(
            8 * math.prod(sizes) * self.steps, f"{len(parameters)} systems of {support + query} trajectories"
        )
        start = torch.rand(sizes, generator=generator, dtype=torch.float64)
        states = self.simulate(parameters, self._scaled(start))
        return self._batch(parameters, states[:, :support], states[:, support:], None)

    @classmethod
    def simulate(cls, parameters: Tensor, start: Tensor) -> Tensor:
        """Trajectories of systems with parameters [T, P] from initial states [T, N, D]: [T, N, 1 + steps, D]."""
        times = cls.dt * torch.arange(1, cls.steps + 1, dtype=torch.float64).expand(*start.shape[:2], -1)
        of_each = parameters.double().unsqueeze(1)
        states = rk4(lambda state: cls.derivative(state, of_each), start.double(), times, cls.substeps)
        return torch.stack([start, *states], 2).float()

    @classmethod
    def _scaled(cls, share: Tensor) -> Tensor:
        """Initial states [..., D] from numbers between 0 and 1."""
        low, high = torch.tensor(cls.ranges, dtype=torch.float64).unbind(-1)
        return low + share * (high - low)

    @classmethod
    def _states(cls, parameters: Tensor, seeds: tuple[int, ...]) -> Tensor:
        """Trajectories of the systems with these parameters [S, P]: [S, seeds, 1 + steps, D]."""
        return _simulated(cls, tuple(map(tuple, parameters.tolist())), seeds)

    def _batch(self, parameters: Tensor, support: Tensor, query: Tensor, window: int | None) -> TaskBatch:
        attributes = dict(zip(self.names, parameters.float().unbind(-1), strict=True))
        known, asked = windows(support, self.dt, self.support_window), windows(query, self.dt, window)
        return TaskBatch(*known, *asked, attributes=attributes)

    @staticmethod
    def _permutations(systems: int, tasks: int, generator: torch.Generator) -> Tensor:
        rounds = [torch.randperm(systems, generator=generator) for _ in range(-(-tasks // systems))]
        return torch.cat(rounds)[:tasks]


@checked
def windows(states: Array, dt: float, length: int | None = None) -> tuple[dict[str, Tensor], Tensor]:
    """x and y of trajectories [T, N, 1 + steps, D], whose states are `dt` apart, for a `cavia.Flow`.

    length: cut into windows of this many times, one from every state with enough states after it; None: whole, W = 1.
    Returns {"state": [T, N, W, D], "times": [T, N, W, length]} and the states at these times, [T, N, W, length, D].

    >>> x, y = windows(torch.rand(3, 4, 20, 2), dt=0.5, length=1)
    >>> x["state"].shape, x["times"].shape, y.shape
    (torch.Size([3, 4, 19, 2]), torch.Size([3, 4, 19, 1]), torch.Size([3, 4, 19, 1, 2]))
    """
    states = as_tensor("states", states)
    if states.ndim != 4 or states.shape[2] < 2 or not states.is_floating_point():
        raise CaviaError(f"states must be floating-point [T, N, 2 or more, D], got {shown(states)}")
    steps = states.shape[2] - 1
    length = steps if length is None else require_at_least("length", length, 1, steps)
    cut = states.unfold(2, 1 + length, 1).transpose(-1, -2)  # [T, N, W, 1 + length, D]
    times = require_positive("dt", dt) * torch.arange(1, length + 1, device=states.device, dtype=states.dtype)
    x = {"state": cut[..., 0, :].contiguous(), "times": times.expand(*cut.shape[:3], -1).contiguous()}
    return x, cut[..., 1:, :].contiguous()


def _seeds(kind: str, count: int) -> tuple[int, ...]:
    """NumPy's seeds for this many initial states."""
    start, sign = {
        "known": (0, 1),
        "test query": (LAST_SEED, -1),
        "val": (VALIDATION_SEED, 1),
        "val query": (VALIDATION_SEED + MOST, 1),
    }[kind]
    return tuple(start + sign * i for i in range(count))


@lru_cache(maxsize=64)
def _simulated(kind: type[Dynamics], systems: tuple[tuple[float, ...], ...], seeds: tuple[int, ...]) -> Tensor:
    """The trajectories of each system from the initial states of these seeds: [systems, seeds, 1 + steps, D]."""
    drawn = np.stack([np.random.RandomState(seed).random_sample(len(kind.ranges)) for seed in seeds])
    start = kind._scaled(torch.from_numpy(drawn)).expand(len(systems), -1, -1)
    return kind.simulate(torch.tensor(systems, dtype=torch.float64), start)


def _grid(*values: tuple[float, ...]) -> list[tuple[float, ...]]:
    return list(product(*values))


@dataclass(frozen=True)
class LotkaVolterra(Dynamics):
    """Prey and predators, ẋ = α x − β x y, ẏ = δ x y − γ y, as in CoDA (Kirchmeyer et al. 2022).

    α = γ = 0.5; β and δ vary. 9 systems to train on, with 4 trajectories each; 4 new ones; 20 states every 0.5.
    Initial states are CoDA's own, the same for all systems, drawn from [1, 2]².
    """

    names = ("beta", "delta")
    systems: ClassVar[Systems] = {
        "train": _grid((0.5, 0.75, 1.0), (0.5, 0.75, 1.0)),
        "val": _grid((0.6, 0.9, 1.1), (0.6, 0.9, 1.1)),
        "test": _grid((0.625, 1.125), (0.625, 1.125)),
    }
    ranges = ((1.0, 2.0), (1.0, 2.0))
    dt, steps, trajectories = 0.5, 19, 4

    @staticmethod
    def derivative(state: Tensor, parameters: Tensor) -> Tensor:
        (x, y), (beta, delta) = state.unbind(-1), parameters.unbind(-1)
        return torch.stack([0.5 * x - beta * x * y, delta * x * y - 0.5 * y], -1)

    @staticmethod
    def conserved(state: Tensor, parameters: Tensor) -> Tensor:
        """The quantity conserved along a trajectory, δ x − γ log x + β y − α log y: [..., 2] twice → [...]."""
        (x, y), (beta, delta) = state.unbind(-1), parameters.unbind(-1)
        return delta * x - 0.5 * x.log() + beta * y - 0.5 * y.log()


@dataclass(frozen=True)
class Glycolysis(Dynamics):
    """Yeast glycolysis with seven concentrations, as in CoDA; k₁ and K₁ vary.

    9 systems to train on, with 32 trajectories each; 4 new ones; 20 states every 0.05.
    """

    names = ("k1", "K1")
    systems: ClassVar[Systems] = {
        "train": _grid((100.0, 90.0, 80.0), (1.0, 0.75, 0.5)),
        "val": _grid((82.0, 88.0, 97.0), (0.55, 0.7, 0.95)),
        "test": _grid((85.0, 95.0), (0.625, 0.875)),
    }
    ranges = ((0.15, 1.60), (0.19, 2.16), (0.04, 0.20), (0.10, 0.35), (0.08, 0.30), (0.14, 2.67), (0.05, 0.10))
    dt, steps, trajectories = 0.05, 19, 32

    @staticmethod
    def derivative(state: Tensor, parameters: Tensor) -> Tensor:
        s1, s2, s3, s4, s5, s6, s7 = state.unbind(-1)
        k1, inhibition = parameters.unbind(-1)
        first = k1 * s1 * s6 / (1 + (s6 / inhibition) ** 4)
        second, third = 6 * s2 * (1 - s5), 16 * s3 * (4 - s6)
        fourth, sixth, out = 100 * s4 * s5, 12 * s2 * s5, 13 * (s4 - s7)
        return torch.stack(
            [
                2.5 - first,
                2 * first - second - sixth,
                second - third,
                third - fourth - out,
                second - fourth - sixth,
                -2 * first + 2 * third - 1.28 * s6,
                0.1 * out - 1.8 * s7,
            ],
            -1,
        )


BANDS = ((-1.0, -0.25), (-0.1, 0.1), (0.25, 1.0))  # of b in Sel'kov's model, seven systems in each


@dataclass(frozen=True)
class Selkov(Dynamics):
    """Sel'kov's model of glycolysis, ẋ = −x + a y + x² y, ẏ = b − a y − x² y, as in NCF (Nzoyem et al. 2025).

    a = 0.1; b varies, and decides whether there is a limit cycle. 21 systems to train on, with 4 trajectories each;
    6 new ones; 11 states every 4.
    """

    names = ("b",)
    systems: ClassVar[Systems] = {
        "train": _grid(tuple(round(low + i * (high - low) / 6, 6) for low, high in BANDS for i in range(7))),
        "val": _grid((-1.1, -0.4, -0.02, 0.08, 0.7, 1.1)),
        "test": _grid((-1.25, -0.65, -0.05, 0.02, 0.6, 1.2)),
    }
    ranges = ((0.0, 3.0), (0.0, 3.0))
    dt, steps, trajectories, substeps = 4.0, 10, 4, 400

    @staticmethod
    def derivative(state: Tensor, parameters: Tensor) -> Tensor:
        (x, y), b = state.unbind(-1), parameters[..., 0]
        flow = 0.1 * y + x.square() * y
        return torch.stack([flow - x, b - flow], -1)
