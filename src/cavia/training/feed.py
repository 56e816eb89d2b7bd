"""The source of a run's batches, and the model's score on validation tasks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from cavia.errors import CaviaError, require_at_least
from cavia.kinds import checked
from cavia.learners.base import Learner
from cavia.tasks.batch import seeded_generator
from cavia.tasks.share import Share
from cavia.training.outer import Block, Metrics
from cavia.training.ranks import ALONE, Ranks


@checked
@dataclass(frozen=True)
class Validation:
    """How a run chooses its best model, which the learner holds at the end.

    tasks: of the split "val", 100 by default, in an environment 20; 0: no validation, the last model stays.
    every: iterations between validations and checkpoints, 500 by default, in an environment 10.
    query: query points, or episodes after adaptation, of each of the tasks; by default as many as in training.
    """

    tasks: int | None = None
    every: int | None = None
    query: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("validation tasks", self.tasks, 0),
            ("every", self.every, 1),
            ("validation query", self.query, 0),
        ):
            if value is not None:
                require_at_least(name, value, least)

    def filled(self, tasks: int, every: int, query: int) -> "Filled":
        """Fill in these defaults for whatever is not set."""
        return Filled(
            tasks if self.tasks is None else self.tasks,
            every if self.every is None else self.every,
            query if self.query is None else self.query,
        )


class Filled(NamedTuple):
    """A `Validation` with every field set."""

    tasks: int
    every: int
    query: int


class Scored(NamedTuple):
    """A model's score on the validation tasks, whether higher is better, and further metrics to log."""

    score: float
    higher_is_better: bool
    metrics: Metrics


@dataclass(frozen=True)
class Sizes:
    """The sizes of a batch.

    tasks_per_batch: T
    support, query:  points per task, or episodes before each inner step and after the last. Given several numbers for
                     support, one is drawn for each batch.
    """

    tasks_per_batch: int
    support: int | Sequence[int]
    query: int

    def __post_init__(self) -> None:
        require_at_least("tasks_per_batch", self.tasks_per_batch, 1)
        require_at_least("query", self.query, 0)
        for count in self.support_counts:
            require_at_least("support", count, 1)
        if not self.support_counts:
            raise CaviaError("support must name at least one number of points, got none")

    @property
    def support_counts(self) -> list[int]:
        """The possible numbers of support points of a batch."""
        return list(self.support) if isinstance(self.support, Sequence) else [self.support]


class Feed(ABC):
    """The batches of a run, one after the other, and its validation.

    gives:      the class of the batches.
    share:      this rank's share of each batch, if other ranks have the rest; every rank draws the whole batch's
                random numbers.
    may_draw:   whether the source may draw from PyTorch's global generator, besides the one that it is given.
    waits:      whether the process waits for other devices or threads, so that wall-clock time counts, not CPU time.
    line_every: iterations between lines of metrics.
    """

    gives: ClassVar[type]
    ranks: Ranks = ALONE
    share: Share | None = None
    may_draw: bool = True
    waits: bool
    line_every: int

    def __init__(self, learner: Learner, sizes: Sizes, validation: Filled, seed: int):
        self.learner, self.sizes, self.validation = learner, sizes, validation
        self.seed = require_at_least("seed", seed, 0)
        self.generator = seeded_generator(self.seed, "train")
        self.ahead = 1  # batches drawn at once. The numbers drawn depend on it, so a run keeps its initial value
        self.used = 1  # batches of the block that are used
        self._before = self.generator.get_state()  # the state that the block was drawn from

    def begin(self, begun: Mapping[str, Any] | None) -> None:  # noqa: B027  # most need no setup
        """Draw as config.json says the resumed run did; None: a new run, choose the fastest way."""

    def spread(self, ranks: Ranks) -> None:
        """Give this rank its share of each batch."""
        if not ranks.alone:
            self.ranks, self.share = ranks, ranks.share(self.sizes.tasks_per_batch)

    @abstractmethod
    def as_config(self) -> dict[str, Any]:
        """The entries of config.json; a run folder only resumes with the same ones."""

    @abstractmethod
    def draw(self) -> Block:
        """The next `ahead` batches."""

    @abstractmethod
    def validate(self) -> Scored:
        """Score the learner on the validation tasks."""

    def following(self) -> tuple[Block, int]:
        """The block that holds the next batch, and the batch's position in it."""
        if self.used == self.ahead:
            self._draw()
        return self._block, self.used

    def _draw(self) -> None:
        if self.ahead > 1:
            self._before = self.generator.get_state()
        self._block, self.used = self.draw(), 0

    def state(self) -> tuple[Tensor, int]:
        """The generator's state before the block, and how many batches of the block are used."""
        return (self.generator.get_state(), 0) if self.used == self.ahead else (self._before, self.used)

    def load_state(self, generator: Tensor, used: int) -> None:
        """Restore what `state` returned."""
        self.generator.set_state(generator)
        self.used = self.ahead
        if used:
            self._draw()
            self.used = used

    def source_state(self) -> dict[str, Tensor]:
        """The source's own state."""
        return {}

    def load_source_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027  # most have no state
        """Restore what `source_state` returned."""


def describe_source(source: Any) -> dict[str, Any]:
    """The config.json entry of a family or environment."""
    return {"class": type(source).__name__, "settings": source.settings}
