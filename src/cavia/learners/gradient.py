"""Every method that adapts by gradient, as a choice of what moves, how far, and what the outer loop trains."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_at_least, require_one_of, require_positive, require_steps
from cavia.kinds import checked
from cavia.learners.adapted import CONTEXT, MEMORY, Adapted
from cavia.learners.base import Learner
from cavia.learners.inner import (
    Descent,
    Fast,
    Rule,
    Slopes,
    TaskLosses,
    by_autograd,
    by_transform,
    descend,
    only_numbers,
)
from cavia.learners.losses import PointLoss, mean_slope, mse, mse_slope
from cavia.learners.optimisers import OPTIMISERS, rule_of
from cavia.models.base import ContextModel, NormedModel
from cavia.models.substitute import alone, call_with
from cavia.tasks.points import Inputs, each, lead, shape, tensors


class GradientLearner(Learner):
    """Adapts some of {context, weights} by gradient steps on the support loss.

    rates:       name of a fast parameter → its inner learning rate; the names are what adapts.
    learn_init:  the outer loop trains φ₀ too (otherwise φ₀ = 0).
    learn_rates: the outer loop trains one rate per number that adapts (Meta-SGD).
    """

    optimiser = "gradient"
    drawn_once = 0  # random numbers that a policy draws at the start of an episode, and keeps

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        rates: Mapping[str, float],
        inner_steps: int,
        first_order: bool,
        learn_init: bool,
        learn_rates: bool = False,
    ):
        super().__init__(model, loss)
        rates = {name: require_positive("inner_lr", rate) for name, rate in rates.items()}
        self.inner_steps = require_steps("inner_steps", inner_steps, 1)
        self.first_order = first_order
        self.fast_names = tuple(rates)
        like = next(model.parameters(), torch.empty(0))
        initial_context = torch.zeros(model.context, dtype=like.dtype, device=like.device)
        if learn_init and model.context:
            self.initial_context: Tensor = nn.Parameter(initial_context)
        else:
            self.register_buffer("initial_context", initial_context, persistent=False)
        self.rates: nn.ParameterDict | None = None
        self.fixed_rates = dict(rates)
        if learn_rates:
            self._learn_rates()

    def _learn_rates(self) -> None:
        """The outer loop trains one rate per number that adapts, from the fixed ones on."""
        start = self._start()
        rates = {name: float(rate) for name, rate in self.fixed_rates.items()}
        self.rates = nn.ParameterDict(
            {key(name): torch.full_like(start[name], rate, requires_grad=True) for name, rate in rates.items()}
        )

    def _start(self) -> Fast:
        """One task's fast parameters before adaptation, without a task axis."""
        if self.fast_names == (CONTEXT,):
            return {CONTEXT: self.initial_context}
        weights = dict(self.model.named_parameters())
        return {name: self.initial_context if name == CONTEXT else weights[name] for name in self.fast_names}

    def step_size(self) -> Mapping[str, float | Tensor]:
        """Name of a fast parameter → its inner learning rate α."""
        if self.rates is None:
            return self.fixed_rates
        return {name: self.rates[key(name)] for name in self.fast_names}

    def rule(self) -> Rule:
        """How a step moves what adapts."""
        return Descent(self.step_size()) if self.optimiser == "gradient" else rule_of(self.optimiser, self.step_size())

    def network(self, fast: Fast) -> Fast:
        """What the network is called with, by name, from what adapts: the same."""
        return fast

    def policy_terms(self, batch: Any) -> Tensor | None:
        """What the outer loss of a policy has beside its surrogate, each task's [T]; nothing.

        batch: the `MetaBatch` of the step.
        """
        return None

    @checked
    def start(self, tasks: int) -> Adapted:
        """`tasks` tasks before adaptation."""
        fast = self._starts(require_at_least("tasks", tasks, 1))
        return Adapted.of(fast | self.rule().begin(fast))

    def _starts(self, tasks: int) -> Fast:  # their number may be a symbol, in an exported graph
        return {name: value.expand(tasks, *value.shape) for name, value in self._start().items()}

    def _begin(self, x: Inputs, y: Tensor, mask: Tensor | None) -> Fast:
        """Where tasks with these support points start: all at the same point."""
        return self._starts(lead(x).shape[0])

    def infer(self, x: Inputs, y: Tensor, mask: Tensor | None, steps: int, start: Adapted | None) -> Adapted:
        with self._apart():
            rule = self.rule().on(partial(self.predictor, x), y, mask)
            fast = self._begin(x, y, mask) if start is None else self._checked(x, start)
            memory = rule.begin(fast) if start is None else self._remembered(rule, fast, start)
            fast, memory = descend(self._slopes(x, y, mask), rule, fast, memory, steps, self.first_order)
            return Adapted.of(fast | memory, self._statistics(x, fast) if self.keeps_statistics else None)

    def _apart(self) -> AbstractContextManager[Any]:
        """Keeps other threads out while a task's weights are in the model."""
        return nullcontext() if self.fast_names == (CONTEXT,) else alone(self.model)

    def _slopes(self, x: Inputs, y: Tensor, mask: Tensor | None) -> Slopes:
        """fast → the gradient of the summed losses on x and y, by the cheapest means that serve, and the losses."""
        numbers = only_numbers(self, *tensors(x), y)
        if numbers and self._has_closed_form:
            model: Any = self.model
            features, slope = model.stem(x), mean_slope(mse_slope, y, mask)
            return lambda fast: ({CONTEXT: model.context_gradient(features, fast[CONTEXT], slope)}, None)
        return partial(by_autograd if numbers else by_transform, self._losses(x, y, mask))

    def _losses(self, x: Inputs, y: Tensor, mask: Tensor | None) -> TaskLosses:
        """fast → each task's loss on x and y, [T]."""
        predict = self.predictor(x)
        return lambda fast: self.mean_loss(predict(fast), y, mask)

    @property
    def _has_closed_form(self) -> bool:
        """Whether the gradient is that of squared errors with respect to the context of an MLP, without users' code."""
        kind = type(self)
        is_ours = kind.mean_loss is Learner.mean_loss and kind.predictor is GradientLearner.predictor
        known = is_ours and self.point_loss is mse and self.fast_names == (CONTEXT,)
        return known and getattr(self.model, "is_plain", False)

    def respond(self, x: Inputs, adapted: Adapted) -> Tensor:
        with self._apart():
            return self.predictor(x, self.statistics_in(adapted))(self._checked(x, adapted))

    def _checked(self, x: Inputs, adapted: Adapted) -> Fast:
        """What adapted, by name, if it is this learner's, for as many tasks as x [T, N, ...] has."""
        start, tasks = self._start(), lead(x).shape[0]
        fast = {name: value for name, value in adapted.items() if not name.startswith(MEMORY)}
        if fast.keys() != start.keys():
            raise CaviaError(f"{type(self).__name__} adapts {', '.join(start)}; it was given {', '.join(fast)}")
        for name, value in fast.items():
            if value.shape != (tasks, *start[name].shape):
                raise CaviaError(
                    f"{name!r} must be {[tasks, *start[name].shape]} for the {tasks} tasks of x {shape(x)}, "
                    f"got {shape(value)}"
                )
        return fast

    def _remembered(self, rule: Rule, fast: Fast, adapted: Adapted) -> Fast:
        """What the rule remembers of the tasks; of such as bring no memory, as from a store, what it begins with."""
        memory, expected = {n: v for n, v in adapted.items() if n.startswith(MEMORY)}, rule.begin(fast)
        if not memory:
            return expected
        if {n: v.shape for n, v in memory.items()} != {n: v.shape for n, v in expected.items()}:
            raise CaviaError(f"{type(self).__name__} remembers {_shapes(expected)}; it was given {_shapes(memory)}")
        return memory

    def predictor(self, x: Inputs, statistics: Tensor | None = None) -> Callable[[Fast], Tensor]:
        """fast → predictions for x [T, N, ...]; whatever does not depend on fast is computed once, here.

        statistics: [T, ...], what a `NormedModel` normalises x by, if not by its own statistics.
        """
        given: Any = () if statistics is None else (statistics,)
        if self.fast_names == (CONTEXT,):
            features = self.model.stem(x, *given)
            return lambda fast: self.model.head(features, fast[CONTEXT], *given)
        return lambda fast: self._task_by_task(self.model, "", self.network(fast), x, *given)

    def _statistics(self, x: Inputs, fast: Fast) -> Tensor:
        """The statistics of the support points x [T, N, ...] in the adapted network: [T, ...]."""
        reader = _StatisticsReader(self.model)  # type: ignore[arg-type]  # keeps_statistics says that it is one
        if self.fast_names == (CONTEXT,):
            return reader(x, fast[CONTEXT])
        return self._task_by_task(reader, "model.", self.network(fast), x)

    def _task_by_task(self, module: nn.Module, prefix: str, fast: Fast, *points: Inputs) -> Tensor:
        """module(points[0], context, *points[1:]) with each task's own weights, whose names get the prefix."""

        def one_task(fast: Fast, x: Inputs, *more: Inputs) -> Tensor:  # x [N, ...]
            weights = {prefix + name: value for name, value in fast.items() if name != CONTEXT}
            context = fast.get(CONTEXT, self.initial_context)
            inputs = tuple(each(lambda value: value.unsqueeze(0), one) for one in (x, context, *more))
            return call_with(module, weights, inputs).squeeze(0)

        tasks = lead(points[0]).shape[0]
        if tasks == 1 or not getattr(self.model, "vectorises", True):  # for one, vmap makes convolutions slower
            rows: list[Any] = [partial(each, lambda value, i=i: value[i]) for i in range(tasks)]
            results = [one_task(*map(row, (fast, *points))) for row in rows]
            return results[0].unsqueeze(0) if tasks == 1 else torch.stack(results)
        return torch.func.vmap(one_task, randomness="different")(fast, *points)


class _StatisticsReader(nn.Module):
    """`statistics` of a model as a forward pass, which is what torch.func can call with other weights."""

    def __init__(self, model: NormedModel):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.model.statistics(x, context)


class CAVIA(GradientLearner):
    """The paper's method: only the context φ adapts, from φ₀ = 0; the outer loop trains the network.

    optimiser: what moves φ: "gradient", as in the paper, "momentum", "adam", or "gauss_newton" (for squared errors),
               which stays stable when many more steps are taken than in training.

    >>> learner = CAVIA(MLP(inputs=1, outputs=1, context=5), loss="mse", inner_lr=1.0)
    >>> learner.adapt(torch.zeros(3, 10, 1), torch.ones(3, 10, 1)).context.shape
    torch.Size([3, 5])
    """

    later: ClassVar = {"optimiser": "gradient"}

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 1.0,
        inner_steps: int = 1,
        first_order: bool = False,
        learn_init: bool = False,
        optimiser: str = "gradient",
    ):
        require_context("CAVIA", model)
        super().__init__(model, loss, {CONTEXT: inner_lr}, inner_steps, first_order, learn_init)
        self.inner_lr, self.learn_init, self.optimiser = inner_lr, learn_init, optimiser
        require_one_of("optimiser", optimiser, OPTIMISERS)
        if optimiser == "gauss_newton" and loss != "mse":
            raise CaviaError(f'optimiser="gauss_newton" minimises squared errors: loss must be "mse", got {loss!r}')


class MAML(GradientLearner):
    """All weights adapt. The context of the model, if any, is that many extra input biases, meta-learned too."""

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 1,
        first_order: bool = False,
    ):
        super().__init__(model, loss, all_rates(model, inner_lr), inner_steps, first_order, learn_init=True)
        self.inner_lr = inner_lr


def all_rates(model: ContextModel, rate: float) -> dict[str, float]:
    """The same rate for all weights of the model that are not frozen and, if it has one, its context."""
    rates = {name: rate for name, parameter in model.named_parameters() if parameter.requires_grad}
    return rates | {CONTEXT: rate} if getattr(model, "context", 0) else rates


def require_context(method: str, model: ContextModel) -> None:
    if getattr(model, "context", 1) == 0:
        raise CaviaError(f"{method} adapts context parameters but the model has context=0; give it at least 1")


def _shapes(values: Fast) -> str:
    return ", ".join(f"{name} {shape(value)}" for name, value in values.items()) or "nothing"


def key(name: str) -> str:
    """A parameter's name as a key of nn.ParameterDict, which takes no dots."""
    return name.replace(".", "-")
