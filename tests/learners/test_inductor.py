"""Two learners with Inductor's own graphs; `make check` runs the tests of `cavia.compiled` with them, too."""

import pytest
import torch

import cavia
from cavia.training.step import MetaStep
from tests.learners.compiling import assert_same, make


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CAVIA", "MAML"])
def test_a_learner_of_inductors_graphs_is_the_learner(name):
    learner = make(name)
    compiled = cavia.compiled(learner)
    for tasks, support, query in ((3, 3, 5), (4, 4, 8)):
        assert_same(compiled, learner, tasks, support, query)
    assert len(compiled.graphs.graphs) == 2


@pytest.mark.slow
def test_on_a_processor_the_graph_is_called_from_cpp_and_biases_are_not_added_by_the_library():
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(6, 7), context=2), "mse")
    whole = MetaStep(learner, lr=0.01, compiled=True)._whole
    batch = cavia.Sine().sample(3, 5, 5, torch.Generator().manual_seed(0))
    tensors = [batch.support_x, batch.support_y, batch.query_x, batch.query_y]
    graph = whole._compile(tensors, lambda actual: cavia.TaskBatch(*actual))
    assert "CppWrapper" in graph.source_code
    assert "cpu_mm_out" in graph.source_code
    assert "addmm" not in graph.source_code
