"""Our own meta-step."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import cavia
from cavia.training.step import MetaStep
from interleaved import CLIP, LR, repeated
from peers.entrant import Entrant, flat
from peers.work import Work


class Ours(Entrant):
    """`MetaStep` as `cavia.fit` calls it."""

    def __init__(self, work: Work, compiled: bool = False):
        self.learner = work.learner()
        chunk = work.compiled_chunk if compiled else work.chunk
        self.step = MetaStep(self.learner, LR, CLIP, chunk, compiled)

    def prepare(self, batches: Sequence[cavia.TaskBatch]) -> Callable[[], object]:
        return repeated(self.step, batches)[0]

    def gradient(self, batch: cavia.TaskBatch) -> Tensor:
        """The outer gradient of a step, one vector [P]."""
        parts = batch.split(self.step.chunk or len(batch))
        return torch.stack([self.step.gradient(part)[0] * len(part) / len(batch) for part in parts]).sum(0)

    def parameters(self) -> Tensor:
        return flat(self.learner.model.parameters())
