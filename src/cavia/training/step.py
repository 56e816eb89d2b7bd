"""One outer iteration, written to compile into a single graph."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cavia.compiler.compiling import Compiled
from cavia.errors import CaviaError
from cavia.learners.base import Learner
from cavia.models.base import NormedModel
from cavia.tasks.batch import TaskBatch
from cavia.training.ranks import ALONE, Ranks

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual values


class MetaStep:
    """Gradient of the outer loss, element-wise clamp, Adam; updates the learner's parameters in place.

    A step whose loss or gradient is not finite changes nothing and returns a loss that is not finite.

    lr:        outer learning rate β, a tensor that may change between calls.
    clip:      clamp each element of the meta-gradient to ±clip; None: no clamping.
    chunk:     tasks at a time; bounds memory, leaves the gradient unchanged.
    precision: of the matrix products in the gradient, "float32" or "bf16"; weights and Adam keep their precision.

    `ranks` take the step together, each on its share of the batch.

    Adam is written out so that the whole step compiles into one graph, which makes it fast.
    """

    def __init__(
        self,
        learner: Learner,
        lr: float,
        clip: float | None = None,
        chunk: int | None = None,
        compiled: bool = False,
        precision: str = "float32",
    ):
        self.learner, self.precision = learner, precision
        self.ranks: Ranks = ALONE
        self.observer = learner.model if isinstance(learner.model, NormedModel) else None
        self.counter: Tensor | None = getattr(learner, "outer_steps", None)  # for learners whose loss depends on it
        self.clip, self.chunk = clip, chunk
        # Detached views of the parameters: plain tensors that the graph may overwrite.
        self.parameters = {name: value.detach() for name, value in learner.named_parameters() if value.requires_grad}
        if not self.parameters:
            raise CaviaError(f"{type(learner).__name__} has no parameters that require a gradient: nothing to train")
        named = dict(learner.named_parameters()) | dict(learner.named_buffers())
        self.fixed = {name: value.detach() for name, value in named.items() if name not in self.parameters}
        like = next(iter(self.parameters.values()))
        self.lr = like.new_tensor(lr)
        self.count = like.new_zeros(())
        self.sizes = [value.numel() for value in self.parameters.values()]  # to split a vector [P] of all parameters
        self.first_moment = torch.cat([torch.zeros_like(value).flatten() for value in self.parameters.values()])
        self.second_moment = torch.zeros_like(self.first_moment)
        self.compile(compiled)

    def compile(self, compiled: bool) -> None:
        """Switch compilation of the step on or off."""
        self.compiled = compiled

        def wrap(function: Any) -> Any:
            return Compiled(function, self.tensors(), self.holding) if compiled else function

        self._whole: Callable[[TaskBatch], Tensor] = wrap(self._gradient_and_update)
        self._gradient: Callable[[TaskBatch], tuple[Tensor, Tensor]] = wrap(self.gradient)
        self._update: Callable[[Tensor], Tensor] = wrap(self.update)  # given NaN: a loss is not finite

    def tensors(self) -> list[Tensor]:
        """Everything that a step reads and overwrites, except the batch."""
        adam = (self.lr, self.count, self.first_moment, self.second_moment)
        return [*adam, *self.parameters.values(), *self.fixed.values()]

    @contextmanager
    def holding(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Use these in place of `tensors` inside."""
        own = self.tensors()
        self._hold(tensors)
        try:
            yield
        finally:
            self._hold(own)

    def _hold(self, tensors: Sequence[Tensor]) -> None:
        self.lr, self.count, self.first_moment, self.second_moment, *rest = tensors
        self.parameters = dict(zip(self.parameters, rest, strict=False))
        self.fixed = dict(zip(self.fixed, rest[len(self.parameters) :], strict=True))

    def __call__(self, batch: TaskBatch) -> Tensor:
        """Take one step; returns the mean loss of the batch before it, a scalar tensor."""
        with torch.no_grad():
            loss = self._step(batch)
            if (self.observer is not None or self.counter is not None) and not loss.isfinite():
                return loss
            if self.observer is not None:
                self.observer.observe(batch.query_x, self.chunk or len(batch))
                for statistics in () if self.ranks.alone else self.observer.buffers():
                    statistics.copy_(self.ranks.mean(statistics.flatten(), len(batch)).view_as(statistics))
            if self.counter is not None:
                self.counter.add_(1)
            return loss

    def _step(self, batch: TaskBatch) -> Tensor:
        if self.ranks.alone and (self.chunk is None or self.chunk >= len(batch)):
            return self._whole(batch)
        sums = self.first_moment.new_zeros(len(self.first_moment) + 1)  # the gradient, and the loss last
        total, loss = sums[:-1], sums[-1]
        for part in batch.split(self.chunk or len(batch)):
            gradient, part_loss = self._gradient(part)
            share = len(part) / len(batch)
            total += share * gradient
            loss += share * part_loss
        sums = self.ranks.mean(sums, len(batch))
        total, loss = sums[:-1], sums[-1]
        fine = self._update(total if loss.isfinite() else torch.full_like(total, torch.nan))
        return unless_lost(loss, fine)

    def gradient(self, batch: TaskBatch) -> tuple[Tensor, Tensor]:
        """The meta-gradient ∇θ of the mean loss over tasks, one vector [P], and that loss."""
        if self.precision == "float32":
            return self._gradient_of(batch)
        with torch.autocast(self.first_moment.device.type, torch.bfloat16, cache_enabled=False):
            return self._gradient_of(batch)

    def _gradient_of(self, batch: TaskBatch) -> tuple[Tensor, Tensor]:
        if torch.compiler.is_compiling():  # torch.func traces into one graph

            def outer_loss(parameters: dict[str, Tensor]) -> Tensor:
                return torch.func.functional_call(self.learner, self.fixed | parameters, (batch,)).mean()

            gradients, loss = torch.func.grad_and_value(outer_loss)(self.parameters)
            return torch.cat([gradients[name].flatten() for name in self.parameters]), loss
        with torch.enable_grad():  # autograd has less overhead when not traced
            named = dict(self.learner.named_parameters())
            trained = [named[name] for name in self.parameters]
            loss = self.learner(batch).mean()
            by_parameter = torch.autograd.grad(loss, trained, materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in by_parameter]), loss.detach()

    def update(self, gradient: Tensor) -> Tensor:
        """Eq. (6): θ ← θ − β ∇θ, with the gradient [P] clamped and scaled by Adam; nothing if it is not finite.

        Returns whether it is, a scalar bool.
        """
        fine = gradient.isfinite().all()
        self.count.add_(fine)
        warm = (1 - BETA1**self.count, 1 - BETA2**self.count)
        change, first, second = self.adam(gradient, self.first_moment, self.second_moment, self.lr, *warm, fine)
        self.first_moment.copy_(first)
        self.second_moment.copy_(second)
        for parameter, part in zip(self.parameters.values(), change.split(self.sizes), strict=True):
            parameter.sub_(part.view_as(parameter))
        return fine

    def adam(
        self,
        gradient: Tensor,
        first: Tensor,
        second: Tensor,
        rate: Tensor,
        warm_first: Tensor,
        warm_second: Tensor,
        fine: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The update to subtract from θ [P] and the new moments [P], for this gradient [P]; no change unless `fine`.

        warm_first, warm_second: Adam's bias corrections 1 − β₁ᵗ and 1 − β₂ᵗ at step t.
        """
        if self.clip is not None:
            gradient = gradient.clamp(-self.clip, self.clip)
        new, square = first.lerp(gradient, 1 - BETA1), second.lerp(gradient.square(), 1 - BETA2)
        change = rate * (new / warm_first) / ((square / warm_second).sqrt() + EPSILON)
        return change.where(fine, 0), new.where(fine, first), square.where(fine, second)

    def _gradient_and_update(self, batch: TaskBatch) -> Tensor:
        gradient, loss = self.gradient(batch)
        return unless_lost(loss, self.update(gradient.where(loss.isfinite(), torch.nan)))

    def state(self) -> dict[str, Tensor]:
        """Adam's state, by name, for a checkpoint."""
        return {"count": self.count, "first": self.first_moment, "second": self.second_moment}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for name, value in self.state().items():
            value.copy_(state[name])


def unless_lost(loss: Tensor, fine: Tensor) -> Tensor:
    """A step's loss, a scalar; NaN if only the gradient was not finite (`fine`), so that the step changed nothing."""
    return loss.where(fine | ~loss.isfinite(), torch.nan)
