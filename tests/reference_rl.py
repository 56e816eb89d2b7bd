"""An independent, slow reading of Section 5.3: one task and one episode at a time, plain autograd."""

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from tests.reference import mlp


def returns(rewards: list[float], discount: float) -> list[float]:
    """Discounted returns of one episode, by their definition."""
    return [sum(discount ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]


def gae(rewards: list[float], values: list[float], discount: float, trace: float) -> list[float]:
    """Generalised advantages of one episode, by their definition."""
    after = [*values[1:], 0.0]
    errors = [r + discount * v_next - v for r, v, v_next in zip(rewards, values, after, strict=True)]
    return [sum((discount * trace) ** (k - t) * errors[k] for k in range(t, len(errors))) for t in range(len(errors))]


def distribution(x: Tensor, weights: dict[str, Tensor], context: Tensor) -> Normal:
    """The policy on one task: x [N, observations]."""
    layers = {name.removeprefix("mlp."): value for name, value in weights.items() if name != "log_std"}
    return Normal(mlp(x, context, layers), weights["log_std"].exp())


def adapted(support, weights, context, fast_names, rate, first_order=False):
    """One task's weights and context after an update on each of the support sets (x, y), of running steps only."""
    for x, y in support:
        log_prob = distribution(x, weights, context).log_prob(y[:, :-1]).sum(-1)
        loss = -(log_prob * y[:, -1]).mean()
        moving = {name: context if name == "context" else weights[name] for name in fast_names}
        gradients = torch.autograd.grad(loss, list(moving.values()), create_graph=not first_order)
        moved = {n: v - rate * g for (n, v), g in zip(moving.items(), gradients, strict=True)}
        weights = weights | {name: value for name, value in moved.items() if name != "context"}
        context = moved.get("context", context)
    return weights, context


class TaskByTask:
    """Surrogate, KL divergence, meta-gradient and Hessian-vector product of a learner, a task at a time."""

    def __init__(self, learner, batch):
        self.learner, self.batch = learner, batch
        named = dict(learner.model.named_parameters())
        self.weights = {name: value.detach().clone().requires_grad_() for name, value in named.items()}
        self.old = [self._task(i, self.weights) for i in range(len(batch))]
        self.old = [(Normal(one.mean.detach(), one.stddev.detach()), y) for one, y in self.old]

    def _task(self, i, weights):
        support = [(p.x[i][p.mask[i]], p.y[i][p.mask[i]]) for p in self.batch.support]
        context = torch.zeros(self.learner.model.context, dtype=support[0][0].dtype, requires_grad=True)
        learner = self.learner
        rate, first_order = learner.inner_lr, learner.first_order
        new, context = adapted(support, weights, context, learner.fast_names, rate, first_order)
        query = self.batch.query
        return distribution(query.x[i][query.mask[i]], new, context), query.y[i][query.mask[i]]

    def surrogate(self, weights):
        total = 0
        for i, (old, y) in enumerate(self.old):
            new, _ = self._task(i, weights)
            ratio = (new.log_prob(y[:, :-1]).sum(-1) - old.log_prob(y[:, :-1]).sum(-1)).exp()
            total = total - (ratio * y[:, -1]).mean() / len(self.old)
        return total

    def kl(self, weights):
        pairs = [(old, self._task(i, weights)[0]) for i, (old, _) in enumerate(self.old)]
        return sum(kl_divergence(old, new).sum(-1).mean() for old, new in pairs) / len(pairs)

    def gradient(self, function, create_graph=False):
        """Of a function of the weights, one vector [P]."""
        gradients = torch.autograd.grad(function(self.weights), list(self.weights.values()), create_graph=create_graph)
        return torch.cat([value.flatten() for value in gradients])

    def product(self, vector):
        """The Hessian of the KL divergence times a vector [P], by differentiating twice."""
        gradients = torch.autograd.grad(self.gradient(self.kl, True) @ vector, list(self.weights.values()))
        return torch.cat([value.flatten() for value in gradients])
