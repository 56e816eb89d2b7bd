"""TRPO through the inner steps: the outer step of meta-reinforcement learning (Section 5.3)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, require_at_least, require_positive, require_steps
from cavia.learners.acting import MetaBatch, Updates
from cavia.learners.base import Learner
from cavia.training.jacobian import Jacobian
from cavia.training.outer import Length, Metrics, Outer
from cavia.training.policy_jacobian import PolicyJacobian
from cavia.training.surrogate import PolicyStep, flat

AIM = 0.9  # share of max_kl that a corrected step aims for, so that it rarely needs shortening
CORRECTIONS = 3  # of a step's length, at most
NEAR = 0.8  # stop correcting once the factor is between this and its inverse
Product = Callable[[Tensor], Tensor]  # a symmetric matrix [P, P] times a vector [P]


@dataclass(frozen=True)
class TRPO(Outer):
    """A step up the surrogate objective within a trust region.

    max_kl:         limit of the mean KL divergence of a step
    cg_iterations:  iterations of conjugate gradients
    damping:        added to the diagonal of the Hessian of the KL divergence
    backtracks:     how often the line search shortens a step before it gives up
    shrink:         factor by which it shortens a step
    hvp_every:      use every k-th time step in the Hessian-vector products, the dominant cost. With 1 they are
                    exact; else the KL divergence of trial steps, over all time steps, corrects the step's length
    chunk:          tasks at a time: less memory, and faster where a chunk fits the cache; the step is the same
    updates:        how the inner updates are made
    """

    max_kl: float = 1e-2
    cg_iterations: int = 10
    damping: float = 1e-5
    backtracks: int = 15
    shrink: float = 0.8
    hvp_every: int = 1
    chunk: int | None = None
    updates: Updates = field(default_factory=Updates)

    takes = MetaBatch

    def __post_init__(self) -> None:
        require_positive("max_kl", self.max_kl)
        require_positive("damping", self.damping)
        for name in ("cg_iterations", "backtracks"):
            require_steps(name, getattr(self, name), 1)
        for name in ("hvp_every", *(["chunk"] if self.chunk is not None else [])):
            require_at_least(name, getattr(self, name), 1)
        if not 0 < self.shrink < 1:
            raise CaviaError(f"shrink must be between 0 and 1, got {self.shrink}")

    def step(self, learner: Learner, length: Length) -> "TRPOStep":
        return TRPOStep(learner, self)

    def has_kernel(self, learner: Learner) -> bool:
        return PolicyJacobian.applies_to(learner)

    def as_config(self) -> dict[str, Any]:
        """Leaves out `updates`, which the source of the episodes records."""
        return {"outer": "TRPO", "trust_region": {k: v for k, v in asdict(self).items() if k != "updates"}}


class TRPOStep(PolicyStep):
    """Outer steps for a learner around a policy; they update its parameters in place."""

    def __init__(self, learner: Learner, region: TRPO | None = None, closed_form: bool = True):
        super().__init__(learner, closed_form)
        self.region = region or TRPO()

    def __call__(self, batch: MetaBatch) -> Metrics:
        """Take one step: up the surrogate, within the trust region.

        gain:    of the surrogate objective
        kl:      mean KL divergence between the adapted policies before and after
        share:   of the full step that the line search took; 0: no step was good enough, the parameters stay
        entropy: of the adapted policies, mean over steps
        """
        parts = self.parts(batch, self.region.chunk)
        full, before, old = self._full_step(batch, parts)
        loss, kl, share = self._line_search(parts, old, before, full)
        return {"gain": before - loss, "kl": kl, "share": share, "entropy": self.entropy(parts, old)}

    def _full_step(self, batch: MetaBatch, parts: Sequence[MetaBatch]) -> tuple[Tensor, float, list[Tensor]]:
        """The step [P] whose KL divergence would be max_kl; the surrogate and all predictions before it."""
        region = self.region
        kept: list[Jacobian] = []
        gradient, before, old = self.gradient(parts, kept if region.hvp_every == 1 else None, region.cg_iterations)
        if region.hvp_every > 1:
            parts = list(batch.every(region.hvp_every).split((region.chunk or len(batch)) * region.hvp_every))
            kept = [self.jacobian(self.learner, part, region.cg_iterations) for part in parts]

        def damped_fisher(vector: Tensor) -> Tensor:
            """The Hessian of the mean KL divergence, plus damping, times a vector."""
            product = sum((jacobian.fisher(vector) for jacobian in kept), torch.zeros_like(vector))
            return self.ranks.mean(product / len(batch), len(batch)) + region.damping * vector

        direction, product = conjugate_gradients(damped_fisher, gradient, region.cg_iterations)
        return (2 * region.max_kl / (direction @ product)).sqrt() * direction, before, old

    @torch.no_grad()
    def _line_search(
        self, parts: Sequence[MetaBatch], old: Sequence[Tensor], before: float, full: Tensor
    ) -> tuple[float, float, float]:
        """Shorten the step `full` [P] until the surrogate is below `before` and the KL divergence within its limit.

        Returns the surrogate, the KL divergence and the share of the step.
        """
        start, limit = flat(self.parameters), self.region.max_kl
        if self.region.hvp_every > 1:
            full = self._corrected(parts, old, start, full)
        if full.isfinite().all():
            for attempt in range(self.region.backtracks):
                share = self.region.shrink**attempt
                self._assign(start - share * full)
                loss, kl = self.judge(parts, old)
                if loss < before and kl <= limit:
                    return loss, kl, share
        self._assign(start)
        return before, 0.0, 0.0

    def _corrected(self, parts: Sequence[MetaBatch], old: Sequence[Tensor], start: Tensor, full: Tensor) -> Tensor:
        """Rescale the step [P] so that its KL divergence over all time steps is near the limit."""
        for _ in range(CORRECTIONS):
            self._assign(start - full)
            _, kl = self.judge(parts, old)
            if not 0 < kl < math.inf:
                break
            length = (AIM * self.region.max_kl / kl) ** 0.5  # KL grows with about the square of the step
            full = length * full
            if NEAR < length < 1 / NEAR:
                break
        return full

    def _assign(self, vector: Tensor) -> None:
        parts = vector.split([value.numel() for value in self.parameters])
        for value, part in zip(self.parameters, parts, strict=True):
            value.data.copy_(part.view_as(value))


def conjugate_gradients(
    product: Product, target: Tensor, iterations: int, tolerance: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """Solve A·x = target [P] for a positive definite A given by its products; returns x and A·x."""
    x, residual = torch.zeros_like(target), target.clone()
    direction, squares = residual.clone(), residual @ residual
    for _ in range(iterations):
        if squares < tolerance:
            break
        image = product(direction)
        length = squares / (direction @ image)
        x += length * direction
        residual -= length * image
        new = residual @ residual
        direction = residual + new / squares * direction
        squares = new
    return x, target - residual
