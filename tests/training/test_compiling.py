"""A compiled step is the eager one, whatever the batch; products in a cheaper form are the same products."""

import pytest
import torch
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

import cavia
from cavia.compiler.products import SMALL, CheapProducts
from cavia.training.step import MetaStep

aten = torch.ops.aten
PRODUCTS = {aten.mm.default: "mm", aten.addmm.default: "addmm", aten.bmm.default: "bmm"}


def passed(function, *inputs):
    """The graph of function(*inputs) after the pass, and the products that it has left."""
    traced = make_fx(function, decomposition_table=core_aten_decompositions(), tracing_mode="fake")(*inputs)
    for node in traced.graph.find_nodes(op="call_function", target=aten.view.default):
        node.target = aten.reshape.default  # as Inductor has it before its passes
    CheapProducts()(traced.graph)
    traced.graph.lint()
    traced.recompile()
    return traced, [PRODUCTS[node.target] for node in traced.graph.nodes if node.target in PRODUCTS]


def doubles(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def assert_same(graph, function, *inputs):
    torch.testing.assert_close(graph(*inputs), function(*inputs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("m", "k", "n"), [(7, 1, 5), (7, 5, 1), (1, 7, 5), (1, 7, 1), (1, 1, 5), (1, 1, 1)])
@pytest.mark.parametrize("bias", ["none", "row", "one"])
def test_a_thin_product_becomes_sums_with_the_same_value_and_shape(m, k, n, bias):
    a, b = torch.randn(k, m, dtype=torch.float64).t(), torch.randn(k, n, dtype=torch.float64)
    c = torch.randn(n if bias == "row" else 1, dtype=torch.float64)

    def function(a, b, c):
        return torch.mm(a, b) if bias == "none" else torch.addmm(c, a, b)

    graph, left = passed(function, a, b, c)
    assert left == []
    assert_same(graph, function, a, b, c)


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
    assert left == ["mm"]


def test_what_is_added_to_a_product_is_added_behind_it():
    a, b, c = torch.randn(3, 5), torch.randn(5, 7), torch.randn(7)
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
    assert left == ["addmm"]


@pytest.mark.parametrize("turned", [False, True])
def test_tasks_that_multiply_by_the_same_matrix_share_one_product(turned):
    a, weight = doubles(4, 6, 20), doubles(20, 20)

    def function(a, weight):
        return torch.bmm(a, (weight.t() if turned else weight).expand(4, 20, 20))

    graph, left = passed(function, a, weight)
    assert left == ["mm"]
    assert_same(graph, function, a, weight)


def test_matrices_of_their_own_keep_a_product_for_each_task():
    graph, left = passed(torch.bmm, doubles(4, 6, 20), doubles(4, 20, 20))
    assert left == ["bmm"]
    assert_same(graph, torch.bmm, doubles(4, 6, 20), doubles(4, 20, 20))


def test_products_without_points_add_up_to_zero():
    graph, _ = passed(lambda a, b: torch.bmm(a, b).sum(0), doubles(4, 20, 0), doubles(4, 0, 30))
    assert graph(doubles(4, 20, 0), doubles(4, 0, 30)).eq(torch.zeros(20, 30)).all()


@pytest.mark.parametrize("keepdim", [False, True])
def test_products_that_are_only_added_up_over_tasks_are_one_product(keepdim):
    def function(a, b, c):
        return (c + torch.bmm(a.mT, b).mT).sum(0, keepdim)

    inputs = doubles(4, 6, 20), doubles(4, 6, 30), doubles(4, 30, 20)
    graph, left = passed(function, *inputs)
    assert left == ["mm"]
    assert_same(graph, function, *inputs)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: (product := torch.bmm(a, b)).sum(0) + product[0],
        lambda a, b: torch.bmm(a, b).sum(1),
        lambda a, b: torch.bmm(a, b).sum((0, 1)),
        lambda a, b: torch.bmm(a, b).relu().sum(0),
        lambda a, b: torch.bmm(a, b).permute(1, 0, 2).sum(0),
        lambda a, b: torch.bmm(a, b).add(a[:1], alpha=2).sum(0),
        lambda a, b: torch.bmm(a, b).add(1.0).sum(0),
        lambda a, b: torch.bmm(a, b).reshape(2, 40, 20).sum(0),
    ],
    ids=["used elsewhere", "over rows", "over more", "bent", "other axis", "scaled", "a number", "other shape"],
)
def test_other_sums_of_products_stay(function):
    inputs = doubles(4, 20, 20), doubles(4, 20, 20)
    graph, left = passed(function, *inputs)
    assert left == ["bmm"]
    assert_same(graph, function, *inputs)


@pytest.mark.parametrize("shapes", [((30, 40), (40, 5)), ((4, 30, 40), (4, 40, 5))], ids=["one", "each task"])
def test_a_product_with_short_rows_is_taken_with_long_ones(shapes):
    a, b = (doubles(*shape) for shape in shapes)
    graph, left = passed(torch.matmul, a, b)
    (product,) = [node for node in graph.graph.nodes if node.target in PRODUCTS]
    assert product.meta["val"].shape[-2:] == (5, 30)
    assert len(left) == 1
    assert_same(graph, torch.matmul, a, b)
    torch.testing.assert_close(passed(torch.matmul, b.mT, a.mT)[0](b.mT, a.mT), b.mT @ a.mT)


def padded(tasks: int, points: int) -> cavia.TaskBatch:
    """Sine curves of which the last has only half of its support points."""
    batch = cavia.Sine().sample(tasks, points, points, torch.Generator().manual_seed(points))
    mask = torch.ones(tasks, points, dtype=torch.bool)
    mask[-1, points // 2 :] = False
    return cavia.TaskBatch(batch.support_x, batch.support_y, batch.query_x, batch.query_y, support_mask=mask)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("learner", [cavia.MAML, cavia.ANIL, cavia.CaviaMAML, cavia.MetaSGD])
def test_steps_that_adapt_weights_equal_eager_ones(learner):
    batches = [cavia.Sine().sample(4, 6, 7, torch.Generator().manual_seed(seed)) for seed in range(2)]
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        one = learner(cavia.MLP(1, 1, hidden=(20, 18), context=2), "mse", inner_steps=2).double()
        step = MetaStep(one, lr=0.01, compiled=compiled)
        for batch in batches:
            points = (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
            step(cavia.TaskBatch(*(part.double() for part in points)))
        results.append(torch.nn.utils.parameters_to_vector(one.parameters()))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
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


@pytest.mark.usefixtures("compiler")
def test_dropout_stays_random_when_compiled():
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(1, 20), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(20, 1)
    )
    learner = cavia.CAVIA(cavia.condition(network, at="0", context=2, example=torch.zeros(1, 1)), "mse")
    step = MetaStep(learner, lr=1e-9, compiled=True)
    batch = cavia.Sine().sample(3, 5, 5, torch.Generator().manual_seed(0))
    assert len({round(step(batch).item(), 4) for _ in range(4)}) == 4


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("method", [cavia.ProtoNets, cavia.MatchingNets])
def test_metric_learners_compile(method):
    torch.manual_seed(0)
    learner = method(cavia.MLP(2, 5, hidden=(8,), context=0), ways=3)
    x, y = torch.randn(4, 6, 2), torch.tensor([0, 1, 2, 2, 1, 2]).expand(4, 6)
    batch = cavia.TaskBatch(x, y, x + 0.1, y)
    # Gradients, not weights: ProtoNets' last bias has none but rounding, which Adam would make a whole step of.
    actual = [MetaStep(learner, lr=0.01, compiled=compiled)._gradient(batch)[0] for compiled in (True, False)]
    torch.testing.assert_close(*actual)


def test_a_failed_trace_leaves_the_step_as_it_was():
    def data_dependent(prediction, target):
        assert prediction.sum() < 1e9  # no trace can know
        return (prediction - target).square().mean(-1)

    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(6,), context=2), data_dependent)
    step = MetaStep(learner, lr=0.01, compiled=True)
    before = [value.data_ptr() for value in step.tensors()]
    with pytest.raises(Exception, match=r".+"):
        step(cavia.Sine().sample(3, 5, 5, torch.Generator().manual_seed(0)))
    assert [value.data_ptr() for value in step.tensors()] == before
    assert not torch.compiler.is_compiling()
    assert step.count.item() == 0
