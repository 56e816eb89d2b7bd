"""Inner optimisers: rules of the inner loop by name, for `CAVIA(…, optimiser="adam")`."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.adapted import CONTEXT, MEMORY
from cavia.learners.inner import Descent, Fast, Rule, Slopes
from cavia.learners.losses import without_padding
from cavia.learners.newton import ridge, slopes_by_probing
from cavia.tasks.points import shape

MOMENTUM = 0.9  # of the velocity
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual values
VELOCITY, FIRST, SECOND = (f"{MEMORY}{name}." for name in ("velocity", "first", "second"))
COUNT = f"{MEMORY}count"
OPTIMISERS = ("gradient", "momentum", "adam", "gauss_newton")


def rule_of(optimiser: str, step_size: Mapping[str, float | Tensor]) -> Rule:
    """The rule of that name, at these rates."""
    kinds = dict(zip(OPTIMISERS, (Descent, Momentum, Adam, GaussNewtonSteps), strict=True))
    rule: Rule = kinds[optimiser](step_size)
    return rule


class Momentum(Descent):
    """v ← μ v + ∇L, φ ← φ − α v."""

    def begin(self, fast: Fast) -> Fast:
        return {VELOCITY + name: torch.zeros_like(value) for name, value in fast.items()}

    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        gradients, _ = slopes(fast)
        memory = {VELOCITY + name: MOMENTUM * memory[VELOCITY + name] + g for name, g in gradients.items()}
        return {name: v - self.step_size[name] * memory[VELOCITY + name] for name, v in fast.items()}, memory


class Adam(Descent):
    """Adam (Kingma & Ba, 2015) on each task's numbers; ε is under the root, where a gradient of 0 has a derivative."""

    def begin(self, fast: Fast) -> Fast:
        zeros = {kind + name: torch.zeros_like(value) for kind in (FIRST, SECOND) for name, value in fast.items()}
        some = next(iter(fast.values()))
        return {**zeros, COUNT: some.new_zeros(some.shape[0])}

    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        gradients, _ = slopes(fast)
        count = memory[COUNT] + 1  # [T]
        moved, kept = {}, {COUNT: count}
        for name, g in gradients.items():
            first = kept[FIRST + name] = BETA1 * memory[FIRST + name] + (1 - BETA1) * g
            second = kept[SECOND + name] = BETA2 * memory[SECOND + name] + (1 - BETA2) * g.square()
            warm = [(1 - beta**count).view(-1, *(1,) * (g.ndim - 1)) for beta in (BETA1, BETA2)]
            change = (first / warm[0]) / (second / warm[1] + EPSILON**2).sqrt()
            moved[name] = fast[name] - self.step_size[name] * change
        return moved, kept


class GaussNewtonSteps(Descent):
    """φ ← φ − (2/n JᵀJ + 1/α)⁻¹ ∇L for the squared errors of n numbers: Gauss–Newton, held to φ by the rate α.

    With a small α it is the gradient step of that rate, with a large one it goes to the minimum of the linearised loss:
    so it neither creeps nor overshoots, however many steps are taken.
    """

    def __init__(self, step_size: Mapping[str, float | Tensor], points: "Points | None" = None):
        super().__init__(step_size)
        self.points = points

    def on(self, predictor: Callable[[], Callable[[Fast], Tensor]], y: Tensor, mask: Tensor | None) -> Rule:
        return GaussNewtonSteps(self.step_size, Points(predictor(), y, mask))

    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        assert self.points is not None  # `on` comes first
        context = fast[CONTEXT]
        matrix, wanted, count = self.points.linearised(context)
        damping = count / (2 * self.step_size[CONTEXT])  # [T, 1, 1]
        change, _ = ridge(matrix, wanted, damping)
        return {CONTEXT: context + change.squeeze(-1)}, memory


class Points:
    """The support points of a `GaussNewtonSteps`, as a linear system in the context."""

    def __init__(self, predict: Callable[[Fast], Tensor], y: Tensor, mask: Tensor | None):
        self.predict, self.y, self.mask = predict, y, mask

    def linearised(self, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """J [T, P, C], y − f [T, P, 1], and how many numbers count, [T, 1, 1]."""

        def head(moved: Tensor) -> Tensor:
            return without_padding(self.predict({CONTEXT: moved}), self.mask)

        prediction, target = head(context), without_padding(self.y, self.mask).to(context.dtype)
        if prediction.shape != target.shape:
            raise CaviaError(f"targets y must be {shape(prediction)} like the predictions, got {shape(target)}")
        matrix = slopes_by_probing(head, context).flatten(1, -2)
        of_point = target.shape[2:].numel()
        points = target.new_full((target.shape[0],), target.shape[1]) if self.mask is None else self.mask.sum(1)
        count = (points.to(context.dtype) * of_point).clamp(min=1).view(-1, 1, 1)
        return matrix, (target - prediction).flatten(1).unsqueeze(-1), count
