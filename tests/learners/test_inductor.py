"""Two learners with Inductor's own graphs; `make check` runs all of test_compiled.py with them."""

import pytest

import cavia
from tests.learners.test_compiled import assert_same, make


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CAVIA", "MAML"])
def test_a_learner_of_inductors_graphs_is_the_learner(name):
    learner = make(name)
    compiled = cavia.compiled(learner)
    for tasks, support, query in ((3, 3, 5), (4, 4, 8)):
        assert_same(compiled, learner, tasks, support, query)
    assert len(compiled.graphs.graphs) == 2
