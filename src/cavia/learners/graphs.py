"""Functions of a learner as compiled graphs that read its weights at every call."""

import copy
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from cavia.compiler.compiling import compile_graph
from cavia.errors import CaviaError
from cavia.learners.base import Learner

MOST_GRAPHS = 64  # of one learner
MOST_PLANS = 4096
ONE_AT_A_TIME = threading.RLock()  # the compiler has settings of the whole process

Function: TypeAlias = Callable[[Learner, Sequence[Tensor]], tuple[Sequence[Tensor], Any]]  # tensors, their layout


class Graph(NamedTuple):
    """A compiled function of weights and inputs."""

    call: Callable[[list[Tensor]], Sequence[Tensor]]
    layout: Any  # of what it returns


class Plan(NamedTuple):
    """How values of certain shapes become the inputs of a graph.

    fillers: of each value, zeros and the axis at whose end they are put.
    mask:    the third input, if it is not among the values: which points are no padding.
    """

    fillers: Sequence[Sequence[tuple[Tensor, int]]]
    mask: Tensor | None
    graph: Graph | None = None

    def inputs(self, values: Sequence[Tensor]) -> list[Tensor]:
        padded = []
        for value, fillers in zip(values, self.fillers, strict=True):
            for zeros, axis in fillers:
                value = torch.cat((value, zeros), axis)
            padded.append(value.contiguous())
        if self.mask is not None:
            padded.insert(2, self.mask)
        return padded


class Graphs:
    """function(learner, inputs) as one compiled graph for each kind of inputs. Nothing on the learner changes.

    A graph follows the learner's weights and the modes of its modules; whatever else the function reads is fixed.
    Several threads may call graphs. What is traced, or run as it is, is a copy of the learner that shares its weights,
    because some learners put a task's weights into their modules for the time of a call.
    """

    def __init__(self, learner: Learner):
        self.learner = learner
        self.graphs: dict[Hashable, Graph] = {}
        self.plans: dict[Hashable, Plan] = {}
        self.modules = list(learner.modules())
        first = {
            id(child): (module._modules, name) for module in self.modules for name, child in module._modules.items()
        }
        self.children = [first[id(module)] for module in self.modules[1:]]
        places = {
            f"{path}.{name}" if path else name: (held, name)
            for path, module in learner.named_modules()
            for held in (module._parameters, module._buffers)
            for name, value in held.items()
            if value is not None
        }
        # Where the weights are held, since they may be replaced; attributes of modules would take longer to read.
        self.names, self.places = list(places), list(places.values())
        self.addresses: list[int] = []
        self.layouts: list[Any] = []
        self.copied: tuple[list[Tensor], Learner] | None = None

    def key(self, what: Hashable, values: Sequence[Tensor]) -> Hashable | None:
        """The same for values of the same kinds; None if no graph takes them."""
        if [held[name] for held, name in self.children] != self.modules[1:]:
            raise CaviaError("modules of the learner were replaced since it was compiled; call cavia.compiled again")
        if torch._C._functorch.peek_interpreter_stack() is not None or torch.compiler.is_dynamo_compiling():
            return None  # inside vmap, grad, …
        kinds: list[Hashable] = [what, tuple([module.training for module in self.modules])]
        for value in values:
            if type(value) is not Tensor and type(value) is not nn.Parameter:
                return None
            kinds += (value.shape, value.dtype, value.device)
        return tuple(kinds)

    def run(self, key: Hashable, values: Sequence[Tensor]) -> tuple[Sequence[Tensor], Any] | None:
        """What the function returns for these values, padding included; None if there is no graph, or it fails."""
        weights = self._weights()
        plan = self.plans.get(key)
        if plan is None or plan.graph is None:
            return None
        try:
            return plan.graph.call(weights + plan.inputs(values)), plan.graph.layout
        except Exception:  # the learner's own calls say what is wrong
            return None

    def add(self, key: Hashable, what: Hashable, function: Function, values: Sequence[Tensor], plan: Plan) -> bool:
        """Make a graph for values like these; False if there are too many already.

        what: names the function. Values of other shapes, whose inputs are of the same kinds, share the graph.
        """
        with ONE_AT_A_TIME, torch.inference_mode(False), torch.no_grad():
            weights, inputs = self._weights(), plan.inputs(values)
            kind = self.key(what, inputs)
            if kind not in self.graphs:
                if len(self.graphs) >= MOST_GRAPHS:
                    return False
                self.graphs[kind] = self._compile(function, weights, inputs)
            if len(self.plans) >= MOST_PLANS:
                self.plans.clear()
            self.plans[key] = plan._replace(graph=self.graphs[kind])
            return True

    @contextmanager
    def as_it_is(self) -> Iterator[Learner]:
        """The copy of the learner, for a call that is not compiled."""
        with ONE_AT_A_TIME:
            yield self._copy(self._weights())

    def _weights(self) -> list[Tensor]:
        """The learner's weights and buffers as they are; graphs for weights of other kinds are forgotten."""
        weights = [held[name] for held, name in self.places]
        addresses = [value.data_ptr() for value in weights]
        if addresses != self.addresses:  # moved or converted; training changes them in place
            with ONE_AT_A_TIME:
                layouts = [(value.shape, value.stride(), value.dtype, value.device) for value in weights]
                if layouts != self.layouts:
                    self.graphs.clear()
                    self.plans.clear()
                self.addresses, self.layouts = addresses, layouts
        return weights

    def _copy(self, weights: list[Tensor]) -> Learner:
        """A copy of the learner's modules that shares its weights, in the same modes."""
        if self.copied is None or any(one is not other for one, other in zip(self.copied[0], weights, strict=True)):
            self.copied = weights, copy.deepcopy(self.learner, {id(value): value for value in weights})
        learner = self.copied[1]
        for one, other in zip(learner.modules(), self.modules, strict=True):
            one.training = other.training
        return learner

    def _compile(self, function: Function, weights: list[Tensor], inputs: Sequence[Tensor]) -> Graph:
        caller, layout = _Caller(self._copy(weights), function), None

        def traced(*tensors: Tensor) -> tuple[Tensor, ...]:
            nonlocal layout
            own = {f"learner.{name}": value for name, value in zip(self.names, tensors, strict=False)}
            outputs, layout = torch.func.functional_call(caller, own, (tensors[len(own) :],))
            return tuple(outputs)

        # Stand-ins, because tensors that were made in inference mode cannot be traced.
        examples = [
            torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            for value in (*weights, *inputs)
        ]
        graph = compile_graph(traced, examples)
        graph([*weights, *inputs])
        return Graph(graph.current_callable or graph, layout)


class _Caller(nn.Module):
    """A function of a learner as a forward pass, which is what torch.func can call with other weights."""

    def __init__(self, learner: Learner, function: Function):
        super().__init__()
        self.learner, self.function = learner, function

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Sequence[Tensor], Any]:
        return self.function(self.learner, inputs)
