"""A pass of the compiler over a meta-step. Import it late: it loads the compiler."""

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

aten = torch.ops.aten
SMALL = 100_000  # multiplications, beyond which calling a library for the product costs little beside the product


class ThinProducts(CustomGraphPass):
    """Small products of matrices that have a side of one become multiplications and sums; what is added to a product
    is added behind it.

    Those fuse with what is around them, where a product is a call of its own into the matrix library, which copies what
    is to be added first. A network with one input or one output has many thin products.
    """

    def __call__(self, graph: Graph) -> None:
        for node in list(graph.nodes):
            if node.target in (aten.mm.default, aten.addmm.default) and not node.kwargs:
                *bias, a, b = node.args
                thin = _is_thin(a.meta["val"], b.meta["val"])
                if thin or bias:
                    with graph.inserting_before(node):
                        product = _thin_product(graph, a, b) if thin else _call(graph, aten.mm.default, a, b)
                        product = _call(graph, aten.add.Tensor, product, bias[0]) if bias else product
                    node.replace_all_uses_with(product)
                    graph.erase_node(node)

    def uuid(self) -> Any:
        return get_hash_for_files((__file__,))  # the compiler's cache knows graphs of other versions from ours


def _is_thin(a: torch.Tensor, b: torch.Tensor) -> bool:
    (m, k), n = a.shape, b.shape[1]
    return a.dtype in (torch.float32, torch.float64) and 1 in (m, k, n) and 0 < m * k * n <= SMALL


def _thin_product(graph: Graph, a: Node, b: Node) -> Node:
    """a [M, K] · b [K, N] with M, K or N = 1, as nodes that stand where the graph is inserting."""
    (_, k), n = a.meta["val"].shape, b.meta["val"].shape[1]
    if k == 1:
        return _call(graph, aten.mul.Tensor, a, b)
    if n == 1:
        row = _call(graph, aten.permute.default, b, [1, 0])
        return _call(graph, aten.sum.dim_IntList, _call(graph, aten.mul.Tensor, a, row), [1], True)
    column = _call(graph, aten.permute.default, a, [1, 0])
    return _call(graph, aten.sum.dim_IntList, _call(graph, aten.mul.Tensor, column, b), [0], True)


def _call(graph: Graph, function: Any, *arguments: Any) -> Node:
    """A node for function(*arguments), with what the compiler wants to know of its value."""
    node = graph.call_function(function, arguments)
    node.meta["val"] = function(*(one.meta["val"] if isinstance(one, Node) else one for one in arguments))
    return node
