"""Compiled graphs without Inductor, which takes some five seconds for each."""

from contextlib import contextmanager

import pytest
import torch


class _Traced:
    """A graph as it was traced, in place of what Inductor would make of it."""

    current_callable = None

    def __init__(self, graph, examples, **options):
        self.graph = graph

    @torch.no_grad()
    def __call__(self, inputs):
        return self.graph(*inputs)


@contextmanager
def as_traced():
    """Graphs that are compiled inside run as they were traced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._inductor.compile_fx.compile_fx_inner", _Traced)
        yield
