"""What every training run does, whatever its outer step: resume, keep the best model, checkpoint, stop."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, Diverged
from cavia.learners.base import Learner
from cavia.tasks.batch import seeded_generator
from cavia.training.checkpoint import RunFolder, TrainingState

CHECKPOINT_AFTER = 150.0  # seconds: what a crash costs at most, and the validation after it
ADVICE = "try a smaller inner_lr or lr"


@dataclass(frozen=True)
class FitResult:
    """How a training run ended; the learner holds its best model."""

    iterations: int
    loss: float | None  # mean over the last interval
    best_score: float | None  # on the validation tasks
    best_iteration: int
    seconds: float


class Run(ABC):
    """The state of one call of `fit` or `fit_policy`.

    config:  what the run folder is tied to.
    seconds: after which the run ends, by its clock.
    """

    def __init__(
        self,
        learner: Learner,
        iterations: int,
        seconds: float,
        seed: int,
        folder: RunFolder | None,
        config: dict[str, Any],
    ):
        self.learner, self.iterations, self.seconds = learner, iterations, seconds
        self.generator = seeded_generator(seed, "train")
        self.state = TrainingState()
        self.folder = folder
        self._saved = time.monotonic()
        if folder:
            begun = folder.recorded()
            if begun is not None and begun.get("iterations", iterations) < iterations:
                folder.go_back_before_cooldown()
            folder.claim(config, may_grow="iterations")

    @abstractmethod
    def extra(self) -> dict[str, dict[str, Tensor]]:
        """What a checkpoint holds besides the learner, the generator and the best model: group → name → tensor."""

    @abstractmethod
    def load_extra(self, groups: dict[str, dict[str, Tensor]]) -> None:
        """Restore what `extra` returned."""

    def resume(self) -> None:
        """Go on from the checkpoint in the run folder, if there is one."""
        if self.folder is None:
            return
        if found := self.folder.load():
            self.state, groups = found
            try:
                self.learner.load_state_dict(groups["learner"])
                self.generator.set_state(groups["generator"]["state"])
                _set_own_random_state(groups["generator"])
                self.load_extra(groups)
            except (RuntimeError, KeyError) as error:
                why = str(error).strip().splitlines()[-1].strip()
                raise CaviaError(f"{self.folder.checkpoint} does not fit this learner: {why}") from error
        self.folder.forget_metrics_after(self.state.iteration)

    @property
    def share(self) -> float:
        """How much of the run is done, of its iterations or of its time; at 1 it ends."""
        return max(self.state.iteration / self.iterations, self.state.seconds / self.seconds)

    def keep_if_best(self, score: float, higher_is_better: bool) -> None:
        """Keep a copy of the learner if its validation score is the best so far."""
        state, best = self.state, self.state.best_score
        if best is None or math.isnan(best) or (score > best if higher_is_better else score < best):
            state.best_score, state.best_iteration = score, state.iteration
            state.best = {name: value.clone() for name, value in self.learner.state_dict().items()}

    def check_weights(self) -> None:
        if not all(value.isfinite().all() for value in self.learner.state_dict().values()):
            raise Diverged(f"{self.who()}: a weight is not finite at iteration {self.state.iteration}; {ADVICE}")

    def checkpoint(self) -> None:
        if self.folder:
            generators = {"state": self.random_state(), **_own_random_state()}
            groups = {"learner": self.learner.state_dict(), "generator": generators}
            self.folder.save(self.state, groups | self.extra())
            self._saved = time.monotonic()

    def checkpoint_if_late(self) -> None:
        """Write a checkpoint if the last one is minutes old."""
        if self.folder and time.monotonic() - self._saved > CHECKPOINT_AFTER:
            self.checkpoint()

    def random_state(self) -> Tensor:
        """The generator's state for a checkpoint."""
        return self.generator.get_state()

    def who(self) -> str:
        """The learner as messages name it."""
        rate = self.learner.arguments.get("inner_lr")
        return type(self.learner).__name__ + ("" if rate is None else f" with inner_lr {rate:g}")

    def stopped(self) -> str:
        """Write a checkpoint, and say where the run was stopped."""
        self.checkpoint()
        where = "without a run_dir it cannot go on" if self.folder is None else "run the same again to go on"
        return f"stopped at iteration {self.state.iteration} of {self.iterations}; {where}"

    def finish(self) -> FitResult:
        """Put the best model into the learner."""
        state = self.state
        if state.best:
            self.learner.load_state_dict(state.best)
        return FitResult(state.iteration, state.loss, state.best_score, state.best_iteration, state.seconds)


@contextmanager
def own_random_numbers(seed: int) -> Iterator[None]:
    """PyTorch's own generators, which dropout draws from, start from the seed, and are put back afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _own_random_state() -> dict[str, Tensor]:
    """The state of PyTorch's own generators, by device."""
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), **{f"cuda:{i}": state for i, state in enumerate(on_gpus)}}


def _set_own_random_state(states: Mapping[str, Tensor]) -> None:
    """Restore what `_own_random_state` returned, as far as it is there."""
    if "cpu" in states:
        torch.set_rng_state(states["cpu"])
    for i in range(torch.cuda.device_count()):
        if f"cuda:{i}" in states:
            torch.cuda.set_rng_state(states[f"cuda:{i}"], i)


def describe_tasks(tasks: Any) -> dict[str, Any]:
    """What config.json says of a family or environment: its `settings` if it has such a property, else its fields."""
    settings = getattr(tasks, "settings", None)
    if settings is None:
        settings = asdict(tasks) if is_dataclass(tasks) else {}  # type: ignore[arg-type]  # an instance, not a class
    return {"class": type(tasks).__name__, "settings": settings}
