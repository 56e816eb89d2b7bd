"""The derivatives of adapted policies in closed form, through the inner steps, a task at a time.

A graph of autograd computes all that any derivative might need, gradients of gradients included; here each product is
written out, and what it does not need is not computed. A task's activations fit the cache, so tasks take turns.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from cavia.learners.acting import MetaBatch, Points, policy_of
from cavia.learners.base import Learner
from cavia.learners.gradient import CAVIA, MAML, GradientLearner
from cavia.models.mlp import MLP
from cavia.models.policy import CategoricalPolicy, GaussianPolicy
from cavia.training.inner_loss import Head, InnerLoss, moved
from cavia.training.jacobian import Jacobian
from cavia.training.network_pass import Layers, Pass, columns

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
    """How the parameters of a learner lie in one vector [P]."""

    def __init__(self, learner: GradientLearner):
        policy = policy_of(learner)
        self.named = {name: value.detach() for name, value in learner.named_parameters()}
        self.depth, self.context = len(policy.mlp.layers), policy.context
        self.start = learner.initial_context.detach()

    def own(self) -> Weights:
        """The parameters as they are."""
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
        found = {LOG_STD: weights.log_std, START: weights.start}
        for i, layer in enumerate([(torch.cat([first, weights.columns], 1), bias), *rest]):
            found[f"{LAYERS}.{i}.weight"], found[f"{LAYERS}.{i}.bias"] = layer
        return torch.cat([value.flatten() for name in self.named if (value := found[name]) is not None])


class MovingWeights:
    """One task of MAML: θᵢ = θ − α ∇L(θ)."""

    def __init__(self, learner: GradientLearner, layout: Layout, support: Sequence[Points], query: Points):
        policy, self.rate, self.layout = type(policy_of(learner)), _rate(learner), layout
        layers, log_std, *self.context = layout.own()
        self.losses = []
        for points in support:
            loss = InnerLoss(policy, layers, log_std, points)
            layers, log_std = moved(layers, log_std, loss.gradient(), self.rate)  # Eq. (3)
            if not learner.first_order:
                self.losses.append(loss)
        self.head, self.query = Head(log_std), Pass(layers, columns(query.x))
        self.prediction = self.head.prediction(self.query.output)

    def push(self, vector: Tensor, change: Weights) -> Tensor:
        """[P], and the same as `Weights` → [1, N, D]"""
        layers, log_std, *_ = change
        for loss in self.losses:
            layers, log_std = moved(layers, log_std, loss.hessian(layers, log_std), self.rate)
        _, output = self.query.forward_change(self.query.first_change(layers), layers)
        return self.head.change(output, log_std)

    def pull(self, by_prediction: Tensor) -> Tensor:
        """[1, N, D] → [P]"""
        at_output, log_std = self.head.back(by_prediction)
        layers = self.query.gradient(self.query.backward(at_output))
        for loss in reversed(self.losses):  # a Hessian is its own transpose
            layers, log_std = moved(layers, log_std, loss.hessian(layers, log_std), self.rate)
        return self.layout.vector(Weights(layers, log_std, *self.context))


class MovingContext:
    """One task of CAVIA: φᵢ = φ₀ − α ∇φ L(φ₀), where φ adds to the first layer's bias.

    keep_slopes: compute the derivative of φᵢ once, instead of products with it
    """

    def __init__(
        self, learner: GradientLearner, layout: Layout, support: Sequence[Points], query: Points, keep_slopes: bool
    ):
        policy, self.rate, self.layout = type(policy_of(learner)), _rate(learner), layout
        self.own = layout.own()
        context, self.steps = self.own.start, []
        for points in support:
            loss = InnerLoss(policy, self._layers(context), self.own.log_std, points)
            if not learner.first_order:
                self.steps.append((loss, context))
            context = context - self.rate * (loss.by_first_bias @ self.own.columns)  # Eq. (5)
        self.context, self.head = context, Head(self.own.log_std)
        self.query = Pass(self._layers(context), columns(query.x))
        self.prediction = self.head.prediction(self.query.output)
        self.slopes: Tensor | None = None  # [C, P]
        if keep_slopes and self.steps:
            self.slopes = torch.stack([self._pull_context(one) for one in torch.eye(len(context)).to(context)])
            self.steps.clear()

    def _layers(self, context: Tensor) -> Layers:
        (weight, bias), *rest = self.own.layers
        return [(weight, bias + self.own.columns @ context), *rest]

    def _layers_change(self, change: Weights, context: Tensor, of_context: Tensor) -> Layers:
        """How the layers change under a context [C] that changes, too."""
        (weight, bias), *rest = change.layers
        return [(weight, bias + change.columns @ context + self.own.columns @ of_context), *rest]

    def push(self, vector: Tensor, change: Weights) -> Tensor:
        """[P], and the same as `Weights` → [1, N, D]"""
        of_context = self._push_context(change) if self.slopes is None else self.slopes @ vector
        layers = self._layers_change(change, self.context, of_context)
        _, output = self.query.forward_change(self.query.first_change(layers), layers)
        return self.head.change(output, change.log_std)

    def _push_context(self, change: Weights) -> Tensor:
        """How the adapted context changes, [C]."""
        found = change.start
        for loss, context in self.steps:
            of_bias = loss.first_bias_change(self._layers_change(change, context, found), change.log_std)
            found = found - self.rate * (of_bias @ self.own.columns + loss.by_first_bias @ change.columns)
        return found

    def pull(self, by_prediction: Tensor) -> Tensor:
        """[1, N, D] → [P]"""
        at_output, log_std = self.head.back(by_prediction)
        layers = self.query.gradient(self.query.backward(at_output))
        by_bias = layers[0][1]
        by_context = by_bias @ self.own.columns
        direct = Weights(layers, log_std, by_bias.outer(self.context), torch.zeros_like(self.context))
        through = self._pull_context(by_context) if self.slopes is None else by_context @ self.slopes
        return self.layout.vector(direct) + through

    def _pull_context(self, by_context: Tensor) -> Tensor:
        """The gradient [P] from that by the adapted context [C]."""
        layers = [(torch.zeros_like(weight), torch.zeros_like(bias)) for weight, bias in self.own.layers]
        log_std = None if self.own.log_std is None else torch.zeros_like(self.own.log_std)
        by_columns = torch.zeros_like(self.own.columns)
        for loss, context in reversed(self.steps):
            found = loss.hessian_by_shift(self.own.columns @ by_context)
            layers, log_std = moved(layers, log_std, found, self.rate)
            of_bias = found[0][0][1]
            by_columns -= self.rate * (of_bias.outer(context) + loss.by_first_bias.outer(by_context))
            by_context = by_context - self.rate * (of_bias @ self.own.columns)
        return self.layout.vector(Weights(layers, log_std, by_columns, by_context))


class PolicyJacobian(Jacobian):
    """J of the policies of `cavia.models.policy` under CAVIA and MAML."""

    def __init__(self, learner: Learner, part: MetaBatch, products: int = 0):
        learner = cast(GradientLearner, learner)
        self.layout = Layout(learner)
        self.tasks: Sequence[MovingContext | MovingWeights]
        if isinstance(learner, CAVIA):
            # A row of the derivative costs half as much as the context's part of a pair of products.
            keep = policy_of(learner).context <= 2 * products
            self.tasks = [MovingContext(learner, self.layout, one.support, one.query, keep) for one in part.split(1)]
        else:
            self.tasks = [MovingWeights(learner, self.layout, one.support, one.query) for one in part.split(1)]
        self.prediction = torch.cat([task.prediction for task in self.tasks])

    @staticmethod
    def applies_to(learner: Learner) -> bool:
        """Whether learner and policy are those that are written out here."""
        policy = learner.model
        return (
            type(learner) in (CAVIA, MAML)
            and type(policy) in (GaussianPolicy, CategoricalPolicy)
            and learner.loss == policy.loss
            and type(policy.mlp) is MLP
            and (type(learner) is CAVIA or policy.context == 0)
            and all(value.requires_grad and value.device.type == "cpu" for value in learner.parameters())
        )

    def push(self, vector: Tensor) -> Tensor:
        change = self.layout.change(vector)
        return torch.cat([task.push(vector, change) for task in self.tasks])

    def pull(self, weights: Tensor) -> Tensor:
        return torch.stack([task.pull(one) for task, one in zip(self.tasks, weights.split(1), strict=True)]).sum(0)


def _rate(learner: GradientLearner) -> float:
    (rate,) = set(learner.fixed_rates.values())
    return rate
