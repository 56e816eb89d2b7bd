"""A pass of the compiler over a meta-step. Import it late: it loads the compiler."""

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from cavia.compiler import nodes, onednn
from cavia.compiler.nodes import arguments, call, transposed

aten = torch.ops.aten
SMALL = 100_000  # multiplications, beyond which calling a library for the product costs little beside the product
SHORT = 16  # numbers in a row; with fewer, turning the factors pays


class CheapProducts(CustomGraphPass):
    """Rewrites the matrix products of a graph in their cheapest form.

    All tasks share one product where each multiplies by the same matrix, such as weights that no task has moved yet,
    and where the tasks' products are only added up, such as gradients of such weights. Many small ones take longer.

    Thin products, of matrices with a side of one, become multiplications and sums, if they are small; and what is added
    to a product is added behind it. Those fuse with what is around them, where a product is a call of its own into the
    matrix library, which copies what is to be added first. A network with one input or output has many thin products.

    A product with short rows becomes the transpose of one with long rows, at which the library is faster.

    Large products in float32 go to oneDNN, on processors for which it is faster than MKL, PyTorch's choice.
    """

    def __call__(self, graph: Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
            _sum_inside(graph, node)
        for node in graph.find_nodes(op="call_function", target=aten.bmm.default):
            _share(graph, node)
        for target in (aten.mm.default, aten.addmm.default):
            for node in graph.find_nodes(op="call_function", target=target):
                _thin(graph, node)
        for target in (aten.mm.default, aten.bmm.default):
            for node in graph.find_nodes(op="call_function", target=target):
                _turn(graph, node)
        if onednn.is_faster():
            onednn.take_over(graph)
        graph.eliminate_dead_code()

    def uuid(self) -> Any:
        # The compiler's cache knows graphs of other versions, and for other processors, from ours.
        return get_hash_for_files((__file__, nodes.__file__, onednn.__file__)), onednn.is_faster()


def _sum_inside(graph: Graph, total: Node) -> None:
    """The sum over tasks of products [T, K, N] · [T, N, M] as one product [K, T·N] · [T·N, M]."""
    value, dims, *keep = arguments(total)
    if dims == [0] and not total.kwargs and _holds_product(value):
        with graph.inserting_before(total):
            summed = _summed(graph, value)
            total.replace_all_uses_with(call(graph, aten.unsqueeze.default, summed, 0) if any(keep) else summed)


def _holds_product(value: Node) -> bool:
    """Whether a batch of products is used only in this sum over tasks."""
    if len(value.users) != 1 or not _passes_sum(value):
        return False
    return value.target is aten.bmm.default or any(_holds_product(one) for one in value.all_input_nodes)


def _passes_sum(value: Node) -> bool:
    """Whether the sum over tasks of this [T, K, M] may be taken before it."""
    shape = value.meta["val"].shape
    if len(shape) != 3 or value.kwargs:
        return False
    if value.target is aten.add.Tensor:
        return all(isinstance(one, Node) and one.meta["val"].shape == shape for one in arguments(value))
    if value.target is aten.reshape.default:
        return bool(arguments(value)[0].meta["val"].shape == shape)
    if value.target is aten.permute.default:
        return bool(arguments(value)[1][0] % 3 == 0)
    return value.target is aten.bmm.default


def _summed(graph: Graph, value: Node) -> Node:
    """The sum of value [T, K, M] over tasks, [K, M]."""
    if not _holds_product(value):
        return call(graph, aten.sum.dim_IntList, value, [0])
    if value.target is aten.bmm.default:
        a, b = arguments(value)
        (tasks, k, n), m = a.meta["val"].shape, b.meta["val"].shape[2]
        side_by_side = call(graph, aten.permute.default, a, [1, 0, 2])
        side_by_side = call(graph, aten.reshape.default, side_by_side, [k, tasks * n])
        return call(graph, aten.mm.default, side_by_side, call(graph, aten.reshape.default, b, [tasks * n, m]))
    if value.target is aten.add.Tensor:
        return call(graph, aten.add.Tensor, *(_summed(graph, one) for one in arguments(value)))
    source, sizes_or_axes = arguments(value)
    whole = _summed(graph, source)
    turned = value.target is aten.permute.default and sizes_or_axes[1] % 3 == 2
    return transposed(graph, whole) if turned else whole


def _share(graph: Graph, node: Node) -> None:
    """Products a [T, N, K] · b [T, K, M], where b is the same for all tasks, as one product [T·N, K] · [K, M]."""
    a, b = arguments(node)
    (tasks, n, k), m = a.meta["val"].shape, b.meta["val"].shape[2]
    if b.meta["val"].stride(0) == 0 and tasks > 1:
        with graph.inserting_before(node):
            stacked = call(graph, aten.reshape.default, a, [tasks * n, k])
            product = call(graph, aten.mm.default, stacked, call(graph, aten.select.int, b, 0, 0))
            node.replace_all_uses_with(call(graph, aten.reshape.default, product, [tasks, n, m]))
        graph.erase_node(node)


def _thin(graph: Graph, node: Node) -> None:
    """A thin product as multiplications and sums; of others, what is added to them behind them."""
    *bias, a, b = arguments(node)
    thin = _is_thin(a.meta["val"], b.meta["val"])
    if (thin or bias) and not node.kwargs:
        with graph.inserting_before(node):
            product = _thin_product(graph, a, b) if thin else call(graph, aten.mm.default, a, b)
            product = call(graph, aten.add.Tensor, product, bias[0]) if bias else product
        node.replace_all_uses_with(product)
        graph.erase_node(node)


def _turn(graph: Graph, node: Node) -> None:
    """A product with short rows as the transpose of one with long rows: (a · b)ᵀ = bᵀ · aᵀ."""
    a, b = arguments(node)
    n, m = node.meta["val"].shape[-2:]
    if m < min(n, SHORT) and a.meta["val"].shape[-2:].numel() * m <= SMALL:
        with graph.inserting_before(node):
            product = call(graph, node.target, transposed(graph, b), transposed(graph, a))
            node.replace_all_uses_with(transposed(graph, product))
        graph.erase_node(node)


def _is_thin(a: torch.Tensor, b: torch.Tensor) -> bool:
    (m, k), n = a.shape, b.shape[1]
    return a.dtype in (torch.float32, torch.float64) and 1 in (m, k, n) and 0 < m * k * n <= SMALL


def _thin_product(graph: Graph, a: Node, b: Node) -> Node:
    """a [M, K] · b [K, N] with M, K or N = 1, as nodes that stand where the graph is inserting."""
    (_, k), n = a.meta["val"].shape, b.meta["val"].shape[1]
    if k == 1:
        return call(graph, aten.mul.Tensor, a, b)
    if n == 1:
        terms = call(graph, aten.mul.Tensor, a, transposed(graph, b))
        return call(graph, aten.sum.dim_IntList, terms, [1], True)
    terms = call(graph, aten.mul.Tensor, transposed(graph, a), b)
    return call(graph, aten.sum.dim_IntList, terms, [0], True)
