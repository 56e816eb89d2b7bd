"""Adaptation of a table's tasks: the posterior of the effects given the known rows, kept whole in the context."""

import math

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, Diverged, require_one_of, require_positive, require_steps
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel
from cavia.tables.network import EffectsNet
from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import lead, shape, without_padding

MOST_CHANGE = 4.0  # of a logit in one of Newton's steps
SCALE = 1e-9  # of the precision within a context: distances between contexts are those of their effects


class Posterior(Learner):
    """φ ~ N(0, 1) before a task's rows are seen, and N(mean, precision⁻¹) afterwards, by Gauss–Newton steps.

    For numbers ("mse") one step is exact: φ minimises Σ‖f(x; φ) − y‖²/σ² + ‖φ‖², with σ trained by the outer loop. For
    classes ("cross_entropy") it is Laplace's approximation at the φ that a few steps lead to. A context has the mean,
    and the precision beyond that of the start times `SCALE`, so that the zero context is the start; from there on
    further rows may come, and for numbers it does not matter whether rows come at once or one after the other.

    noise:       σ at the start, in units of standardised targets.
    inner_steps: of Newton, for classes.
    decay:       weight of ‖v‖², which holds back the network next to the lines in training.
    """

    model: EffectsNet

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss = "mse",
        noise: float = 0.5,
        inner_steps: int = 1,
        decay: float = 0.01,
    ):
        super().__init__(model, loss)
        if not isinstance(model, EffectsNet):
            raise CaviaError(f"Posterior adapts an EffectsNet, got a {type(model).__name__}")
        require_one_of("loss", loss, ("mse", "cross_entropy"))
        self.noise, self.decay = require_positive("noise", noise), decay
        self.inner_steps = require_steps("inner_steps", inner_steps, 1)
        self.log_noise = nn.Parameter(torch.full((model.outputs,), math.log(noise)))

    def infer(self, x: Tensor, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        tasks, size = lead(x).shape[0], self.model.context
        begin = self.log_noise.new_zeros(tasks, size) if start is None else self.check_context(x, start)
        if not steps:
            return Adapted.of({CONTEXT: begin})
        basis = self.model.stem(x)
        basis = basis if mask is None else basis.masked_fill(~mask[..., None, None], 0)
        mean, precision = self.unpack(begin)
        solve = self._numbers if self.loss == "mse" else self._classes
        return Adapted.of({CONTEXT: self._pack(*solve(basis.double(), y, mask, mean, precision, steps)).to(begin)})

    def forward(self, batch: TaskBatch) -> Tensor:
        """What the outer loop minimises, per task [T]: the query loss, and `decay` times ‖v‖²."""
        losses = self.task_losses(batch)
        last = self.model.last
        return losses if last is None or not self.decay else losses + self.decay * last.weight.square().sum()

    def respond(self, x: Tensor, adapted: Adapted) -> Tensor:
        return self.model.head(self.model.stem(x), self.check_context(x, adapted))

    @torch.no_grad()
    def deviation(self, x: Tensor, adapted: Adapted) -> Tensor:
        """How uncertain the numbers at x [T, N, inputs] are, [T, N, outputs], up to a common factor.

        √(σ² + b(x)ᵀ precision⁻¹ b(x)): the noise of a row, and what is not known of the task's effects.
        """
        basis = self.model.stem(x)[..., 1:].double()  # [T, N, outputs, E]
        factor = torch.linalg.cholesky(self.unpack(self.check_context(x, adapted))[1])
        solved = torch.linalg.solve_triangular(factor, basis.flatten(1, 2).mT, upper=False)  # [T, E, N·outputs]
        unsure = solved.square().sum(1).view(basis.shape[:-1])
        return (unsure + (2 * self.log_noise.double()).exp()).sqrt().to(x.dtype)

    def unpack(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """The context [T, C] as mean [T, E] and precision [T, E, E], in float64."""
        effects = self.model.effects
        low = torch.tril_indices(effects, effects, device=context.device)
        values = context[:, effects:].double() / SCALE
        half = values.new_zeros(len(context), effects, effects).index_put(
            (torch.arange(len(context), device=context.device)[:, None], low[0], low[1]), values
        )
        whole = half + half.tril(-1).mT + torch.eye(effects, dtype=torch.float64, device=context.device)
        return context[:, :effects].double(), whole

    def _pack(self, mean: Tensor, precision: Tensor) -> Tensor:
        effects = mean.shape[1]
        beyond = precision - torch.eye(effects).to(precision)
        low = torch.tril_indices(effects, effects, device=mean.device)
        return torch.cat([mean, SCALE * beyond[:, low[0], low[1]]], 1)

    def _numbers(
        self, basis: Tensor, y: Tensor, mask: Tensor | None, mean: Tensor, precision: Tensor, steps: int
    ) -> tuple[Tensor, Tensor]:
        """Mean and precision given basis [T, K, outputs, 1 + E] and numbers y [T, K, outputs]."""
        target = without_padding(y, mask).double()
        if target.shape != basis.shape[:-1]:
            raise CaviaError(f"targets y must be {shape(basis[..., 0])} like the predictions, got {shape(target)}")
        weight = (-self.log_noise.double()).exp()  # 1/σ
        design = (basis[..., 1:] * weight[:, None]).flatten(1, 2)  # [T, K·outputs, E]
        left = ((target - basis[..., 0]) * weight).flatten(1).unsqueeze(-1)
        after = precision + design.mT @ design
        return self._solved(after, design.mT @ left + precision @ mean.unsqueeze(-1)), after

    def _classes(
        self, basis: Tensor, y: Tensor, mask: Tensor | None, mean: Tensor, precision: Tensor, steps: int
    ) -> tuple[Tensor, Tensor]:
        """Laplace's approximation given basis [T, K, classes, 1 + E] and class numbers y [T, K]."""
        begin, design, after, phi = mean.unsqueeze(-1), basis[..., 1:], precision, mean
        hot = torch.nn.functional.one_hot(without_padding(y, mask), basis.shape[2]).double()
        counts = torch.ones_like(hot[..., 0]) if mask is None else mask.double()
        for _ in range(steps):
            chance = (basis[..., 0] + torch.einsum("tkoe,te->tko", design, phi)).softmax(-1)  # [T, K, classes]
            slope = torch.einsum("tkoe,tko->te", design, (hot - chance) * counts[..., None]).unsqueeze(-1)
            mixed = torch.einsum("tkoe,tko->tke", design, chance)  # E[b] under the chances
            curved = torch.einsum("tkoe,tkof,tko->tef", design, design, chance * counts[..., None])
            after = precision + curved - torch.einsum("tke,tkf,tk->tef", mixed, mixed, counts)
            gap = phi.unsqueeze(-1)
            step = self._solved(after, slope - precision @ (gap - begin))
            largest = torch.einsum("tkoe,te->tko", design, step).abs().amax((1, 2))  # change of a logit
            phi = phi + step * (MOST_CHANGE / largest.clamp(min=MOST_CHANGE))[:, None]  # Newton's may leap too far
        return phi, after

    def _solved(self, matrix: Tensor, wanted: Tensor) -> Tensor:
        """matrix⁻¹ wanted for each task, [T, E, E] and [T, E, 1] → [T, E]; NaN where there is no solution."""
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if not torch.compiler.is_compiling() and failed.any() and not self.log_noise.isfinite().all():
            raise Diverged("the noise of a table's network is not finite; train with a smaller lr")
        factor = factor.where((failed == 0)[:, None, None], torch.nan)
        return torch.cholesky_solve(wanted, factor).squeeze(-1)
