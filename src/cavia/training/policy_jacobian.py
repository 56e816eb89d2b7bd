"""The derivatives of adapted policies in closed form, through the inner steps, a task at a time.

Autograd's graph computes everything that any derivative might need, including gradients of gradients. Here each product
is written out and computes only what it needs. Tasks take turns, because one task's activations fit the cache.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from cavia.kernels.choice import may_use
from cavia.kernels.curvature import MOST_LAYERS
from cavia.learners.acting import MetaBatch, Points, policy_of
from cavia.learners.base import Learner
from cavia.learners.e_maml import EMAML
from cavia.learners.gradient import CAVIA, MAML, GradientLearner
from cavia.learners.losses import point_weights
from cavia.models.mlp import MLP
from cavia.training.inner_loss import InnerLoss, columns, moved
from cavia.training.jacobian import Jacobian
from cavia.training.network_pass import Layers, Pass
from cavia.training.policy_heads import HEADS

LAYERS, LOG_STD, START = "model.mlp.layers", "model.log_std", "initial_context"  # names of a learner's parameters


class Weights(NamedTuple):
    """The parameters of a learner around a policy, or a change of them.

    layers:  of the network, the first without the columns of the context
    log_std: [A], if the policy has one
    columns: [o, C], by which the context enters the first layer
    start:   [C], the context before adaptation
    """

    layers: Layers
    log_std: Tensor | None
    columns: Tensor
    start: Tensor


class Layout:
    """How a learner's parameters are laid out in one vector [P]."""

    def __init__(self, learner: GradientLearner):
        policy = policy_of(learner)
        self.named = {name: value.detach() for name, value in learner.named_parameters()}
        self.depth, self.context = len(policy.mlp.layers), policy.context
        self.start = learner.initial_context.detach()

    def own(self) -> Weights:
        """The current parameters."""
        return self._weights(self.named, self.start)

    def change(self, vector: Tensor) -> Weights:
        """A change [P] of the parameters."""
        parts = vector.split([value.numel() for value in self.named.values()])
        pairs = zip(self.named.items(), parts, strict=True)
        return self._weights({name: part.view_as(value) for (name, value), part in pairs}, torch.zeros_like(self.start))

    def _weights(self, named: Mapping[str, Tensor], start: Tensor) -> Weights:
        layers = [(named[f"{LAYERS}.{i}.weight"], named[f"{LAYERS}.{i}.bias"]) for i in range(self.depth)]
        weight, bias = layers[0]
        features = weight.shape[1] - self.context
        layers[0] = weight[:, :features], bias
        return Weights(layers, named.get(LOG_STD), weight[:, features:], named.get(START, start))

    def vector(self, weights: Weights) -> Tensor:
        """[P]"""
        (first, bias), *rest = weights.layers
        by_name = {LOG_STD: weights.log_std, START: weights.start}
        for i, layer in enumerate([(torch.cat([first, weights.columns], 1), bias), *rest]):
            by_name[f"{LAYERS}.{i}.weight"], by_name[f"{LAYERS}.{i}.bias"] = layer
        return torch.cat([value.flatten() for name in self.named if (value := by_name[name]) is not None])


class Task(ABC):
    """One task: its adapted policy on the query steps, and the derivatives by the parameters.

    A subclass says how the policy adapts.
    """

    def __init__(self, learner: GradientLearner, layout: Layout, task: MetaBatch):
        self.layout, self.own = layout, layout.own()
        (self.rate,) = set(learner.fixed_rates.values())
        self.head_class = HEADS[type(policy_of(learner))]
        self.fused = len(self.own.layers) <= MOST_LAYERS and may_use(*layout.named.values(), task.query.x)
        layers, log_std = self._adapt(task.support, learner.first_order)
        self.head, self.steps_taken = self.head_class(log_std), task.query.x.shape[1]
        self.query = Pass(layers, columns(task.query.x, self.fused), self.fused)
        self.prediction = self.head.prediction(self.query.output[:, : self.steps_taken])
        weight = columns(point_weights(task.query.mask, self.query.output).unsqueeze(-1), self.fused)[0]
        self.divergence = self.head.divergence(self.query.output, weight)

    def push(self, vector: Tensor, change: Weights) -> Tensor:
        """How the prediction [1, N, D] changes with the parameters: a vector [P], and the same as `Weights`."""
        layers, log_std = self._push_adapted(vector, change)
        return self.head.prediction_change((self.query.push(layers)[:, : self.steps_taken], log_std))

    def pull(self, by_prediction: Tensor) -> Tensor:
        """The gradient [P] from that by the prediction, [1, N, D]."""
        by_output, by_log_std = self.head.back(columns(by_prediction, self.fused).T.unsqueeze(0))
        return self._pull_adapted(self.query.gradient(self.query.backward(by_output)), by_log_std)

    def fisher(self, vector: Tensor, change: Weights) -> Tensor:
        """The product [P] with the Hessian of the mean KL divergence."""
        layers, log_std = self._push_adapted(vector, change)
        by_adapted = self.query.hessian(self.divergence, layers, log_std, second_from=len(layers))
        return self._pull_adapted(*by_adapted)

    @abstractmethod
    def prepare(self, products: int) -> None:
        """Store what is worth storing for this many pairs of push and pull."""

    @abstractmethod
    def _adapt(self, support: Sequence[Points], first_order: bool) -> tuple[Layers, Tensor | None]:
        """The adapted layers and log_std."""

    @abstractmethod
    def _push_adapted(self, vector: Tensor, change: Weights) -> tuple[Layers, Tensor | None]:
        """How the adapted layers and log_std change with the parameters."""

    @abstractmethod
    def _pull_adapted(self, by_layers: Layers, by_log_std: Tensor | None) -> Tensor:
        """The gradient [P] from that by the adapted layers and log_std."""


class MovingWeights(Task):
    """MAML: θᵢ = θ − α ∇L(θ)."""

    def _adapt(self, support: Sequence[Points], first_order: bool) -> tuple[Layers, Tensor | None]:
        layers, log_std = self.own.layers, self.own.log_std
        self.losses = []
        for points in support:
            loss = InnerLoss(self.head_class, layers, log_std, points, self.fused)
            layers, log_std = moved(layers, log_std, loss.gradient(), self.rate)  # Eq. (3)
            if not first_order:
                self.losses.append(loss)
        return layers, log_std

    def prepare(self, products: int) -> None:
        inputs = self.own.layers[0][0].shape[1]
        for loss in self.losses:
            # Storing them costs one matrix product per input and memory, and saves four products per pair.
            loss.keeps_moments = inputs < 2 * products

    def _push_adapted(self, vector: Tensor, change: Weights) -> tuple[Layers, Tensor | None]:
        layers, log_std = change.layers, change.log_std
        for loss in self.losses:
            layers, log_std = moved(layers, log_std, loss.hessian(layers, log_std), self.rate)
        return layers, log_std

    def _pull_adapted(self, by_layers: Layers, by_log_std: Tensor | None) -> Tensor:
        for loss in reversed(self.losses):  # a Hessian is its own transpose
            by_layers, by_log_std = moved(by_layers, by_log_std, loss.hessian(by_layers, by_log_std), self.rate)
        return self.layout.vector(Weights(by_layers, by_log_std, self.own.columns, self.own.start))  # without context


class MovingContext(Task):
    """CAVIA: φᵢ = φ₀ − α ∇φ L(φ₀), where φ adds to the first layer's bias."""

    slopes: Tensor | None = None  # [C, P], the derivative of φᵢ, if stored

    def _adapt(self, support: Sequence[Points], first_order: bool) -> tuple[Layers, Tensor | None]:
        context, self.steps = self.own.start, []
        for points in support:
            loss = InnerLoss(self.head_class, self._layers(context), self.own.log_std, points, self.fused)
            if not first_order:
                self.steps.append((loss, context))
            context = context - self.rate * (loss.by_first_bias @ self.own.columns)  # Eq. (5)
        self.context = context
        return self._layers(context), self.own.log_std

    def prepare(self, products: int) -> None:
        # A row of the slopes costs half as much as the context's part of a pair.
        if self.steps and len(self.context) <= 2 * products:
            eye = torch.eye(len(self.context)).to(self.context)
            self.slopes = torch.stack([self._pull_context(one) for one in eye])
            self.steps.clear()

    def _layers(self, context: Tensor) -> Layers:
        (weight, bias), *rest = self.own.layers
        return [(weight, bias + self.own.columns @ context), *rest]

    def _layers_change(self, change: Weights, context: Tensor, of_context: Tensor) -> Layers:
        """How the layers change if the context [C] changes, too."""
        (weight, bias), *rest = change.layers
        return [(weight, bias + change.columns @ context + self.own.columns @ of_context), *rest]

    def _push_adapted(self, vector: Tensor, change: Weights) -> tuple[Layers, Tensor | None]:
        of_context = self._push_context(change) if self.slopes is None else self.slopes @ vector
        return self._layers_change(change, self.context, of_context), change.log_std

    def _push_context(self, change: Weights) -> Tensor:
        """How the adapted context changes, [C]."""
        context_change = change.start
        for loss, context in self.steps:
            of_bias = loss.first_bias_change(self._layers_change(change, context, context_change), change.log_std)
            context_change = context_change - self.rate * (
                of_bias @ self.own.columns + loss.by_first_bias @ change.columns
            )
        return context_change

    def _pull_adapted(self, by_layers: Layers, by_log_std: Tensor | None) -> Tensor:
        by_bias = by_layers[0][1]
        by_context = by_bias @ self.own.columns
        direct = Weights(by_layers, by_log_std, by_bias.outer(self.context), torch.zeros_like(self.context))
        through = self._pull_context(by_context) if self.slopes is None else by_context @ self.slopes
        return self.layout.vector(direct) + through

    def _pull_context(self, by_context: Tensor) -> Tensor:
        """The gradient [P] from that by the adapted context [C]."""
        layers = [(torch.zeros_like(weight), torch.zeros_like(bias)) for weight, bias in self.own.layers]
        log_std = None if self.own.log_std is None else torch.zeros_like(self.own.log_std)
        by_columns = torch.zeros_like(self.own.columns)
        for loss, context in reversed(self.steps):
            hessian = loss.hessian_by_shift(self.own.columns @ by_context)
            layers, log_std = moved(layers, log_std, hessian, self.rate)
            of_bias = hessian[0][0][1]
            by_columns -= self.rate * (of_bias.outer(context) + loss.by_first_bias.outer(by_context))
            by_context = by_context - self.rate * (of_bias @ self.own.columns)
        return self.layout.vector(Weights(layers, log_std, by_columns, by_context))


class PolicyJacobian(Jacobian):
    """J of the policies of `cavia.models.policy` under CAVIA and MAML."""

    def __init__(self, learner: Learner, part: MetaBatch, products: int = 0):
        super().__init__(learner, part, products)
        learner = cast(GradientLearner, learner)
        self.layout = Layout(learner)
        kind = MovingContext if isinstance(learner, CAVIA) else MovingWeights
        self.tasks: list[Task] = [kind(learner, self.layout, task) for task in part.split(1)]
        self.prediction = torch.cat([task.prediction for task in self.tasks])
        for task in self.tasks:
            task.prepare(products)

    @staticmethod
    def applies_to(learner: Learner) -> bool:
        """Whether this module covers the learner and its policy."""
        policy = learner.model
        return (
            type(learner) in (CAVIA, MAML, EMAML)
            and learner.optimiser == "gradient"
            and type(policy) in HEADS
            and learner.loss == policy.loss
            and type(policy.mlp) is MLP
            and (type(learner) is CAVIA or policy.context == 0)
            and all(value.requires_grad and value.device.type == "cpu" for value in learner.parameters())
        )

    def push(self, vector: Tensor) -> Tensor:
        change = self.layout.change(vector)
        return torch.cat([task.push(vector, change) for task in self.tasks])

    def pull(self, weights: Tensor) -> Tensor:
        pairs = zip(self.tasks, weights.split(1), strict=True)
        return _total([task.pull(one) for task, one in pairs])

    def fisher(self, vector: Tensor) -> Tensor:
        change = self.layout.change(vector)
        return _total([task.fisher(vector, change) for task in self.tasks])


def _total(vectors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(vectors)).sum(0)
