"""Contexts that a policy draws once an episode: exploration that is the same from the first step to the last."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_positive
from cavia.learners.adapted import CONTEXT
from cavia.learners.gradient import GradientLearner, all_rates, require_context
from cavia.learners.inner import Fast, Slopes, by_autograd, by_transform, only_numbers
from cavia.learners.losses import point_weights
from cavia.models.base import ContextModel
from cavia.models.policy import Policy
from cavia.models.substitute import call_with
from cavia.tasks.points import Inputs, one_tensor, shape

LOG_STD = "context_log_std"  # the name of log σ among what adapts; the mean is the context


class SampledContext(GradientLearner):
    """A policy whose context is drawn once an episode: φ = μ + σ·ε with ε ~ N(0, 1), the same at every step.

    μ and log σ adapt. In points, ε and the episode's credit stand beside the observation (`cavia.learners.acting`);
    for points that have neither, and for the likeliest actions, φ = μ.
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str,
        rates: Mapping[str, float],
        inner_steps: int,
        first_order: bool,
        std: float,
        learn_start: bool,
    ):
        if not isinstance(model, Policy):
            kind = type(self).__name__
            raise CaviaError(f"{kind} needs a policy, such as cavia.GaussianPolicy, got a {type(model).__name__}")
        require_context(type(self).__name__, model)
        super().__init__(model, loss, rates, inner_steps, first_order, learn_start)
        self.drawn_once = model.context
        log_std = torch.full_like(self.initial_context.detach(), float(require_positive("std", std))).log()
        if learn_start:
            self.initial_log_std: Tensor = nn.Parameter(log_std)
        else:
            self.register_buffer("initial_log_std", log_std, persistent=False)

    def _start(self) -> Fast:
        weights = {CONTEXT: self.initial_context, LOG_STD: self.initial_log_std, **dict(self.model.named_parameters())}
        return {name: weights[name] for name in self.fast_names}

    @property
    def moves_weights(self) -> bool:
        """Whether weights of the network adapt, too."""
        return len(self.fast_names) > 2

    def _apart(self) -> AbstractContextManager[Any]:
        return super()._apart() if self.moves_weights else nullcontext()

    def _parts(self, x: Inputs) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """x as observations [T, N, o], the episodes' ε [T, N, C] and their credit [T, N], if there are any."""
        assert isinstance(self.model, Policy)
        points, seen = one_tensor(x, type(self).__name__), self.model.observations
        if points.shape[-1] == seen:
            return points, None, None
        if points.shape[-1] != seen + self.drawn_once + 1:
            raise CaviaError(
                f"x must be [T, N, {seen}], observations alone, or [T, N, {seen + self.drawn_once + 1}], with the "
                f"episode's {self.drawn_once} random numbers and its credit, got {shape(points)}"
            )
        observation, noise, credit = points.split([seen, self.drawn_once, 1], -1)
        return observation, noise, credit.squeeze(-1)

    def predictor(self, x: Inputs, statistics: Tensor | None = None) -> Callable[[Fast], Tensor]:
        observation, noise, _ = self._parts(x)

        def context(fast: Fast) -> Tensor:
            """φ = μ + σ·ε of every point, [T, N, C]."""
            mean = fast[CONTEXT].unsqueeze(1).expand(-1, observation.shape[1], -1)
            return mean if noise is None else mean + fast[LOG_STD].exp().unsqueeze(1) * noise

        if self.moves_weights:
            return lambda fast: torch.func.vmap(self._one_task)(self._weights(fast), observation, context(fast))
        # Every point is a task of its own, with one point.
        features = self.model.stem(observation.flatten(0, 1).unsqueeze(1))
        return lambda fast: self.model.head(features, context(fast).flatten(0, 1)).view(*observation.shape[:2], -1)

    def _weights(self, fast: Fast) -> Fast:
        return {name: value for name, value in fast.items() if name not in (CONTEXT, LOG_STD)}

    def _one_task(self, weights: Fast, observation: Tensor, context: Tensor) -> Tensor:
        """Predictions [N, D] by a task's own weights, for observations [N, o] and a context each [N, C]."""
        return call_with(self.model, weights, (observation.unsqueeze(1), context)).squeeze(1)

    def _slopes(self, x: Inputs, y: Tensor, mask: Tensor | None) -> Slopes:
        _, noise, credit = self._parts(x)
        if noise is None or credit is None:
            raise CaviaError(f"{type(self).__name__} adapts to episodes with what was drawn in them, got x {shape(x)}")
        mask = torch.ones_like(credit, dtype=torch.bool) if mask is None else mask
        weight = (point_weights(mask, credit) * credit).unsqueeze(-1)  # [T, N, 1]
        by_weights = by_autograd if only_numbers(self, noise, y) else by_transform

        def slopes(fast: Fast) -> tuple[Fast, None]:
            # The policy gradient of φ, the first action of an episode, by −A·log N(φ; μ, σ²) at φ = μ + σ·ε:
            # its derivative by μ is −A·ε/σ, by log σ −A·(ε² − 1).
            gradients = {
                CONTEXT: -(weight * noise).sum(1) / fast[LOG_STD].exp(),
                LOG_STD: -(weight * (noise.square() - 1)).sum(1),
            }
            if self.moves_weights:  # by −A·log π(a | s, φ)
                drawn = {CONTEXT: fast[CONTEXT], LOG_STD: fast[LOG_STD]}
                losses = self._losses(x, y, mask)
                gradients |= by_weights(lambda weights: losses(weights | drawn), self._weights(fast))[0]
            return gradients, None

        return slopes


class SampledCAVIA(SampledContext):
    """CAVIA whose context is drawn once per episode, φ ~ N(μ, σ²): it explores by contexts, not by noisy actions.

    Only μ and log σ adapt, from 0 and log `std`; the outer loop trains the network. It is MAESN with these choices:
    weights stay, rates and the start are not learned, and so no KL divergence is needed to keep the start at the prior.

    inner_lr: rate of μ.
    std_lr:   rate of log σ.
    std:      σ before adaptation, the prior's.

    >>> policy = GaussianPolicy(observations=2, actions=2, context=3)
    >>> learner = SampledCAVIA(policy, loss=policy.loss, inner_lr=2.0)
    >>> learner.start(4)
    Adapted(4 tasks, context [4, 3], context_log_std [4, 3])
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str,
        inner_lr: float = 1.0,
        inner_steps: int = 1,
        std_lr: float = 0.1,
        std: float = 1.0,
    ):
        rates = {CONTEXT: inner_lr, LOG_STD: require_positive("std_lr", std_lr)}
        super().__init__(model, loss, rates, inner_steps, first_order=False, std=std, learn_start=False)
        self.inner_lr, self.std_lr, self.std = inner_lr, std_lr, std


class MAESN(SampledContext):
    """Structured exploration (Gupta et al. 2018): φ ~ N(μ, σ²) is drawn once per episode; μ, log σ and weights adapt.

    The outer loop trains the weights, μ and log σ before adaptation, and a rate for each number that adapts. In the
    paper each of a hundred training tasks has a μ and σ of its own before adaptation, which the KL divergence keeps
    near N(0, 1), where new tasks start. Here tasks are always new, and all share one start.

    inner_lr:   rate of μ before training.
    std_lr:     rate of log σ before training.
    weights_lr: rate of the weights before training.
    kl:         weight of KL(N(μ, σ²) ‖ N(0, 1)) in the outer loss.

    >>> policy = GaussianPolicy(observations=2, actions=2, context=3)
    >>> MAESN(policy, loss=policy.loss).divergence().item()
    0.0
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str,
        inner_lr: float = 1.0,
        inner_steps: int = 1,
        std_lr: float = 0.1,
        weights_lr: float = 0.1,
        first_order: bool = False,
        kl: float = 0.1,
    ):
        rates = all_rates(model, require_positive("weights_lr", weights_lr))
        rates |= {CONTEXT: inner_lr, LOG_STD: require_positive("std_lr", std_lr)}
        super().__init__(model, loss, rates, inner_steps, first_order, std=1.0, learn_start=True)
        self.inner_lr, self.std_lr, self.weights_lr = inner_lr, std_lr, weights_lr
        self.kl = require_positive("kl", kl)
        self._learn_rates()

    def divergence(self) -> Tensor:
        """KL(N(μ, σ²) ‖ N(0, 1)) of the start, summed over φ's numbers: Σ ½·(σ² + μ² − 1) − log σ."""
        mean, log_std = self.initial_context, self.initial_log_std
        return (0.5 * ((2 * log_std).exp() + mean.square() - 1) - log_std).sum()

    def policy_terms(self, batch: Any) -> Tensor:
        """MAESN's objective subtracts the KL divergence from the return; here of every task."""
        return (self.kl * self.divergence()).expand(len(batch))
