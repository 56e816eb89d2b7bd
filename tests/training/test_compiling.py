"""What the compiler is told: thin products are the same products."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cavia.training.compiling import SMALL, ThinProducts

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default)


def passed(function, *inputs):
    """The graph of function(*inputs) after the pass, and how many products it has left."""
    traced = make_fx(function, tracing_mode="fake")(*inputs)
    ThinProducts()(traced.graph)
    traced.recompile()
    return traced, sum(node.target in PRODUCTS for node in traced.graph.nodes)


@pytest.mark.parametrize("m, k, n", [(7, 1, 5), (7, 5, 1), (1, 7, 5), (1, 7, 1), (1, 1, 5), (1, 1, 1)])
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
    "a, b",
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


def test_scaled_products_stay():
    def function(a, b, c):
        return torch.addmm(c, a, b, beta=0.5)

    _, left = passed(function, torch.randn(7, 1), torch.randn(1, 3), torch.randn(3))
    assert left == 1
