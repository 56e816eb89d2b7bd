"""The loop around the meta-step: validation, metrics, checkpoints, resuming, stopping."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path

from torch import Tensor

from cavia.allocator import keep_freed_memory
from cavia.errors import CaviaError, Diverged, Interrupted, require_at_least, require_positive
from cavia.evaluation.evaluate import device_of, evaluate
from cavia.learners.base import Learner
from cavia.learners.compiled import CompiledLearner
from cavia.learners.saving import describe
from cavia.models.base import NormedModel
from cavia.tasks.batch import TaskFamily
from cavia.training.batches import Batches, batches_ahead
from cavia.training.checkpoint import RunFolder
from cavia.training.eligible import is_worth_compiling, require_linear_layers
from cavia.training.events import event_log
from cavia.training.interrupt import StopRequest, stop_requests
from cavia.training.kernel import recorded_kernel
from cavia.training.progress import Clock, Show, showing
from cavia.training.run import ADVICE, FitResult, Run, describe_tasks, own_random_numbers
from cavia.training.settings import FitSettings
from cavia.training.several import Steps
from cavia.training.step import MetaStep

WORTH_COMPILING = 10_000  # iterations: compiling takes seconds and saves 2 ms or more of a sine step
WORTH_COMPILING_MINUTES = 60  # for large steps compiling takes minutes
MOMENT = 0.05  # seconds in which nobody misses Ctrl-C: no more steps than fit are taken at once


def fit(
    learner: Learner,
    family: TaskFamily,
    iterations: int,
    *,
    tasks_per_batch: int = 25,
    support: int | Sequence[int] | None = None,
    query: int | None = None,
    lr: float = 1e-3,
    lr_decay: float = 1.0,
    lr_decay_every: int = 5000,
    cooldown: float = 0.0,
    clip: float | None = 10.0,
    seed: int = 0,
    every: int = 500,
    validation_tasks: int = 100,
    validation_query: int | None = None,
    chunk: int | None = None,
    minutes: float | None = None,
    compile: str | bool = "auto",
    precision: str = "float32",
    run_dir: str | PathLike[str] | None = None,
    tensorboard: bool = True,
    progress: bool | Show = True,
) -> FitResult:
    """Meta-train the learner in place: Adam on the mean query loss of a new batch of tasks at each iteration.

    support, query:      points per task to adapt on and to train on, by default the family's own numbers if it has
                         them, else 10. Of several numbers for support, one is drawn for each batch (a number that
                         stands twice, twice as often), and validation averages over them.
    lr, lr_decay:        outer learning rate, multiplied by lr_decay after each lr_decay_every iterations.
    cooldown:            share of the run, at its end, in which the rate also falls linearly to 0.
    clip:                every element of the meta-gradient is clamped to ±clip; None: not at all.
    seed:                which tasks are drawn; the same seed gives the same run.
    every:               iterations between lines in metrics.jsonl, validations and checkpoints.
    validation_tasks:    tasks of the split "val" that select the best model, which the learner holds at the end;
                         0: no validation, the last model stays.
    validation_query:    query points of each of them, by default as many as in training.
    chunk:               tasks at a time: memory is bounded by a chunk, the gradient is the same.
    minutes:             end the run after so many minutes, validation included, if `iterations` are not done by then:
                         minutes of one core's work, which two cores spend twice as fast, on a GPU by the clock. Such
                         a run is not the same to the bit when it is run again.
    compile:             compile the whole step into one graph: True, False, or "auto", if the run is long and it pays,
                         or say why not. What the network and the loss compute must then depend on nothing but
                         their inputs and weights: a Python value that changes between steps stays what it was.
    precision:           of matrix products in training: "float32", or "bf16", up to twice as fast on processors with
                         instructions for it, for networks of linear layers. Weights, losses, Adam and validation
                         stay in float32, and the trained model is used as any other.
    run_dir:             folder for config.json, metrics.jsonl and the checkpoint; a run found there goes on.
    tensorboard:         write events to run_dir too, if TensorBoard is installed.
    progress:            show a bar (lines when not in a terminal), or a function that is given a `Progress`.
    """
    if isinstance(learner, CompiledLearner):
        raise CaviaError("a compiled learner is for test time: give fit the learner that it was made from")
    require_at_least("iterations", iterations, 1)
    if chunk is not None:
        require_at_least("chunk", chunk, 1)
    if minutes is not None:
        require_positive("minutes", minutes)
    if compile is not True and compile is not False and compile != "auto":
        raise CaviaError(f'compile must be True, False or "auto", got {compile!r}')
    support = getattr(family, "support", 10) if support is None else support
    query = getattr(family, "query", 10) if query is None else query
    settings = FitSettings(
        tasks_per_batch,
        support,
        query,
        lr,
        lr_decay,
        lr_decay_every,
        cooldown,
        clip,
        seed,
        every,
        validation_tasks,
        query if validation_query is None else validation_query,
        precision,
    )
    if precision == "bf16":
        require_linear_layers(learner)
    folder = None if run_dir is None else RunFolder(Path(run_dir))
    is_long = iterations >= WORTH_COMPILING and (minutes is None or minutes >= WORTH_COMPILING_MINUTES)
    use_compiler = compile is True or (compile == "auto" and is_long and is_worth_compiling(learner))
    events = run_dir if tensorboard else None
    title = f"{type(learner).__name__} on {type(family).__name__}"
    keep_freed_memory()
    with ExitStack() as stack:
        if folder:
            stack.enter_context(folder.lock())
        stop = stack.enter_context(stop_requests())
        stack.enter_context(own_random_numbers(seed))
        has_kernel = isinstance(learner.model, NormedModel) and learner.model.fuses
        kernel = stack.enter_context(recorded_kernel(has_kernel, folder))
        seconds = math.inf if minutes is None else 60 * minutes
        run = _Run(learner, family, iterations, settings, folder, seconds, kernel)
        run.step = MetaStep(learner, lr, clip, chunk, use_compiler, precision)
        run.take_steps = Steps(run.step, may_fail=compile == "auto")
        run.resume()
        with showing(progress, title) as show, event_log(events, run.state.iteration) as log:
            run.loop(show, log, stop)
        return run.finish()


class _Run(Run):
    """The state of one call of `fit`."""

    step: MetaStep
    take_steps: Steps
    at_once: int = 1  # steps in a call

    def __init__(
        self,
        learner: Learner,
        family: TaskFamily,
        iterations: int,
        settings: FitSettings,
        folder: RunFolder | None,
        seconds: float,
        kernel: dict[str, str],
    ):
        begun = folder.recorded() if folder else None
        ahead = batches_ahead(family, settings) if begun is None else begun.get("batches_ahead", 1)
        config = {
            "learner": describe(learner),
            "family": describe_tasks(family),
            "iterations": iterations,
            **kernel,
            **settings.as_config(),
            **({"batches_ahead": ahead} if ahead > 1 else {}),
        }
        super().__init__(learner, iterations, seconds, settings.seed, folder, config)
        self.family, self.settings = family, settings
        self.device = device_of(learner)
        self.batches = Batches(family, settings, self.generator, ahead, self.device)

    def extra(self) -> dict[str, dict[str, Tensor]]:
        return {"optimiser": self.step.state()}

    def load_extra(self, groups: dict[str, dict[str, Tensor]]) -> None:
        self.step.load_state(groups["optimiser"])
        self.batches.load_state(self.generator.get_state(), self.state.drawn)

    def random_state(self) -> Tensor:
        state, self.state.drawn = self.batches.state()
        return state

    def loop(self, show: Show, log: Callable[[dict[str, float]], None], stop: StopRequest) -> None:
        state, settings = self.state, self.settings
        clock = Clock(state.seconds, waits=self.device.type != "cpu")
        while self.share < 1:
            self._keep_before_cooldown()
            losses = self._steps()
            for number, loss in enumerate(losses, state.iteration + 1):
                if not math.isfinite(loss):
                    raise Diverged(f"{self.who()}: the loss is {loss} at iteration {number}; {ADVICE}")
                state.interval_loss += loss
            state.iteration += len(losses)
            state.interval_count += len(losses)
            state.seconds = clock.seconds()
            if state.iteration % settings.every == 0 or self.share >= 1:
                log(self._record())
            self.checkpoint_if_late()
            if clock.time_to_show() or self.share >= 1:
                show(clock.progress(state.iteration, self.iterations, losses[-1], state.score, self.share))
            if stop.made and self.share < 1:
                raise Interrupted(self.stopped())

    def _keep_before_cooldown(self) -> None:
        """Keep a checkpoint of the moment at which the outer rate begins to fall."""
        folder, cooldown = self.folder, self.settings.cooldown
        if not folder or not cooldown or folder.before_cooldown.exists():
            return
        if 0.98 < (1 - self.share) / cooldown <= 1:  # has just begun: time is met by chance only
            self.checkpoint()
            folder.keep_before_cooldown()

    def _steps(self) -> list[float]:
        """The losses of the next steps: as many as fit into a moment, up to the next line of metrics."""
        state, settings = self.state, self.settings
        block, first = self.batches.following()
        left = min(settings.every - state.iteration % settings.every, self.iterations - state.iteration)
        cooldown_at = math.ceil((1 - settings.cooldown) * self.iterations)
        if state.iteration < cooldown_at:
            left = min(left, cooldown_at - state.iteration)
        count = min(self.at_once, left, block.count - first)
        late = state.seconds / self.seconds
        rates = [
            settings.lr_at(number, max(number / self.iterations, late))
            for number in range(state.iteration, state.iteration + count)
        ]
        begin = time.perf_counter()
        losses = self.take_steps(block, first, rates).tolist()
        self.batches.used += count
        is_quick = self.take_steps.loops and time.perf_counter() - begin < MOMENT
        self.at_once = min(2 * self.at_once, block.count) if is_quick else max(1, self.at_once // 2)
        return losses

    def _record(self) -> dict[str, float]:
        """Validate, write a line of metrics and a checkpoint."""
        state = self.state
        self.check_weights()
        state.loss = state.interval_loss / state.interval_count
        state.interval_loss, state.interval_count = 0.0, 0
        line: dict[str, float] = {"iteration": state.iteration, "loss": state.loss}
        if self.settings.validation_tasks:
            line["validation"] = state.score = self._validate()
        line |= {"lr": self.step.lr.item(), "seconds": round(state.seconds, 3)}
        if self.folder:
            self.folder.append_metrics(line)
            self.checkpoint()
        return line

    def _validate(self) -> float:
        """Score the model on the validation tasks and keep it if it is the best so far."""
        settings = self.settings
        results = [
            evaluate(
                self.learner,
                self.family,
                tasks=settings.validation_tasks,
                support=count,
                query=settings.validation_query,
                seed=settings.seed,
                split="val",
                chunk=self.step.chunk,
            )
            for count in sorted(set(settings.support_counts))
        ]
        score = sum(result.mean[-1].item() for result in results) / len(results)
        self.keep_if_best(score, results[0].higher_is_better)
        return score
