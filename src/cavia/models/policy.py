"""Policies: networks whose predictions are the parameters of a distribution of actions."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from cavia.errors import require_at_least, require_positive
from cavia.models.base import ContextModel
from cavia.models.mlp import MLP

SMALLEST_STD = 1e-6


class Policy(ContextModel):
    """An MLP with the context at its input: observations [T, N, observations], context [T, C] → [T, N, D].

    The D numbers of a prediction describe the distribution of one action. What can be done with them stands here, apart
    from the weights, because with MAML every task has weights of its own.

    loss:     name of the policy-gradient loss that a learner around this policy takes
    discrete: an action is one of `actions` whole numbers
    """

    loss: ClassVar[str]
    discrete: ClassVar[bool]

    def __init__(self, observations: int, actions: int, hidden: Sequence[int], context: int, init: str):
        super().__init__()
        require_at_least("observations", observations, 1)
        require_at_least("actions", actions, 1)
        self.mlp = MLP(observations, actions, hidden, context, init=init)
        self.observations, self.actions, self.hidden = observations, actions, tuple(hidden)
        self.context, self.init = context, init

    def stem(self, x: Tensor) -> Tensor:
        return self.mlp.stem(x)

    def head(self, h: Tensor, context: Tensor) -> Tensor:
        return self.mlp.head(h, context)

    @staticmethod
    @abstractmethod
    def log_prob(prediction: Tensor, action: Tensor) -> Tensor:
        """log π(a | s): predictions [T, N, D] and actions [T, N, A] → [T, N], summed over the action's numbers."""

    @staticmethod
    @abstractmethod
    def sample(prediction: Tensor, generator: torch.Generator) -> Tensor:
        """A random action for each prediction [T, N, D]: [T, N, actions], or int64 [T, N] if discrete."""

    @staticmethod
    @abstractmethod
    def mode(prediction: Tensor) -> Tensor:
        """The likeliest action, in the shape of `sample`."""

    @staticmethod
    @abstractmethod
    def kl(old: Tensor, new: Tensor) -> Tensor:
        """KL(old ‖ new) of predictions [T, N, D] → [T, N], summed over the action's numbers."""

    @staticmethod
    @abstractmethod
    def fisher(prediction: Tensor, change: Tensor) -> Tensor:
        """M·change, with M the Hessian of KL(prediction ‖ ·) at the prediction: [T, N, D] twice → [T, N, D]."""

    @staticmethod
    @abstractmethod
    def entropy(prediction: Tensor) -> Tensor:
        """[T, N, D] → [T, N]"""


class GaussianPolicy(Policy):
    """Normal actions with a learned standard deviation that does not depend on the state.

    A prediction is the mean and the logarithm of the standard deviation of each of the A numbers: [T, N, 2·A].
    std:  the standard deviation before training.
    init: the network's initial weights, as for `MLP`; the paper's authors used "xavier".

    >>> policy = GaussianPolicy(observations=2, actions=2, context=5)
    >>> policy(torch.zeros(20, 400, 2), torch.zeros(20, 5)).shape
    torch.Size([20, 400, 4])
    """

    loss = "gaussian_policy_gradient"
    discrete = False

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: Sequence[int] = (100, 100),
        context: int = 5,
        std: float = 1.0,
        init: str = "torch",
    ):
        super().__init__(observations, actions, hidden, context, init)
        start = math.log(require_positive("std", std))
        self.log_std = nn.Parameter(torch.full((actions,), start))
        self.std = std

    def head(self, h: Tensor, context: Tensor) -> Tensor:
        mean = super().head(h, context)
        return torch.cat([mean, self.log_std.clamp(min=math.log(SMALLEST_STD)).expand_as(mean)], -1)

    @staticmethod
    def log_prob(prediction: Tensor, action: Tensor) -> Tensor:
        mean, log_std = prediction.chunk(2, -1)
        squares = ((action - mean) * (-log_std).exp()).square()
        return -(0.5 * squares + log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * mean.shape[-1]

    @staticmethod
    def sample(prediction: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_std = prediction.chunk(2, -1)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=generator.device)
        return mean + log_std.exp() * noise.to(mean.device)

    @staticmethod
    def mode(prediction: Tensor) -> Tensor:
        return prediction.chunk(2, -1)[0]

    @staticmethod
    def kl(old: Tensor, new: Tensor) -> Tensor:
        (mean, log_std), (new_mean, new_log_std) = old.chunk(2, -1), new.chunk(2, -1)
        squares = (2 * log_std).exp() + (mean - new_mean).square()
        return (new_log_std - log_std + 0.5 * squares * (-2 * new_log_std).exp() - 0.5).sum(-1)

    @staticmethod
    def fisher(prediction: Tensor, change: Tensor) -> Tensor:
        _, log_std = prediction.chunk(2, -1)
        of_mean, of_log_std = change.chunk(2, -1)
        return torch.cat([of_mean * (-2 * log_std).exp(), 2 * of_log_std], -1)

    @staticmethod
    def entropy(prediction: Tensor) -> Tensor:
        _, log_std = prediction.chunk(2, -1)
        return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


class CategoricalPolicy(Policy):
    """One of `actions` choices; a prediction is their logits [T, N, actions], an action [T, N, 1] or [T, N]."""

    loss = "categorical_policy_gradient"
    discrete = True

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: Sequence[int] = (100, 100),
        context: int = 5,
        init: str = "torch",
    ):
        super().__init__(observations, actions, hidden, context, init)

    @staticmethod
    def log_prob(prediction: Tensor, action: Tensor) -> Tensor:
        return prediction.log_softmax(-1).gather(-1, action.long().view(*prediction.shape[:-1], 1)).squeeze(-1)

    @staticmethod
    def sample(prediction: Tensor, generator: torch.Generator) -> Tensor:
        chances = prediction.softmax(-1).to(generator.device)
        drawn = torch.multinomial(chances.flatten(0, 1), 1, generator=generator)
        return drawn.view(prediction.shape[:2]).to(prediction.device)

    @staticmethod
    def mode(prediction: Tensor) -> Tensor:
        return prediction.argmax(-1)

    @staticmethod
    def kl(old: Tensor, new: Tensor) -> Tensor:
        difference = old.log_softmax(-1) - new.log_softmax(-1)
        return (old.softmax(-1) * difference).sum(-1)

    @staticmethod
    def fisher(prediction: Tensor, change: Tensor) -> Tensor:
        chances = prediction.softmax(-1)
        return chances * (change - (chances * change).sum(-1, keepdim=True))

    @staticmethod
    def entropy(prediction: Tensor) -> Tensor:
        logs = prediction.log_softmax(-1)
        return -(logs.exp() * logs).sum(-1)
