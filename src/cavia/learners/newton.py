"""Adaptation of the context by curvature: one Gauss–Newton step instead of many gradient steps."""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, Diverged, require_positive, require_steps
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.learners.base import Learner
from cavia.learners.losses import PointLoss, without_padding
from cavia.models.base import ContextModel
from cavia.tasks.points import Inputs, lead, shape

FORWARD_MODE = threading.RLock()  # PyTorch has one level of forward differentiation for all threads


class GaussNewton(Learner):
    """Like CAVIA, only φ adapts, from φ = 0, but by damped Gauss–Newton steps on Σ‖f(x; φ) − y‖² + λ‖φ‖².

    With a model that is linear in φ, one step ends at the minimum: the prediction of a Gaussian process whose kernel
    is learned. Use it if φ is large and the known points are few. A step computes C predictions of the support points
    at once and solves a C × C system for each task. For squared errors only.

    damping:     λ at the start, the variance of the noise over that of φ; the outer loop trains it.
    inner_steps: more than one if the model is not linear in φ.

    >>> learner = GaussNewton(MLP(inputs=1, outputs=1, context=5), loss="mse")
    >>> learner.adapt(torch.zeros(3, 10, 1), torch.ones(3, 10, 1)).context.shape
    torch.Size([3, 5])
    """

    def __init__(self, model: ContextModel, loss: str | PointLoss = "mse", damping: float = 1.0, inner_steps: int = 1):
        super().__init__(model, loss)
        if loss != "mse":
            raise CaviaError(f'GaussNewton minimises squared errors: loss must be "mse", got {loss!r}')
        if model.context == 0:
            raise CaviaError("GaussNewton adapts context parameters but the model has context=0; give it at least 1")
        if self.keeps_statistics:
            raise CaviaError('GaussNewton takes no model with norm="support"; take norm="task" or "running"')
        self.damping = require_positive("damping", damping)
        self.inner_steps = require_steps("inner_steps", inner_steps, 1)
        like = next(model.parameters(), torch.empty(0))
        self.log_damping = nn.Parameter(like.new_tensor(math.log(damping)))

    def infer(self, x: Inputs, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        tasks, zeros = lead(x).shape[0], self.log_damping.new_zeros(1, self.model.context)  # [1, C]: the same for all
        context = zeros if start is None else self.check_context(x, start)
        features = self.model.stem(x)
        target = without_padding(y, mask).to(context.dtype)
        for _ in range(steps):
            prediction, slopes = self._linearised(features, context, tasks)
            prediction = without_padding(prediction, mask)
            if prediction.shape != target.shape:
                raise CaviaError(f"targets y must be {shape(prediction)} like the predictions, got {shape(target)}")
            slopes = without_padding(slopes, mask).flatten(1, -2)  # J [T, K·outputs, C]
            # f(φ') is about f + J(φ' − φ); φ' minimises ‖J φ' − (y − f + J φ)‖² + λ‖φ'‖².
            wanted = (target - prediction).flatten(1).unsqueeze(-1) + slopes @ context.unsqueeze(-1)
            solution, solved = ridge(slopes, wanted, self.log_damping.exp())
            self._check_network(solved)
            context = solution.squeeze(-1)
        return Adapted.of({CONTEXT: context.expand(tasks, -1)})

    def _linearised(self, features: Any, context: Tensor, tasks: int) -> tuple[Tensor, Tensor]:
        """Predictions [T, K, ...] at the context [T or 1, C], and J = ∂f/∂φ there: [T, K, ..., C].

        A model with `slopes` knows J, one with `linearised` both at once; others are probed.
        """
        both: Callable[[Any, Tensor], tuple[Tensor, Tensor]] | None = getattr(self.model, "linearised", None)
        if both:
            return both(features, context)
        return self.model.head(features, context.expand(tasks, -1)), self._slopes(features, context)

    def _slopes(self, features: Any, context: Tensor) -> Tensor:
        """J = ∂f/∂φ at the context [T or 1, C]: [T, K, ..., C]."""
        known: Callable[[Any, Tensor], Tensor] | None = getattr(self.model, "slopes", None)
        if known:
            return known(features, context)

        return slopes_by_probing(partial(self.model.head, features), context)

    def _check_network(self, solved: Tensor) -> None:
        """Raise if tasks have no solution, solved [T], because the network's weights are not finite."""
        if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
            return  # nobody can look at values there
        if not solved.all() and not all(value.isfinite().all() for value in self.parameters()):
            raise Diverged(
                f"the Gauss–Newton step has no solution with damping {self.log_damping.exp().item():g}: the network's "
                "weights are not finite; start with a larger damping, or train with a smaller lr"
            )

    def respond(self, x: Inputs, adapted: Adapted) -> Tensor:
        context = self.check_context(x, adapted)
        return self.model.head(self.model.stem(x), context)  # the stem may see that points are equal


def slopes_by_probing(head: Callable[[Tensor], Tensor], context: Tensor) -> Tensor:
    """∂f/∂φ of predictions f(φ) [T, K, ...] at the context [T or 1, C], one direction at a time: [T, K, ..., C]."""

    def along(direction: Tensor) -> Tensor:  # [C]
        return torch.func.jvp(head, (context,), (direction.expand_as(context),))[1]

    with FORWARD_MODE:
        return torch.func.vmap(along, out_dims=-1)(torch.eye(context.shape[1]).to(context))


def ridge(matrix: Tensor, wanted: Tensor, damping: Tensor) -> tuple[Tensor, Tensor]:
    """The v that minimises ‖A v − w‖² + λ‖v‖²: A [T, P, C] and w [T, P, 1] → v [T, C, 1], and whether there is one [T].

    damping: λ, or one for each task, [T, 1, 1]. A task without a solution gets NaN, and the others theirs.
    """
    rows, columns = matrix.shape[1:]
    diagonal = damping * torch.eye(min(rows, columns)).to(matrix)
    short = rows < columns  # v = Aᵀ (A Aᵀ + λ)⁻¹ w, else v = (Aᵀ A + λ)⁻¹ Aᵀ w
    factor, failed = torch.linalg.cholesky_ex((matrix @ matrix.mT if short else matrix.mT @ matrix) + diagonal)
    solved = failed == 0
    factor = factor.where(solved[:, None, None], torch.nan)
    if short:
        return matrix.mT @ torch.cholesky_solve(wanted, factor), solved
    return torch.cholesky_solve(matrix.mT @ wanted, factor), solved
