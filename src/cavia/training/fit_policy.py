"""The loop around TRPO: episodes before and after adaptation, validation, metrics, checkpoints, resuming, stopping."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cavia.allocator import keep_freed_memory
from cavia.envs.base import TaskEnv
from cavia.errors import CaviaError, Interrupted, require_at_least, require_positive
from cavia.evaluation.evaluate import device_of
from cavia.learners.acting import MetaBatch, Stage, adapt_in, check_fits
from cavia.learners.gradient import GradientLearner
from cavia.learners.saving import describe
from cavia.tasks.batch import seeded_generator
from cavia.training.checkpoint import RunFolder
from cavia.training.events import event_log
from cavia.training.interrupt import StopRequest, stop_requests
from cavia.training.kernel import recorded_kernel
from cavia.training.policy_jacobian import PolicyJacobian
from cavia.training.progress import Clock, Show, showing
from cavia.training.run import FitResult, Run, describe_tasks, own_random_numbers
from cavia.training.trpo import TRPO, TrustRegion


def fit_policy(
    learner: GradientLearner,
    env: TaskEnv,
    iterations: int,
    *,
    tasks_per_batch: int = 20,
    rollouts: int = 20,
    discount: float = 0.95,
    trace: float = 1.0,
    region: TrustRegion | None = None,
    seed: int = 0,
    every: int = 10,
    validation_tasks: int = 20,
    minutes: float | None = None,
    run_dir: str | PathLike[str] | None = None,
    tensorboard: bool = True,
    progress: bool | Show = True,
) -> FitResult:
    """Meta-train a policy in place: one TRPO step on a new batch of tasks at each iteration.

    rollouts:         episodes of each task before each inner step, and again after the last.
    discount, trace:  γ and λ of the advantages.
    region:           the settings of TRPO.
    seed:             which tasks, starts and actions are drawn; the same seed gives the same run.
    every:            iterations between validations and checkpoints; metrics.jsonl gets a line at each iteration.
    validation_tasks: tasks of the split "val"; the policy with the best mean return on them after adaptation is kept;
                      0: no validation, the last policy stays.
    minutes:          end the run after so many minutes by the clock, if `iterations` are not done by then.
    run_dir:          folder for config.json, metrics.jsonl and the checkpoint; a run found there goes on.
    tensorboard:      write events to run_dir too, if TensorBoard is installed.
    progress:         show a bar (lines when not in a terminal), or a function that is given a `Progress`.
    """
    for name, value in (("iterations", iterations), ("tasks_per_batch", tasks_per_batch), ("rollouts", rollouts)):
        require_at_least(name, value, 1)
    require_at_least("every", every, 1)
    require_at_least("seed", seed, 0)
    require_at_least("validation_tasks", validation_tasks, 0)
    for name, share in (("discount", discount), ("trace", trace)):
        if not 0 <= share <= 1:
            raise CaviaError(f"{name} must be from 0 to 1, got {share}")
    if minutes is not None:
        require_positive("minutes", minutes)
    check_fits(learner, env)
    settings: dict[str, Any] = {
        "tasks_per_batch": tasks_per_batch,
        "rollouts": rollouts,
        "discount": discount,
        "trace": trace,
        "seed": seed,
        "every": every,
        "validation_tasks": validation_tasks,
    }
    folder = None if run_dir is None else RunFolder(Path(run_dir))
    keep_freed_memory()
    with ExitStack() as stack:
        if folder:
            stack.enter_context(folder.lock())
        stop = stack.enter_context(stop_requests())
        stack.enter_context(own_random_numbers(seed))
        settings |= stack.enter_context(recorded_kernel(PolicyJacobian.applies_to(learner), folder))
        seconds = math.inf if minutes is None else 60 * minutes
        run = _Run(learner, env, iterations, settings, region or TrustRegion(), folder, seconds)
        run.resume()
        events = run_dir if tensorboard else None
        title = f"{type(learner).__name__} on {type(env).__name__}"
        with showing(progress, title) as show, event_log(events, run.state.iteration) as log:
            run.loop(show, log, stop)
        return run.finish()


class _Run(Run):
    """The state of one call of `fit_policy`."""

    learner: GradientLearner

    def __init__(
        self,
        learner: GradientLearner,
        env: TaskEnv,
        iterations: int,
        settings: dict[str, Any],
        region: TrustRegion,
        folder: RunFolder | None,
        seconds: float,
    ):
        config = {
            "learner": describe(learner),
            "environment": describe_tasks(env),
            "iterations": iterations,
            **settings,
            "trust_region": asdict(region),
        }
        super().__init__(learner, iterations, seconds, settings["seed"], folder, config)
        self.env, self.settings, self.step = env, settings, TRPO(learner, region)
        self.device = device_of(learner)

    def extra(self) -> dict[str, dict[str, Tensor]]:
        return {"environment": self.env.state()}

    def load_extra(self, groups: dict[str, dict[str, Tensor]]) -> None:
        self.env.load_state(groups.get("environment", {}))

    def loop(self, show: Show, log: Callable[[dict[str, float]], None], stop: StopRequest) -> None:
        state = self.state
        clock = Clock(state.seconds, waits=True)  # for simulators on other threads
        while self.share < 1:
            line = self._iterate()
            state.seconds = clock.seconds()
            at_end = self.share >= 1
            if state.iteration % self.settings["every"] == 0 or at_end:
                line |= self._validate()
                state.seconds = clock.seconds()
            line["seconds"] = round(state.seconds, 3)
            log(line)
            if self.folder:
                self.folder.append_metrics(line)
                if state.iteration % self.settings["every"] == 0 or at_end:
                    self.checkpoint()
                self.checkpoint_if_late()
            if clock.time_to_show() or at_end:
                show(clock.progress(state.iteration, self.iterations, 0.0, state.score, self.share, _shown(line)))
            if stop.made and self.share < 1:
                raise Interrupted(self.stopped())

    def _iterate(self) -> dict[str, float]:
        """Episodes of new tasks before and after adaptation, and one outer step on them: a line of metrics."""
        stages = self._stages(self.settings["tasks_per_batch"], self.generator, "train")
        taken = self.step(MetaBatch([stage.points for stage in stages[:-1]], stages[-1].points))
        self.state.iteration += 1
        self.check_weights()
        return {
            "iteration": self.state.iteration,
            "return_before": _return(stages[0]),
            "return_after": _return(stages[-1]),
            **asdict(taken),
        }

    def _validate(self) -> dict[str, float]:
        """Score the policy on the validation tasks and keep it if it is the best so far."""
        if not self.settings["validation_tasks"]:
            return {}
        generator = seeded_generator(self.settings["seed"], "val")
        stages = self._stages(self.settings["validation_tasks"], generator, "val")
        self.state.score = _return(stages[-1])
        self.keep_if_best(self.state.score, higher_is_better=True)
        return {"validation_before": _return(stages[0]), "validation": self.state.score}

    def _stages(self, tasks: int, generator: torch.Generator, split: str) -> list[Stage]:
        """New tasks before each inner step and after the last."""
        return adapt_in(
            self.learner,
            self.env,
            self.env.sample_tasks(tasks, generator, split).to(self.device),
            self.settings["rollouts"],
            self.learner.inner_steps,
            generator,
            self.settings["discount"],
            self.settings["trace"],
        )


def _return(stage: Stage) -> float:
    return stage.episodes.returns.mean().item()


def _shown(line: dict[str, float]) -> str:
    return (
        f"return {line['return_before']:.1f} → {line['return_after']:.1f}  KL {line['kl']:.4f}  "
        f"step {line['share']:.2f}  entropy {line['entropy']:.2f}"
    )
