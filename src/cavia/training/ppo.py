"""PPO through the inner steps: several epochs of Adam on the clipped surrogate of one batch of episodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_positive, require_steps
from cavia.learners.acting import MetaBatch, Points, Updates
from cavia.learners.base import Learner
from cavia.learners.losses import mean_over_points
from cavia.training.outer import Length, Metrics, Outer
from cavia.training.policy_jacobian import PolicyJacobian
from cavia.training.step import MetaStep
from cavia.training.surrogate import PolicyStep


@dataclass(frozen=True)
class PPO(Outer):
    """Adam on the clipped surrogate, whose gradient goes through the inner steps as TRPO's does.

    lr:      outer learning rate of each epoch
    epochs:  maximum number of Adam steps on one batch of episodes
    clip:    clip the ratio of an action's probabilities, after to before, to 1 ± clip
    max_kl:  no epoch starts at a mean KL divergence above this
    chunk:   tasks at a time: less memory, and faster where a chunk fits the cache; the step is the same
    updates: how the inner updates are made
    """

    lr: float = 3e-3
    epochs: int = 5
    clip: float = 0.2
    max_kl: float = 3e-2
    chunk: int | None = None
    updates: Updates = field(default_factory=Updates)

    takes = MetaBatch

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require_positive("max_kl", self.max_kl)
        require_steps("epochs", self.epochs, 1)
        if self.chunk is not None:
            require_at_least("chunk", self.chunk, 1)
        if not 0 < self.clip < 1:
            raise CaviaError(f"clip must be between 0 and 1, got {self.clip}")

    def step(self, learner: Learner, length: Length) -> "PPOStep":
        return PPOStep(learner, self)

    def has_kernel(self, learner: Learner) -> bool:
        return PolicyJacobian.applies_to(learner)


class PPOStep(PolicyStep):
    """Outer steps for a learner around a policy; they update its parameters in place."""

    def __init__(self, learner: Learner, settings: PPO | None = None, closed_form: bool = True):
        super().__init__(learner, closed_form)
        self.settings = settings or PPO()
        self.adam = MetaStep(learner, self.settings.lr)

    def __call__(self, batch: MetaBatch) -> Metrics:
        """Take the epochs of one batch.

        gain:    of the clipped surrogate
        kl:      mean KL divergence between the adapted policies before and after
        epochs:  how many were taken
        entropy: of the adapted policies before, mean over steps
        """
        parts = self.parts(batch, self.settings.chunk)
        gradient, before, old = self.gradient(parts)
        taken = 0
        while True:
            with torch.no_grad():
                self.adam.update(gradient)
            taken += 1
            if taken == self.settings.epochs:
                loss, kl = self.judge(parts, old)
                break
            gradient, loss, new = self.gradient(parts, old=old)
            kl = self.kl(parts, old, new)
            if not kl <= self.settings.max_kl:
                break
        return {"gain": before - loss, "kl": kl, "epochs": float(taken), "entropy": self.entropy(parts, old)}

    def surrogate(self, new: Tensor, old: Tensor, points: Points) -> Tensor:
        """−mean of min(r·A, clip(r)·A) over each task's steps: predictions [T, N, D] twice → [T]."""
        ratio, advantage = self.ratio(new, old, points), points.y[..., -1]
        clipped = ratio.clamp(1 - self.settings.clip, 1 + self.settings.clip)
        return -mean_over_points(torch.minimum(ratio * advantage, clipped * advantage), points.mask)

    def state(self) -> dict[str, Tensor]:
        return self.adam.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.adam.load_state(dict(state))
