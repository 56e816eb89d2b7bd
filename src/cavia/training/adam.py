"""Adam on the mean query loss: the outer step for tasks of points."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_one_of, require_positive, require_share
from cavia.learners.base import Learner
from cavia.models.base import NormedModel
from cavia.tasks.batch import TaskBatch
from cavia.training.batches import TaskBlock
from cavia.training.eligible import is_worth_compiling, require_linear_layers
from cavia.training.outer import Length, Metrics, Moment, Outer, OuterStep
from cavia.training.ranks import Ranks
from cavia.training.several import Steps
from cavia.training.step import MetaStep

PRECISIONS = ("float32", "bf16")
LATER = {"cooldown": 0.0, "precision": "float32"}  # settings that earlier versions lack: how those versions behave
UNRECORDED = ("chunk", "compile")  # change speed and memory; results only up to rounding
WORTH_COMPILING = 10_000  # iterations: compiling takes seconds and saves 2 ms or more of a sine step
WORTH_COMPILING_MINUTES = 60  # for large steps compiling takes minutes


@dataclass(frozen=True)
class Adam(Outer):
    """Adam on the mean query loss of each batch of tasks.

    lr, lr_decay: outer learning rate, multiplied by lr_decay after each lr_decay_every iterations.
    cooldown:     final share of the run, over which the rate also decays linearly to 0.
    clip:         clamp every element of the meta-gradient to ±clip; None: no clamping.
    chunk:        tasks at a time: bounds memory, leaves the gradient unchanged.
    compile:      compile the whole step into one graph: True, False, or "auto": only if the run is long enough to gain
                  from it; a warning says why not. A compiled network and loss may depend only on their inputs and
                  weights: Python values are frozen at compilation.
    precision:    of matrix products in training: "float32" or "bf16". For networks of linear layers; up to twice as
                  fast on CPUs with bf16 instructions. Weights, losses, Adam and validation stay in float32; use the
                  trained model like any other.
    """

    lr: float = 1e-3
    lr_decay: float = 1.0
    lr_decay_every: int = 5000
    cooldown: float = 0.0
    clip: float | None = 10.0
    chunk: int | None = None
    compile: str | bool = "auto"
    precision: str = "float32"

    def __post_init__(self) -> None:
        require_at_least("lr_decay_every", self.lr_decay_every, 1)
        for name in ("lr", "lr_decay", *(["clip"] if self.clip is not None else [])):
            require_positive(name, getattr(self, name))
        if self.chunk is not None:
            require_at_least("chunk", self.chunk, 1)
        require_share("cooldown", self.cooldown)
        if self.compile is not True and self.compile is not False and self.compile != "auto":
            raise CaviaError(f'compile must be True, False or "auto", got {self.compile!r}')
        require_one_of("precision", self.precision, PRECISIONS)

    def step(self, learner: Learner, length: Length) -> "AdamStep":
        return AdamStep(learner, self, self._compiles(learner, length))

    def _compiles(self, learner: Learner, length: Length) -> bool:
        if self.compile != "auto":
            return bool(self.compile)
        may_take = length.minutes is None or length.minutes >= WORTH_COMPILING_MINUTES
        return length.iterations >= WORTH_COMPILING and may_take and is_worth_compiling(learner)

    def check(self, learner: Learner) -> None:
        if self.precision == "bf16":
            require_linear_layers(learner)

    def has_kernel(self, learner: Learner) -> bool:
        return isinstance(learner.model, NormedModel) and learner.model.fuses

    def as_config(self) -> dict[str, Any]:
        """Leaves out settings that match earlier versions' behaviour, so that their folders resume."""
        known = {name: value for name, value in asdict(self).items() if name not in UNRECORDED}
        return {"outer": "Adam"} | {name: v for name, v in known.items() if name not in LATER or v != LATER[name]}

    def lr_at(self, moment: Moment) -> float:
        """The outer learning rate of a step."""
        decayed = self.lr * self.lr_decay ** (moment.iteration // self.lr_decay_every)
        return decayed * min(1.0, (1 - moment.share) / self.cooldown) if self.cooldown else decayed


class AdamStep(OuterStep):
    """`MetaStep` on a learning-rate schedule; takes several steps per call where that is faster."""

    def __init__(self, learner: Learner, settings: Adam, compiled: bool):
        self.settings = settings
        self.step = MetaStep(learner, settings.lr, settings.clip, settings.chunk, compiled, settings.precision)
        self.steps = Steps(self.step, may_fail=settings.compile == "auto")

    @property
    def loops(self) -> bool:
        return self.steps.loops

    def spread(self, ranks: Ranks) -> bool:
        self.step.ranks = ranks
        self.steps.loops = self.steps.loops and ranks.alone  # a loop cannot talk to other ranks between steps
        return True

    def __call__(self, batch: TaskBatch) -> Metrics:
        """One step at the current learning rate."""
        return {"loss": self.step(batch).item()}

    def take(self, block: TaskBlock, start: int, moments: Sequence[Moment]) -> list[Metrics]:  # type: ignore[override]
        losses = self.steps(block, start, [self.settings.lr_at(moment) for moment in moments])
        return [{"loss": loss} for loss in losses.tolist()]

    def now(self) -> Metrics:
        return {"lr": self.step.lr.item()}

    def state(self) -> dict[str, Tensor]:
        return self.step.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.step.load_state(dict(state))
