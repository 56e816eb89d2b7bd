"""A meta-step as one compiled graph."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from cavia.tasks.batch import TaskBatch
from cavia.tasks.points import tensors


class Compiled:
    """function(inputs) as one compiled graph for each kind of inputs: their shapes, strides, types.

    function: takes a TaskBatch or a tensor, returns a tensor, several or None, and may overwrite its state.
    state:    the tensors that it reads and overwrites, in addition to the inputs.
    holding:  tensors → a context in which it reads and overwrites these instead.
    loops:    it is a loop, see `compile_graph`.

    The function is traced: it runs once with stand-ins for the tensors, which note what is done with them. Whatever
    else it reads is fixed from then on. Nothing has to be checked when the graph is called, so a call costs little more
    than its arithmetic; the guards and wrappers of torch.compile would be noticeable next to a small step.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        state: Sequence[Tensor],
        holding: Callable[[Sequence[Tensor]], AbstractContextManager[None]],
        loops: bool = False,
    ):
        self.function, self.state, self.holding, self.loops = function, list(state), holding, loops
        self.graphs: dict[object, Callable[[list[Tensor]], Sequence[Tensor]]] = {}

    def __call__(self, inputs: TaskBatch | Tensor) -> Any:
        seen = tensors_of(inputs)
        kind = (names_of(inputs), *[None if x is None else (x.shape, x.stride(), x.dtype, x.device) for x in seen])
        present = [x for x in seen if x is not None]
        graph = self.graphs.get(kind)
        if graph is None:
            compiled = self._compile(present, lambda tensors: alike(inputs, tensors))
            outputs = compiled([*self.state, *present])
            self.graphs[kind] = compiled.current_callable or compiled  # what follows the first call needs no more
        else:
            outputs = graph([*self.state, *present])
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

    def _compile(self, inputs: Sequence[Tensor], like: Callable[[Sequence[Tensor]], Any]) -> Any:
        """The graph, to be called with a list of the state and the inputs."""
        count = len(self.state)

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            with self.holding(tensors[:count]):
                outputs = self.function(like(tensors[count:]))
            return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs or ())

        return compile_graph(function, [*self.state, *inputs], self.loops)


def compile_graph(function: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor], loops: bool = False) -> Any:
    """Inductor's graph of function(*tensors), to be called with a list of tensors of the same kinds.

    loops: the function is a loop (`over_batches`) whose steps overwrite nothing; it overwrites tensors at its end only.

    Once it was called, its `current_callable`, if it has one, is the same without what only the first call needs.
    """
    # Late, because they take seconds. Most are not public: if they have changed, a run continues uncompiled.
    from torch._guards import TracingContext, tracing
    from torch._inductor import compile_fx, config
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    from cavia.compiler.products import CheapProducts
    from cavia.compiler.vectors import vectors

    trace = make_fx(
        function if loops else torch.func.functionalize(function),  # what it overwrites is copied there at the end
        decomposition_table=select_decomp_table(),
        tracing_mode="fake",
        _allow_non_fake_inputs=True,
    )
    with is_compiling():
        graph = trace(*tensors)
    examples = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    # On a CPU the kernels of a small step are so short that calling them from Python would show.
    on_cpu = examples[0].device.type == "cpu"
    # Loading graphs from the cache should not try out the C++ compiler.
    quick_start = {"cpp.vec_isa_ok": True, "cpp_cache_precompile_headers": False}
    options = {"post_grad_custom_post_pass": CheapProducts(), **quick_start, **vectors(graph)} if on_cpu else {}
    with tracing(TracingContext(examples[0].fake_mode)), config.patch(options):
        return compile_fx.compile_fx_inner(graph, examples, cpp_wrapper=on_cpu)


_seen_by_learners = attrgetter(*(field.name for field in fields(TaskBatch) if field.name != "attributes"))


def tensors_of(inputs: TaskBatch | Tensor) -> Sequence[Tensor | None]:
    """What a learner sees of a batch, field by field; or the tensor itself."""
    if isinstance(inputs, Tensor):
        return (inputs,)
    seen = _seen_by_learners(inputs)
    if isinstance(seen[0], Tensor):
        return seen
    return [one for value in seen for one in ([None] if value is None else tensors(value))]


def names_of(inputs: TaskBatch | Tensor) -> object:
    """The names of a point's tensors, if there are several."""
    return (
        None if isinstance(inputs, Tensor) or isinstance(inputs.support_x, Tensor) else tuple(sorted(inputs.support_x))
    )


def alike(inputs: TaskBatch | Tensor, tensors: Sequence[Tensor]) -> TaskBatch | Tensor:
    """Inputs of the same kind with these tensors."""
    if isinstance(inputs, Tensor):
        return tensors[0]
    following = iter(tensors)

    def like(value: Any) -> Any:
        if value is None or isinstance(value, Tensor):
            return None if value is None else next(following)
        return {name: next(following) for name in sorted(value)}

    return TaskBatch(*map(like, _seen_by_learners(inputs)))


@contextmanager
def is_compiling() -> Iterator[None]:
    """torch.compiler.is_compiling() is true inside."""
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = False
