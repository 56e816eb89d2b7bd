"""The training loop, whatever the outer step and the source: resume, validate, keep the best, checkpoint, stop."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, Diverged, Interrupted
from cavia.kinds import checked
from cavia.learners.base import Learner
from cavia.learners.rebuilding import check_fits
from cavia.randomness import OwnRandomNumbers, may_draw
from cavia.tasks.batch import seeded_generator
from cavia.training.agreement import Agreement
from cavia.training.checkpoint import RunFolder, TrainingState, unpacked
from cavia.training.feed import Feed
from cavia.training.interrupt import StopRequest
from cavia.training.outer import Metrics, Moment, OuterStep
from cavia.training.progress import Clock, Show
from cavia.training.ranks import ALONE, Ranks

CHECKPOINT_AFTER = 150.0  # seconds: the most that a crash costs, besides the validation after it
MOMENT = 0.05  # seconds: a delay of Ctrl-C that nobody notices; steps in one call must fit into it
ADVICE = "try a smaller inner_lr or lr"


@checked
@dataclass(frozen=True)
class FitResult:
    """How a training run ended; the learner holds its best model."""

    iterations: int
    loss: float | None  # mean over the last interval
    best_score: float | None  # on the validation tasks
    best_iteration: int
    seconds: float


class Run:
    """The state of one call of `fit`.

    seconds:  the run ends after this time, by its clock.
    cooldown: final share of the run, from which a longer run does not resume.
    random:   this run's state of PyTorch's global generator.
    ranks:    the processes that train it together; only the first validates and has a folder.
    """

    at_once: int = 1  # steps in a call

    def __init__(
        self,
        learner: Learner,
        feed: Feed,
        step: OuterStep,
        iterations: int,
        seconds: float = math.inf,
        cooldown: float = 0.0,
        folder: RunFolder | None = None,
        random: OwnRandomNumbers | None = None,
        ranks: Ranks = ALONE,
    ):
        self.learner, self.feed, self.step = learner, feed, step
        self.iterations, self.seconds, self.cooldown = iterations, seconds, cooldown
        self.folder, self.state = folder, TrainingState()
        self._saved = time.monotonic()
        self.random, self.ranks = random or OwnRandomNumbers(0), ranks
        # Runs that draw nothing from PyTorch's global generator need not wait for each other.
        self._draws = may_draw(learner) or callable(learner.loss) or feed.may_draw
        self._turn: Callable[[], AbstractContextManager[None]] = self.random.turn if self._draws else nullcontext

    @property
    def share(self) -> float:
        """The finished share of the run, by iterations or by time; at 1 it ends."""
        return max(self.state.iteration / self.iterations, self.state.seconds / self.seconds)

    def loop(self, show: Show, log: Callable[[Metrics], None], stop: StopRequest) -> None:
        """Run the remaining iterations."""
        state, feed = self.state, self.feed
        clock = Clock(state.seconds, waits=feed.waits)
        agreed = Agreement(self.ranks, clock, state.seconds, feed, stop)
        while self.share < 1:
            self._keep_before_cooldown()
            with self._turn():
                metrics = self._steps()
            state.seconds = agreed.seconds(state.iteration)
            is_due = state.iteration % feed.validation.every == 0 or self.share >= 1
            if is_due or state.iteration % feed.line_every == 0:
                line = self._line()
                if is_due:
                    line |= self._validate()
                    state.seconds = agreed.seconds(state.iteration, now=True)
                line["seconds"] = round(state.seconds, 3)
                log(line)
                if self.folder:
                    self.folder.append_metrics(line)
                if is_due:
                    self.checkpoint()
            if self.folder and time.monotonic() - self._saved > CHECKPOINT_AFTER:
                self.checkpoint()
            if clock.time_to_show() or self.share >= 1:
                show(clock.progress(state.iteration, self.iterations, metrics, state.score, self.share))
            if agreed.stops and self.share < 1:
                raise Interrupted(self._stopped())

    def _steps(self) -> Metrics:
        """Take as many steps as fit into `MOMENT`, up to the next line of metrics; returns the last one's metrics."""
        state, feed = self.state, self.feed
        block, first = feed.following()
        left = min(feed.line_every - state.iteration % feed.line_every, self.iterations - state.iteration)
        cooldown_at = math.ceil((1 - self.cooldown) * self.iterations)
        if state.iteration < cooldown_at:
            left = min(left, cooldown_at - state.iteration)
        count = min(self.at_once, left, block.count - first)
        late = state.seconds / self.seconds
        numbers = range(state.iteration, state.iteration + count)
        begin = time.perf_counter()
        with self._own_numbers():
            taken = self.step.take(block, first, [Moment(n, max(n / self.iterations, late)) for n in numbers])
        feed.used += count
        is_quick = self.step.loops and self.ranks.alone and time.perf_counter() - begin < MOMENT
        self.at_once = min(2 * self.at_once, block.count) if is_quick else max(1, self.at_once // 2)
        for metrics in taken:
            state.iteration += 1
            if not math.isfinite(metrics.get("loss", 0.0)):
                why = block.fault(first + state.iteration - numbers.start - 1) or self._advice()
                what = f"the loss or its gradient is {metrics['loss']} at iteration {state.iteration}"
                raise Diverged(f"{self._who()}: {what}; {why}")
            self._add(block.metrics | metrics)
        return block.metrics | taken[-1]

    def _advice(self) -> str:
        """What to do if the data are not to blame: a step that is not finite left the weights as they were."""
        for name, value in self.learner.state_dict().items():
            if not value.isfinite().all():
                return f"{name} of the learner was not finite before: start from other weights, or {ADVICE}"
        return ADVICE

    def _add(self, metrics: Metrics) -> None:
        """Add a step's metrics to the interval's sums."""
        sums = self.state.interval
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + value
        self.state.interval_count += 1

    def _line(self) -> Metrics:
        """End the interval: the means over it."""
        state = self.state
        if not all(value.isfinite().all() for value in self.learner.state_dict().values()):
            raise Diverged(f"{self._who()}: a weight is not finite at iteration {state.iteration}; {ADVICE}")
        means = {name: value / state.interval_count for name, value in state.interval.items()}
        state.interval, state.interval_count = {}, 0
        state.loss = means.get("loss")
        return {"iteration": state.iteration, **means, **self.step.now()}

    def _validate(self) -> Metrics:
        """Score the model on the validation tasks and keep a copy if it is the best so far."""
        if not self.feed.validation.tasks:
            return {}
        state, best = self.state, self.state.best_score
        if not self.ranks.is_first:
            self._draw_as_first()
            return {}
        with self._turn():
            scored = self.feed.validate()
        self._draw_as_first()
        state.score = score = scored.score
        if best is None or math.isnan(best) or (score > best if scored.higher_is_better else score < best):
            state.best_score, state.best_iteration = score, state.iteration
            state.best = {name: value.clone() for name, value in self.learner.state_dict().items()}
        return {**scored.metrics, "validation": score}

    def _draw_as_first(self) -> None:
        """Take over the first rank's generator state, after it alone has drawn numbers."""
        if self._draws:
            self.ranks.copy_from_first([self.random.state["cpu"]])

    @contextmanager
    def _own_numbers(self) -> Iterator[None]:
        """Inside, each rank that has a share of the tasks draws its own random numbers, by seed, rank and iteration."""
        if self.feed.share is None or not self._draws:
            yield
            return
        own = seeded_generator(self.feed.seed, f"rank {self.ranks.number} at {self.state.iteration}")
        with torch.random.fork_rng():
            torch.manual_seed(own.initial_seed())
            yield

    def checkpoint(self) -> None:
        """Write everything a resumed run needs, if there is a folder."""
        if self.folder is None:
            return
        generator, self.state.drawn = self.feed.state()
        groups = {
            "learner": self.learner.state_dict(),
            "generator": {"state": generator, **self.random.state},
            "optimiser": self.step.state(),
            "environment": self.feed.source_state(),
        }
        self.folder.save(self.state, groups)
        self._saved = time.monotonic()

    def resume(self) -> None:
        """Resume from the checkpoint in the run folder, if there is one."""
        packed = self.ranks.packed_from_first(lambda: self.folder.packed() if self.folder else None)
        if packed is not None:
            where = self.folder.checkpoint if self.folder else Path("the checkpoint")
            self.state, groups = unpacked(packed, where)
            try:
                self._restore(groups, where)
            except CaviaError:
                raise
            except Exception as error:  # from an outer step or an environment, which may be user code
                why = str(error).strip().splitlines()
                problem = why[-1].strip() if why else type(error).__name__
                raise CaviaError(f"{where} does not fit this learner: {problem}") from error
        else:
            self.ranks.copy_from_first(self.learner.state_dict().values())
        if self.folder:
            self.folder.forget_metrics_after(self.state.iteration)

    def _restore(self, groups: dict[str, dict[str, Tensor]], where: Path) -> None:
        """Restore everything from the checkpoint, after checking that it fits."""
        state = self.state
        for weights in (groups.get("learner", {}), *([state.best] if state.best else [])):
            check_fits(self.learner, weights, where, exact=True)
        for name, value in self.step.state().items():
            kept = groups.get("optimiser", {}).get(name, value)
            if (kept.shape, kept.dtype) != (value.shape, value.dtype):
                got, wanted = f"{kept.dtype} {list(kept.shape)}", f"{value.dtype} {list(value.shape)}"
                raise CaviaError(f"{where} does not fit this run: {name} of the outer step is {got}, not {wanted}")
        if state.iteration > self.iterations or state.drawn >= self.feed.ahead:
            raise CaviaError(
                f"{where} does not fit this run: it is at iteration {state.iteration} of {self.iterations}, "
                f"with {state.drawn} of {self.feed.ahead} batches used"
            )
        self.learner.load_state_dict(groups["learner"])
        self.random.go_on_from(groups["generator"])
        self.step.load_state(groups.get("optimiser", {}))
        self.feed.load_source_state(groups.get("environment", {}))
        with self._turn():
            self.feed.load_state(groups["generator"]["state"], state.drawn)

    def finish(self) -> FitResult:
        """Load the best model into the learner and write it to the run folder."""
        state = self.state
        if state.best:
            self.learner.load_state_dict(state.best)
        self.ranks.copy_from_first(self.learner.state_dict().values())
        if self.folder:
            self.learner.save(self.folder.model)
        best = self.ranks.from_first(lambda: (state.best_score, state.best_iteration))
        return FitResult(state.iteration, state.loss, *best, state.seconds)

    def _keep_before_cooldown(self) -> None:
        """Keep a checkpoint from the start of the cooldown."""
        if not self.folder or not self.cooldown or self.folder.before_cooldown.exists():
            return
        if 0.98 < (1 - self.share) / self.cooldown <= 1:  # has just begun; a run by time rarely hits the exact moment
            self.checkpoint()
            self.folder.keep_before_cooldown()

    def _stopped(self) -> str:
        """Write a checkpoint; returns a message that says where the run stopped."""
        self.checkpoint()
        self.ranks.wait()  # for the checkpoint: launchers end all ranks when one has ended
        can_go_on = self.ranks.from_first(lambda: self.folder is not None)
        where = "run the same again to resume" if can_go_on else "without a run_dir it cannot resume"
        return f"stopped at iteration {self.state.iteration} of {self.iterations}; {where}"

    def _who(self) -> str:
        """The learner's name in messages."""
        rate = getattr(self.learner, "inner_lr", None)
        return type(self.learner).__name__ + ("" if rate is None else f" with inner_lr {rate:g}")


@contextmanager
def training(learner: Learner) -> Iterator[None]:
    """The learner in training mode inside, and in evaluation mode afterwards."""
    learner.train()
    try:
        yield
    finally:
        learner.eval()


def claim(folder: RunFolder, config: dict[str, Any]) -> None:
    """Claim the folder for this run. An extended run goes back to before its cooldown."""
    begun = folder.recorded()
    if begun is not None and begun.get("iterations", config["iterations"]) < config["iterations"]:
        folder.go_back_before_cooldown()
    folder.claim(config, may_grow="iterations")
