"""A compiled step is the eager one, whatever the batch; thin products are the same products."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import cavia
from cavia.training.step import MetaStep
from cavia.training.thin_products import SMALL, ThinProducts

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default)


def passed(function, *inputs):
    """The graph of function(*inputs) after the pass, and how many products it has left."""
    traced = make_fx(function, tracing_mode="fake")(*inputs)
    ThinProducts()(traced.graph)
    traced.recompile()
    return traced, sum(node.target in PRODUCTS for node in traced.graph.nodes)


@pytest.mark.parametrize(("m", "k", "n"), [(7, 1, 5), (7, 5, 1), (1, 7, 5), (1, 7, 1), (1, 1, 5), (1, 1, 1)])
@pytest.mark.parametrize("bias", ["none", "row", "one"])
def test_a_thin_product_becomes_sums_with_the_same_value_and_shape(m, k, n, bias):
    a, b = torch.randn(k, m, dtype=torch.float64).t(), torch.randn(k, n, dtype=torch.float64)
    c = torch.randn(n if bias == "row" else 1, dtype=torch.float64)

    def function(a, b, c):
        return torch.mm(a, b) if bias == "none" else torch.addmm(c, a, b)

    graph, left = passed(function, a, b, c)
    assert left == 0
    torch.testing.assert_close(graph(a, b, c), function(a, b, c), rtol=1e-12, atol=0)


def test_the_meta_values_of_the_new_nodes_are_right():
    graph, _ = passed(torch.mm, torch.randn(7, 5), torch.randn(5, 1))
    output = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    assert output.meta["val"].shape == (7, 1)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.randn(7, 5), torch.randn(5, 3)),
        (torch.randn(SMALL, 2), torch.randn(2, 1)),
        (torch.randn(0, 1), torch.randn(1, 3)),
        (torch.randn(7, 1).half(), torch.randn(1, 3).half()),
    ],
    ids=["wide", "large", "empty", "half"],
)
def test_other_products_stay(a, b):
    _, left = passed(torch.mm, a, b)
    assert left == 1


def test_what_is_added_to_a_product_is_added_behind_it():
    a, b, c = torch.randn(7, 5), torch.randn(5, 3), torch.randn(3)
    graph, _ = passed(torch.addmm, c, a, b)
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"] == [
        aten.mm.default,
        aten.add.Tensor,
    ]
    torch.testing.assert_close(graph(c, a, b), torch.addmm(c, a, b))


def test_scaled_products_stay():
    def function(a, b, c):
        return torch.addmm(c, a, b, beta=0.5)

    _, left = passed(function, torch.randn(7, 1), torch.randn(1, 3), torch.randn(3))
    assert left == 1


def padded(tasks: int, points: int) -> cavia.TaskBatch:
    """Sine curves of which the last has only half of its support points."""
    batch = cavia.Sine().sample(tasks, points, points, torch.Generator().manual_seed(points))
    mask = torch.ones(tasks, points, dtype=torch.bool)
    mask[-1, points // 2 :] = False
    return cavia.TaskBatch(batch.support_x, batch.support_y, batch.query_x, batch.query_y, support_mask=mask)


@pytest.mark.parametrize("chunk", [None, 2])
def test_steps_with_changing_batches_rates_and_frozen_weights_equal_eager_ones(chunk):
    batches = [cavia.Sine().sample(3, n, 4, torch.Generator().manual_seed(n)) for n in (5, 2, 5)] + [padded(3, 4)]
    learners = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = cavia.MLP(1, 1, hidden=(6,), context=2)
        model.layers[-1].bias.requires_grad_(False)
        learners.append(cavia.CAVIA(model, "mse"))
        step = MetaStep(learners[-1], lr=0.01, clip=1.0, chunk=chunk, compiled=compiled)
        for number, batch in enumerate(batches):
            step.lr.fill_(0.01 / (1 + number))
            loss = step(batch)
    eager, compiled_ = (torch.nn.utils.parameters_to_vector(learner.parameters()) for learner in learners)
    torch.testing.assert_close(compiled_, eager)
    assert loss.shape == ()
    assert not loss.requires_grad
    assert step.count.item() == len(batches)


def test_dropout_stays_random_when_compiled():
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(1, 20), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(20, 1)
    )
    learner = cavia.CAVIA(cavia.condition(network, at="0", context=2, example=torch.zeros(1, 1)), "mse")
    step = MetaStep(learner, lr=1e-9, compiled=True)
    batch = cavia.Sine().sample(3, 5, 5, torch.Generator().manual_seed(0))
    assert len({round(step(batch).item(), 4) for _ in range(4)}) == 4


@pytest.mark.parametrize("method", [cavia.ProtoNets, cavia.MatchingNets])
def test_metric_learners_compile(method):
    torch.manual_seed(0)
    learner = method(cavia.MLP(2, 5, hidden=(8,), context=0), ways=3)
    x, y = torch.randn(4, 6, 2), torch.tensor([0, 1, 2, 2, 1, 2]).expand(4, 6)
    batch = cavia.TaskBatch(x, y, x + 0.1, y)
    # Gradients, not weights: ProtoNets' last bias has none but rounding, which Adam would make a whole step of.
    found = [MetaStep(learner, lr=0.01, compiled=compiled)._gradient(batch)[0] for compiled in (True, False)]
    torch.testing.assert_close(*found)


def test_a_failed_trace_leaves_the_step_as_it_was():
    def data_dependent(prediction, target):
        assert prediction.sum() < 1e9  # no trace can know
        return (prediction - target).square().mean(-1)

    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(6,), context=2), data_dependent)
    step = MetaStep(learner, lr=0.01, compiled=True)
    before = [value.data_ptr() for value in step._tensors()]
    with pytest.raises(Exception, match=r".+"):
        step(cavia.Sine().sample(3, 5, 5, torch.Generator().manual_seed(0)))
    assert [value.data_ptr() for value in step._tensors()] == before
    assert not torch.compiler.is_compiling()
    assert step.count.item() == 0


def test_on_a_processor_the_graph_is_called_from_cpp():
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(6,), context=2), "mse")
    whole = MetaStep(learner, lr=0.01, compiled=True)._whole
    batch = cavia.Sine().sample(3, 5, 5, torch.Generator().manual_seed(0))
    tensors = [batch.support_x, batch.support_y, batch.query_x, batch.query_y]
    graph = whole._compile(tensors, lambda found: cavia.TaskBatch(*found))
    assert "CppWrapper" in graph.source_code
