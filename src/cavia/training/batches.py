"""The batches of a training run on tasks of points, drawn many at a time where that is cheaper."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from cavia import building
from cavia.errors import require_at_least
from cavia.evaluation.evaluate import device_of, evaluate
from cavia.learners.base import Learner
from cavia.tasks.batch import TaskBatch, TaskFamily
from cavia.tasks.share import Share
from cavia.training.feed import Feed, Scored, Sizes, Validation, describe_source
from cavia.training.outer import Metrics

POINTS_AHEAD, MOST_AHEAD = 50_000, 100  # upper limits of points and batches per block, which should fit into the cache


@dataclass(frozen=True)
class TaskBlock:
    """`count` batches drawn together: count · T tasks, T per batch.

    share: this rank's tasks of each batch, if other ranks have the rest.
    """

    tasks: TaskBatch
    count: int
    metrics: Metrics = field(default_factory=dict)
    share: Share | None = None

    def __getitem__(self, number: int) -> TaskBatch:
        """One of the batches, or this rank's share of it."""
        whole = self._whole(number)
        return whole if self.share is None else whole.part(self.share.start, self.share.stop)

    def fault(self, number: int) -> str | None:
        return self._whole(number).fault()

    def _whole(self, number: int) -> TaskBatch:
        if self.count == 1:
            return self.tasks
        size = len(self.tasks) // self.count
        return self.tasks.part(number * size, (number + 1) * size)


class TaskFeed(Feed):
    """Batches from a task family."""

    gives = TaskBatch

    def __init__(
        self,
        learner: Learner,
        family: TaskFamily,
        tasks_per_batch: int | None = None,
        support: int | Sequence[int] | None = None,
        query: int | None = None,
        validation: Validation | None = None,
        seed: int = 0,
        chunk: int | None = None,
    ):
        """chunk: tasks at a time in validation."""
        sizes = Sizes(
            25 if tasks_per_batch is None else tasks_per_batch,
            (family.support or 10) if support is None else support,
            (family.query or 10) if query is None else query,
        )
        super().__init__(learner, sizes, (validation or Validation()).filled(100, 500, sizes.query), seed)
        self.family, self.chunk = family, chunk
        self.device = device_of(learner)
        self.may_draw = building.module_of(type(family)) is not None
        self.waits, self.line_every = self.device.type != "cpu", self.validation.every

    def begin(self, begun: Mapping[str, Any] | None) -> None:
        self.ahead = batches_ahead(self.family, self.sizes)
        if begun is not None:
            self.ahead = require_at_least("batches_ahead in config.json", begun.get("batches_ahead", 1), 1, MOST_AHEAD)
        self.used = self.ahead

    def as_config(self) -> dict[str, Any]:
        return {
            "family": describe_source(self.family),
            **asdict(self.sizes),
            "seed": self.seed,
            "every": self.validation.every,
            "validation_tasks": self.validation.tasks,
            "validation_query": self.validation.query,
            **({"batches_ahead": self.ahead} if self.ahead > 1 else {}),
        }

    def draw(self) -> TaskBlock:
        counts = self.sizes.support_counts
        choice = 0 if len(counts) == 1 else int(torch.randint(len(counts), (), generator=self.generator))
        tasks = self.sizes.tasks_per_batch * self.ahead
        batch = self.family.sample(tasks, counts[choice], self.sizes.query, self.generator)
        return TaskBlock(batch.to(self.device), self.ahead, share=self.share)

    def validate(self) -> Scored:
        results = [
            evaluate(
                self.learner,
                self.family,
                tasks=self.validation.tasks,
                support=count,
                query=self.validation.query,
                seed=self.seed,
                split="val",
                chunk=self.chunk,
            )
            for count in sorted(set(self.sizes.support_counts))
        ]
        score = sum(result.mean[-1].item() for result in results) / len(results)
        return Scored(score, results[0].higher_is_better, {})


def batches_ahead(family: TaskFamily, sizes: Sizes) -> int:
    """How many batches of a new run are drawn at once: more than one where the family says so (`draws_ahead`)."""
    if not _draws_ahead(family) or len(sizes.support_counts) > 1:
        return 1
    points = sizes.tasks_per_batch * (sizes.support_counts[0] + sizes.query)
    return max(1, min(MOST_AHEAD, POINTS_AHEAD // points))


def _draws_ahead(family: TaskFamily) -> bool:
    """Ask the class that defines `sample`: a subclass that overrides it must declare `draws_ahead` itself."""
    of_its_own = (kind for kind in type(family).__mro__ if vars(kind).keys() & {"draws_ahead", "sample"})
    return bool(vars(next(of_its_own, object)).get("draws_ahead", False))
