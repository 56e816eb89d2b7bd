"""Our own meta-step."""

from collections.abc import Callable, Sequence
from unittest.mock import patch

import torch
from torch import Tensor

import cavia
from cavia.compiler.compiling import alike, tensors_of
from cavia.training.batches import TaskBlock
from cavia.training.several import Loop
from cavia.training.step import MetaStep
from interleaved import CLIP, LR, repeated
from peers.entrant import Entrant, flat
from peers.work import Work


class Ours(Entrant):
    """`MetaStep` as `cavia.fit` calls it."""

    def __init__(self, work: Work, compiled: bool = False, precision: str = "float32"):
        self.learner = work.learner()
        chunk = work.compiled_chunk if compiled else work.chunk
        self.step = MetaStep(self.learner, LR, CLIP, chunk, compiled, precision)

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        return repeated(self.step, batches)[0]

    def gradient(self, batch: cavia.TaskBatch) -> Tensor:
        """The outer gradient of a step, one vector [P]."""
        parts = batch.split(self.step.chunk or len(batch))
        return torch.stack([self.step.gradient(part)[0] * len(part) / len(batch) for part in parts]).sum(0)

    def parameters(self) -> Tensor:
        return flat(self.learner.model.parameters())


class OursLooping(Ours):
    """All steps of a call in one compiled loop, as `cavia.fit` takes those of a block of batches."""

    def __init__(self, work: Work):
        super().__init__(work, compiled=True)

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        parts = zip(*map(tensors_of, batches), strict=True)
        joined = alike(batches[0], [torch.cat(part) for part in parts if part[0] is not None])
        assert isinstance(joined, cavia.TaskBatch)
        loop, block, rates = Loop(self.step, len(batches)), TaskBlock(joined, len(batches)), [LR] * len(batches)
        return lambda: loop(block.tasks, 0, rates)


class WithoutOneDnn(Ours):
    """The compiled step as it was at commit 3587be9: all products are MKL's."""

    def __init__(self, work: Work):
        super().__init__(work, compiled=True)

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        with patch("cavia.compiler.onednn.is_faster", lambda: False):
            for batch in batches:  # compiles; nothing is kept of the step but its graph
                self._dry_step(batch)
        return super().prepare(batches)

    def _dry_step(self, batch: cavia.TaskBatch) -> None:
        kept = [value.clone() for value in self.step.tensors()]
        self.step(batch)
        for value, before in zip(self.step.tensors(), kept, strict=True):
            value.copy_(before)
