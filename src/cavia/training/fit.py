"""The loop around the meta-step: validation, metrics, checkpoints, resuming, stopping."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from cavia.allocator import keep_freed_memory
from cavia.errors import CaviaError, Diverged, Interrupted, require_at_least, require_positive
from cavia.evaluation.evaluate import device_of, evaluate
from cavia.learners.base import Learner
from cavia.learners.saving import describe
from cavia.models.base import NormedModel
from cavia.tasks.batch import TaskBatch, TaskFamily
from cavia.training.checkpoint import RunFolder
from cavia.training.events import event_log
from cavia.training.interrupt import StopRequest, stop_requests
from cavia.training.kernel import recorded_kernel
from cavia.training.progress import Clock, Show, showing
from cavia.training.run import ADVICE, FitResult, Run, describe_tasks, own_random_numbers
from cavia.training.settings import FitSettings
from cavia.training.step import MetaStep

WORTH_COMPILING = 10_000  # iterations: compiling takes seconds and saves 2 ms or more of a sine step
WORTH_COMPILING_MINUTES = 60  # for large steps compiling takes minutes


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
    run_dir:             folder for config.json, metrics.jsonl and the checkpoint; a run found there goes on.
    tensorboard:         write events to run_dir too, if TensorBoard is installed.
    progress:            show a bar (lines when not in a terminal), or a function that is given a `Progress`.
    """
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
    )
    folder = None if run_dir is None else RunFolder(Path(run_dir))
    is_long = iterations >= WORTH_COMPILING and (minutes is None or minutes >= WORTH_COMPILING_MINUTES)
    use_compiler = compile is True or (compile == "auto" and is_long and _is_worth_compiling(learner))
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
        run.step = MetaStep(learner, lr, clip, chunk, use_compiler)
        run.take_step = run.step.or_uncompiled if compile == "auto" else run.step
        run.resume()
        with showing(progress, title) as show, event_log(events, run.state.iteration) as log:
            run.loop(show, log, stop)
        return run.finish()


class _Run(Run):
    """The state of one call of `fit`."""

    step: MetaStep
    take_step: Callable[[TaskBatch], Tensor]

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
        config = {
            "learner": describe(learner),
            "family": describe_tasks(family),
            "iterations": iterations,
            **kernel,
            **_without_defaults(asdict(settings)),
        }
        super().__init__(learner, iterations, seconds, settings.seed, folder, config)
        self.family, self.settings = family, settings
        self.device = device_of(learner)

    def extra(self) -> dict[str, dict[str, Tensor]]:
        return {"optimiser": self.step.state()}

    def load_extra(self, groups: dict[str, dict[str, Tensor]]) -> None:
        self.step.load_state(groups["optimiser"])

    def loop(self, show: Show, log: Callable[[dict[str, float]], None], stop: StopRequest) -> None:
        state, settings = self.state, self.settings
        clock = Clock(state.seconds, waits=self.device.type != "cpu")
        while self.share < 1:
            if settings.lr_decay != 1 or settings.cooldown:
                self.step.lr.fill_(settings.lr_at(state.iteration, self.share))
            batch = self.family.sample(settings.tasks_per_batch, self._support(), settings.query, self.generator)
            loss = self.take_step(batch.to(self.device)).item()
            if not math.isfinite(loss):
                raise Diverged(f"{self.who()}: the loss is {loss} at iteration {state.iteration + 1}; {ADVICE}")
            state.iteration += 1
            state.interval_loss += loss
            state.interval_count += 1
            state.seconds = clock.seconds()
            if state.iteration % settings.every == 0 or self.share >= 1:
                log(self._record())
            if clock.time_to_show() or self.share >= 1:
                show(clock.progress(state.iteration, self.iterations, loss, state.score, self.share))
            if stop.made and self.share < 1:
                raise Interrupted(self.stopped())

    def _support(self) -> int:
        """The number of support points of the next batch."""
        counts = self.settings.support_counts
        return counts[0] if len(counts) == 1 else counts[int(torch.randint(len(counts), (), generator=self.generator))]

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


def _is_worth_compiling(learner: Learner) -> bool:
    """Whether a long run is compiled without being told to; warns where only the caller can tell."""
    own = [module for module in learner.modules() if type(module).__module__.split(".")[0] not in ("torch", "cavia")]
    if own or callable(learner.loss):
        what = f"{type(own[0]).__name__} is" if own else "the loss is"
        why = "say compile=True if it computes the same from the same inputs and weights at every step"
        warnings.warn(f"the meta-step runs uncompiled: {what} your own code; {why}", stacklevel=3)
        return False
    on_cpu = device_of(learner).type == "cpu"
    return not (on_cpu and any(isinstance(module, _ConvNd) for module in learner.modules()))  # it would be slower


def _without_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Without a setting that is off and that earlier versions did not have: their run folders go on."""
    return {name: value for name, value in settings.items() if name != "cooldown" or value}
