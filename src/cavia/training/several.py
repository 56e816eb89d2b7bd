"""Several meta-steps per call: a compiled loop over batches that were drawn together."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from cavia.compiler.compiling import Compiled
from cavia.tasks.batch import TaskBatch
from cavia.training.batches import TaskBlock
from cavia.training.step import BETA1, BETA2, MetaStep, unless_lost


class Steps:
    """The steps of a run, on several batches of a block per call.

    may_fail: if the step cannot be compiled, warn why, and continue uncompiled.
    """

    def __init__(self, step: MetaStep, may_fail: bool = False):
        self.step, self.may_fail = step, may_fail
        # On a GPU a loop would synchronise after each step to check its condition.
        on_cpu = step.first_moment.device.type == "cpu"
        goes_on = step.observer is None and step.counter is None  # nothing happens between steps
        self.loops = step.compiled and on_cpu and step.chunk is None and goes_on
        self._loops: dict[int, Loop] = {}  # by the number of batches in a block

    def __call__(self, block: TaskBlock, start: int, rates: Sequence[float]) -> Tensor:
        """Take one step per learning rate, on the batches from `start` on; returns their losses, [rates]."""
        if self.loops and block.count > 1:
            try:
                if block.count not in self._loops:
                    self._loops[block.count] = Loop(self.step, block.count)
                return self._loops[block.count](block.tasks, start, rates)
            except Exception:  # single steps may still compile; an error in the caller's code shows there
                self.loops = False
        losses = []
        for number, rate in enumerate(rates, start):
            self.step.lr.fill_(rate)
            losses.append(self._one(block[number]))
        return torch.stack(losses)

    def _one(self, batch: TaskBatch) -> Tensor:
        try:
            return self.step(batch)
        except Exception as error:
            if not (self.step.compiled and self.may_fail):
                raise
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.step.compile(False)
            loss = self.step(batch)  # an error in the caller's own code is raised here unchanged
            warnings.warn(f"the meta-step could not be compiled and runs uncompiled: {why}", stacklevel=3)
            return loss


class Loop:
    """A compiled graph with a loop inside that takes a step on each batch of a block.

    One call from Python runs them all. The loop holds all weights in one vector; Adam's bias corrections are computed
    before it.
    """

    def __init__(self, step: MetaStep, count: int):
        self.step = step
        self.rates = step.lr.new_zeros(count)
        self.window = torch.zeros(2, dtype=torch.int64)  # start and stop of the batches
        self.graph = Compiled(self._steps, self._tensors(), self._holding, loops=True)

    def __call__(self, block: TaskBatch, start: int, rates: Sequence[float]) -> Tensor:
        stop = start + len(rates)
        with torch.no_grad():
            self.rates[start:stop] = torch.tensor(rates)
            self.window.copy_(torch.tensor([start, stop]))
            losses: Tensor = self.graph(block)
            self.step.lr.fill_(rates[-1])
        return losses[start:stop]

    def _tensors(self) -> list[Tensor]:
        return [self.rates, self.window, *self.step.tensors()]

    @contextmanager
    def _holding(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        own = self.rates, self.window
        self.rates, self.window, *others = tensors
        try:
            with self.step.holding(others):
                yield
        finally:
            self.rates, self.window = own

    def _steps(self, block: TaskBatch) -> Tensor:
        """The loop, for the tracer: block of M·T tasks → losses [M]."""
        from cavia.compiler.looping import over_batches

        step, count = self.step, len(self.rates)
        numbers = step.count + torch.arange(1, count + 1) - self.window[0]  # of the steps, as Adam counts them
        adam = torch.stack([self.rates, 1 - BETA1**numbers, 1 - BETA2**numbers], 1)
        weights = torch.cat([value.flatten() for value in step.parameters.values()])
        state = (weights, step.first_moment, step.second_moment)
        fixed = tuple(step.fixed.values())
        (weights, first, second), losses = over_batches(self._one, state, fixed, adam, block, self.window)
        for parameter, part in zip(step.parameters.values(), weights.split(step.sizes), strict=True):
            parameter.copy_(part.view_as(parameter))
        step.first_moment.copy_(first)
        step.second_moment.copy_(second)
        step.count.copy_(step.count + self.window[1] - self.window[0])
        return losses

    def _one(
        self, state: tuple[Tensor, ...], fixed: tuple[Tensor, ...], adam: Tensor, batch: TaskBatch
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        step, (weights, first, second) = self.step, state
        parts = zip(step.parameters.values(), weights.split(step.sizes), strict=True)
        views = [part.view_as(parameter) for parameter, part in parts]
        with step.holding([step.lr, step.count, first, second, *views, *fixed]):
            gradient, loss = step.gradient(batch)
        fine = gradient.isfinite().all() & loss.isfinite()
        rate, warm_first, warm_second = adam.unbind()
        change, first, second = step.adam(gradient, first, second, rate, warm_first, warm_second, fine)
        return (weights - change, first, second), unless_lost(loss, fine)
