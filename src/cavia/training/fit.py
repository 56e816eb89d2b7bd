"""`cavia.fit`: meta-training on a task family or in an environment."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from os import PathLike
from typing import Any

import torch

from cavia.allocator import keep_freed_memory
from cavia.envs.base import TaskEnv
from cavia.errors import CaviaError, require_at_least, require_positive
from cavia.evaluation.evaluate import device_of
from cavia.kinds import checked
from cavia.learners.base import Learner
from cavia.learners.compiled import CompiledLearner
from cavia.learners.saving import describe
from cavia.randomness import OwnRandomNumbers
from cavia.tasks.batch import TaskFamily
from cavia.training.adam import Adam
from cavia.training.batches import TaskFeed
from cavia.training.checkpoint import RunFolder
from cavia.training.events import event_log
from cavia.training.feed import Feed, Validation
from cavia.training.interrupt import stop_requests
from cavia.training.kernel import recorded_kernel
from cavia.training.outer import Length, Outer
from cavia.training.progress import Show, showing
from cavia.training.ranks import joined
from cavia.training.run import FitResult, Run, claim, training
from cavia.training.simulated import EpisodeFeed
from cavia.training.trpo import TRPO

ECHO = 2.0  # seconds within which ranks may receive one Ctrl-C twice: from the terminal and from torchrun


@checked
def fit(
    learner: Learner,
    source: TaskFamily | TaskEnv,
    iterations: int,
    *,
    outer: Outer | None = None,
    tasks_per_batch: int | None = None,
    support: int | Sequence[int] | None = None,
    query: int | None = None,
    validation: Validation | None = None,
    seed: int = 0,
    minutes: float | None = None,
    run_dir: str | PathLike[str] | RunFolder | None = None,
    progress: bool | Show = True,
) -> FitResult:
    """Meta-train the learner in place, with one outer step on a new batch of tasks per iteration.

    Afterwards the learner is in evaluation mode. Under `torchrun`, the processes share the tasks of each batch and
    end with the same learner; the first one validates and writes.

    source:          a task family, or an environment (`cavia.envs`) if the learner's model is a policy.
    outer:           the outer algorithm and its settings: `cavia.Adam` (the default for a family), `cavia.TRPO` (for
                     an environment), `cavia.PPO`.
    tasks_per_batch: by default 25, in an environment 20.
    support, query:  points of each task to adapt on and to train on, by default the family's own numbers if it has
                     them, else 10. Given several numbers for support, one is drawn for each batch (a number listed
                     twice is drawn twice as often), and validation averages over them.
                     In an environment: episodes of each task before each inner step, by default 20, and after the
                     last, by default as many.
    validation:      on which tasks and how often to choose the best model: `cavia.Validation`.
    seed:            determines the tasks, initial states and actions; the same seed gives the same run, even with other
                     runs in other threads. Runs with dropout then alternate step by step, because they share PyTorch's
                     global generator; other code that draws from it in another thread still interferes.
    minutes:         stop after this many CPU minutes, validation included, if `iterations` are not done by then; on a
                     GPU and in an environment, wall-clock minutes. Such a run is not reproducible to the bit.
    run_dir:         folder for config.json, metrics.jsonl, the checkpoint, TensorBoard events if TensorBoard is
                     installed, and finally model.cavia; a run found there resumes. `RunFolder(path, events=False)`
                     writes no events.
    progress:        show a bar (lines when not in a terminal), or a function that receives a `Progress`.
    """
    _require_trainable(learner)
    require_at_least("iterations", iterations, 1)
    if minutes is not None:
        require_positive("minutes", minutes)
    sizes = {"tasks_per_batch": tasks_per_batch, "support": support, "query": query}
    feed, outer = _feed(learner, source, outer, **sizes, validation=validation, seed=seed)
    outer.check(learner)
    folder = run_dir if isinstance(run_dir, RunFolder | None) else RunFolder(run_dir)
    keep_freed_memory()
    with ExitStack() as stack:
        ranks = stack.enter_context(joined(device_of(learner)))
        if not ranks.is_first:  # only the first rank writes
            folder, progress = None, False
        if folder:
            stack.enter_context(folder.lock())
        stop = stack.enter_context(stop_requests(0.0 if ranks.alone else ECHO))
        begun = ranks.from_first(lambda: folder.recorded() if folder else None)
        kernel = stack.enter_context(recorded_kernel(outer.has_kernel(learner), begun, folder))
        feed.begin(begun)

        def config() -> dict[str, Any]:
            about = {"learner": describe(learner), "iterations": iterations, **kernel}
            return about | feed.as_config() | outer.as_config()

        # Kernels differ only by rounding, and not every machine can build them.
        ranks.require_same(lambda: config() | {"minutes": minutes, "kernel": None})
        if folder:
            claim(folder, config())
        stack.enter_context(training(learner))
        step = outer.step(learner, Length(iterations, minutes))
        if step.spread(ranks):
            feed.spread(ranks)
        seconds = math.inf if minutes is None else 60 * minutes
        run = Run(learner, feed, step, iterations, seconds, outer.cooldown, folder, OwnRandomNumbers(seed), ranks)
        run.resume()
        title = f"{type(learner).__name__} on {type(source).__name__}"
        show = stack.enter_context(showing(progress, title))
        log = stack.enter_context(event_log(folder, run.state.iteration))
        run.loop(show, log, stop)
        return run.finish()


def _require_trainable(learner: Learner) -> None:
    """Raise if no step could be taken on the learner's weights."""
    if isinstance(learner, CompiledLearner):
        raise CaviaError("a compiled learner is for test time: give fit the learner that it was made from")
    if torch.is_inference_mode_enabled():
        raise CaviaError("fit needs gradients, and torch.inference_mode() allows none: call it outside")
    if device_of(learner).type == "meta":
        raise CaviaError("the learner is on the device 'meta', where weights have no numbers; make it on another")
    if any(value.is_inference() for value in learner.parameters()):
        raise CaviaError("the learner was made in torch.inference_mode(), so it has no gradients: make it outside")


def _feed(learner: Any, source: Any, outer: Outer | None, **asked: Any) -> tuple[Feed, Outer]:
    """The source of batches, and the outer algorithm that trains on them."""
    is_env = isinstance(source, TaskEnv)
    if not is_env and not isinstance(source, TaskFamily):
        raise CaviaError(f"source must be a cavia.TaskFamily or a cavia.envs.TaskEnv, got a {type(source).__name__}")
    outer = (TRPO() if is_env else Adam()) if outer is None else outer
    kind = EpisodeFeed if is_env else TaskFeed
    if not isinstance(outer, Outer):
        raise CaviaError(f"outer must be the settings of an outer algorithm (cavia.Adam()), got {outer!r}")
    if outer.takes is not kind.gives:
        takes, use = ("points", "TRPO") if is_env else ("episodes in an environment", "Adam")
        name = type(source).__name__
        raise CaviaError(f"{type(outer).__name__} trains on {takes}, which {name} does not have; use cavia.{use}()")
    if is_env:
        return EpisodeFeed(learner, source, **asked, updates=outer.updates), outer
    return TaskFeed(learner, source, **asked, chunk=outer.chunk), outer
