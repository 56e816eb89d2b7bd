"""What an outer algorithm is: settings, and the step that they make for a learner."""

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

Metrics: TypeAlias = dict[str, float]  # by name, as metrics.jsonl has them


class Moment(NamedTuple):
    """When a step is taken: after this many iterations, which are this share of the run."""

    iteration: int
    share: float


class Length(NamedTuple):
    """How long a run may get."""

    iterations: int
    minutes: float | None


class Block(Protocol):
    """Some batches that were drawn together.

    count:   how many
    metrics: what is known of them before any step
    """

    @property
    def count(self) -> int: ...

    @property
    def metrics(self) -> Metrics: ...

    def __getitem__(self, number: int) -> Any:
        """One of the batches."""
        ...

    def fault(self, number: int) -> str | None:
        """Which number of that batch is not finite, in words; None: all are, so the data are not to blame."""
        ...


class OuterStep(ABC):
    """Outer iterations on one learner, whose parameters they update in place."""

    @property
    def loops(self) -> bool:
        """Whether many steps in one call of `take` cost less than one by one."""
        return False

    @abstractmethod
    def __call__(self, batch: Any) -> Metrics:
        """Take one step on a batch of tasks; what it did. A "loss" among it must be finite, or the run ends."""

    def take(self, block: Block, start: int, moments: Sequence[Moment]) -> list[Metrics]:
        """A step on each batch of the block from `start` on, one for each moment."""
        return [self(block[number]) for number, _ in enumerate(moments, start)]

    def spread(self, ranks: Ranks) -> bool:
        """Take the steps together with other ranks, each on its share of a batch, if they can be taken so.

        If not, every rank takes them on the whole batch, which is right, but no faster.
        """
        return False

    def now(self) -> Metrics:
        """What a line of metrics holds in addition to the means over its steps."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on in addition to the learner, by name, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027  # a step without a state needs none
        """Restore what `state` returned."""


class Outer(Built, ABC):
    """The settings of an outer algorithm; frozen dataclasses.

    takes:    the class of batches that its steps take: `TaskBatch`, or `MetaBatch` of episodes.
    chunk:    tasks at a time, if the algorithm can bound its memory this way; validation does the same.
    cooldown: last share of the run, in which steps shrink; a run that is made longer resumes from before it.
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
        """Whether its steps on this learner can compute with our kernels; config.json then says which they did."""
        return False

    def as_config(self) -> dict[str, Any]:
        """What config.json says: a run folder is tied to it. `updates` are told by the source of the episodes."""
        settings: dict[str, Any] = asdict(self)  # type: ignore[call-overload]  # subclasses are dataclasses
        settings.pop("updates", None)
        return {"outer": type(self).__name__, "outer_settings": settings}


def outer_of(config: Mapping[str, Any]) -> str:
    """The name of a run's outer algorithm by its config.json, which earlier versions did not say."""
    return config.get("outer", "TRPO" if "trust_region" in config else "Adam")
