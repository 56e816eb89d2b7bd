"""A meta-step as one compiled graph. Import it late: it loads the compiler."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from cavia.tasks.batch import TaskBatch

aten = torch.ops.aten
SMALL = 100_000  # multiplications, beyond which calling a library for the product costs little beside the product


class Compiled:
    """function(inputs) as one compiled graph for each kind of inputs: their shapes, strides, types.

    function: takes a TaskBatch or a tensor, returns a tensor, several or None, and may overwrite its state.
    state:    the tensors that it reads and overwrites, besides the inputs.
    holding:  tensors → a context in which it reads and overwrites these instead.

    The function is traced: it runs once with stand-ins for the tensors, which note what is done with them. Whatever
    else it reads is fixed from then on. Nothing has to be checked when the graph is called, so a call costs little more
    than its arithmetic, where torch.compile would add a tenth of a millisecond of guards and wrappers.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        state: Sequence[Tensor],
        holding: Callable[[Sequence[Tensor]], AbstractContextManager[None]],
    ):
        self.function, self.state, self.holding = function, list(state), holding
        self.graphs: dict[object, Callable[[list[Tensor]], Sequence[Tensor]]] = {}

    def __call__(self, inputs: TaskBatch | Tensor) -> Any:
        tensors = _tensors(inputs)
        kind = tuple(None if x is None else (x.shape, x.stride(), x.dtype, x.device) for x in tensors)
        present = [x for x in tensors if x is not None]
        if kind not in self.graphs:
            self.graphs[kind] = self._compile(present, lambda found: _like(inputs, found))
        found = self.graphs[kind]([*self.state, *present])
        return found[0] if len(found) == 1 else tuple(found) or None

    def _compile(
        self, inputs: Sequence[Tensor], like: Callable[[Sequence[Tensor]], Any]
    ) -> Callable[[list[Tensor]], Sequence[Tensor]]:
        count = len(self.state)

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            with self.holding(tensors[:count]):
                found = self.function(like(tensors[count:]))
            return (found,) if isinstance(found, Tensor) else tuple(found or ())

        trace = make_fx(
            torch.func.functionalize(function),  # what it overwrites is copied there at the end
            decomposition_table=select_decomp_table(),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )
        with _is_compiling():
            graph = trace(*self.state, *inputs)
        examples = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        # On a CPU the kernels of a small step are so short that calling them from Python would show.
        on_cpu = examples[0].device.type == "cpu"
        options = {"cpp_wrapper": True, "post_grad_custom_pre_pass": ThinProducts()} if on_cpu else {}
        with tracing(TracingContext(examples[0].fake_mode)), config.patch(options):
            joint_graph_passes(graph)
            return compile_fx_inner(graph, examples)


def _tensors(inputs: TaskBatch | Tensor) -> list[Tensor | None]:
    """What a learner sees of a batch, field by field; or the tensor itself."""
    if isinstance(inputs, Tensor):
        return [inputs]
    return [getattr(inputs, field.name) for field in fields(inputs) if field.name != "attributes"]


def _like(inputs: TaskBatch | Tensor, tensors: Sequence[Tensor]) -> TaskBatch | Tensor:
    """Inputs of the same kind with these tensors."""
    if isinstance(inputs, Tensor):
        return tensors[0]
    following = iter(tensors)
    return TaskBatch(*(None if x is None else next(following) for x in _tensors(inputs)))  # type: ignore[arg-type]


@contextmanager
def _is_compiling() -> Iterator[None]:
    """torch.compiler.is_compiling() is true inside."""
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = False


class ThinProducts(CustomGraphPass):
    """Small products of matrices that have a side of one become multiplications and sums.

    Those fuse with what is around them, where a product is a call of its own into the matrix library. A network with
    one input or one output has many of them.
    """

    def __call__(self, graph: Graph) -> None:
        for node in list(graph.nodes):
            if node.target in (aten.mm.default, aten.addmm.default) and not node.kwargs:
                *bias, a, b = node.args
                if _is_thin(a.meta["val"], b.meta["val"]):
                    with graph.inserting_before(node):
                        product = _thin_product(graph, a, b)
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
