"""The contract of an outer algorithm: settings, and the step that they build for a learner."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from torch import Tensor

from cavia.building import Built
from cavia.learners.acting import Updates
from cavia.learners.base import Learner
from cavia.tasks.batch import TaskBatch
from cavia.training.ranks import Ranks

Metrics: TypeAlias = dict[str, float]  # by name, as in metrics.jsonl


class Moment(NamedTuple):
    """When a step is taken: after this many iterations, which are this share of the run."""

    iteration: int
    share: float


class Length(NamedTuple):
    """The limits of a run's length."""

    iterations: int
    minutes: float | None


class Block(Protocol):
    """Batches that were drawn together.

    count:   how many
    metrics: known before any step
    """

    @property
    def count(self) -> int: ...

    @property
    def metrics(self) -> Metrics: ...

    def __getitem__(self, number: int) -> Any:
        """One of the batches."""
        ...

    def fault(self, number: int) -> str | None:
        """Describes a number of that batch that cannot be computed with; None: the data are not at fault."""
        ...


class OuterStep(ABC):
    """Outer iterations on one learner, whose parameters they update in place."""

    @property
    def loops(self) -> bool:
        """Whether many steps in one call of `take` are faster than one by one."""
        return False

    @abstractmethod
    def __call__(self, batch: Any) -> Metrics:
        """Take one step on a batch of tasks; returns metrics. A "loss" among them must be finite, or the run ends."""

    def take(self, block: Block, start: int, moments: Sequence[Moment]) -> list[Metrics]:
        """Take one step per moment, on the batches of the block from `start` on."""
        return [self(block[number]) for number, _ in enumerate(moments, start)]

    def spread(self, ranks: Ranks) -> bool:
        """Share the steps with other ranks, each on its part of a batch; returns whether that is possible.

        If not, every rank takes them on the whole batch, which is correct but no faster.
        """
        return False

    def now(self) -> Metrics:
        """What a line of metrics holds besides the means over its steps."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on besides the learner, by name, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027  # a step without a state needs none
        """Restore what `state` returned."""


class Outer(Built, ABC):
    """The settings of an outer algorithm; frozen dataclasses.

    takes:    the class of batches that its steps take: `TaskBatch`, or `MetaBatch` of episodes.
    chunk:    tasks at a time, if the algorithm can bound its memory this way; validation does the same.
    cooldown: final share of the run, in which steps shrink; an extended run resumes from before it.
    updates:  how a policy's inner updates are made, if steps take episodes.
    """

    takes: ClassVar[type] = TaskBatch
    chunk: int | None = None
    cooldown: float = 0.0
    updates: Updates = Updates()

    @abstractmethod
    def step(self, learner: Learner, length: Length) -> OuterStep:
        """The steps for this learner in a run of that length."""

    def check(self, learner: Learner) -> None:  # most have nothing to refuse
        """Raise if the settings do not suit the learner."""

    def has_kernel(self, learner: Learner) -> bool:
        """Whether its steps on this learner can use our kernels; config.json then records which was used."""
        return False

    def as_config(self) -> dict[str, Any]:
        """The entries of config.json, which tie a run folder to them. The source of the episodes records `updates`."""
        settings: dict[str, Any] = asdict(self)  # type: ignore[call-overload]  # subclasses are dataclasses
        settings.pop("updates", None)
        return {"outer": type(self).__name__, "outer_settings": settings}


def outer_of(config: Mapping[str, Any]) -> str:
    """The name of a run's outer algorithm by its config.json; earlier versions did not record it."""
    return config.get("outer", "TRPO" if "trust_region" in config else "Adam")
