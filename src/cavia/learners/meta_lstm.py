"""Meta-LSTM: a recurrent network, shared by all weights of a model, writes their updates."""

import math

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_at_least
from cavia.learners.adapted import MEMORY
from cavia.learners.gradient import GradientLearner, all_rates
from cavia.learners.inner import Fast, Rule, Slopes
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel

HIDDEN, CELL, INPUT, FORGET = (f"{MEMORY}{name}" for name in ("hidden", "cell", "input", "forget"))
SMALL = 10.0  # gradients below exp(−SMALL) are scaled, not taken the logarithm of
KEEPS = 6.0  # σ of it is the forget gate at the start: almost all is kept


class MetaLSTM(GradientLearner):
    """Meta-LSTM (Ravi & Larochelle, 2017): θₜ = fₜ ⊙ θₜ₋₁ − iₜ ⊙ ∇L, with gates that an LSTM writes for each weight.

    All weights of the model share one LSTM, in which each weight has its own state. It reads the gradient and
    the loss. The outer loop trains it and the weights' start; the inner gradient is a constant in the outer one, as in
    the paper.

    inner_lr: the input gate i at the start, below 1.
    hidden:   numbers in each weight's state.
    """

    def __init__(
        self,
        model: ContextModel,
        loss: str | PointLoss,
        inner_lr: float = 0.01,
        inner_steps: int = 5,
        hidden: int = 20,
    ):
        super().__init__(model, loss, all_rates(model, inner_lr), inner_steps, first_order=True, learn_init=True)
        if not inner_lr < 1:
            raise CaviaError(f"MetaLSTM: inner_lr is a gate between 0 and 1, got {inner_lr}")
        self.inner_lr, self.hidden = inner_lr, require_at_least("hidden", hidden, 1)
        self.lstm = nn.Linear(4 + hidden, 4 * hidden)  # of the preprocessed gradient and loss, and the hidden state
        self.input_gate, self.forget_gate = nn.Linear(hidden + 2, 1), nn.Linear(hidden + 2, 1)
        for gate, start in ((self.input_gate, math.log(inner_lr / (1 - inner_lr))), (self.forget_gate, KEEPS)):
            nn.init.uniform_(gate.weight, -0.01, 0.01)
            nn.init.constant_(gate.bias, start)
        like = self.initial_context
        for layer in (self.lstm, self.input_gate, self.forget_gate):
            layer.to(like.device, like.dtype)

    def rule(self) -> Rule:
        return WrittenUpdates(self)


class WrittenUpdates(Rule):
    """What the LSTM writes. It remembers its state for each of P weights: [T, P, hidden], and their gates, [T, P]."""

    def __init__(self, learner: MetaLSTM):
        self.learner = learner

    def begin(self, fast: Fast) -> Fast:
        weights = _flat(fast)
        zeros = weights.new_zeros(*weights.shape, self.learner.hidden)
        return {HIDDEN: zeros, CELL: zeros, INPUT: torch.zeros_like(weights), FORGET: torch.ones_like(weights)}

    def step(self, slopes: Slopes, fast: Fast, memory: Fast) -> tuple[Fast, Fast]:
        gradients, losses = slopes(fast)
        assert losses is not None  # weights have no closed form
        weights, gradient = _flat(fast), _flat(gradients)  # [T, P]
        of_task = preprocessed(losses).unsqueeze(1).expand(-1, weights.shape[1], -1)
        read = torch.cat([preprocessed(gradient), of_task], -1)  # [T, P, 4]
        hidden, cell = self._remember(read, memory[HIDDEN], memory[CELL])
        # Eq. (3) and (4) of Ravi & Larochelle: iₜ = σ(W_I [h, θ, iₜ₋₁] + b_I), fₜ likewise.
        rate = _gate(self.learner.input_gate, hidden, weights, memory[INPUT])
        kept = _gate(self.learner.forget_gate, hidden, weights, memory[FORGET])
        moved = kept * weights - rate * gradient  # Eq. (2): cₜ = fₜ ⊙ cₜ₋₁ + iₜ ⊙ (−∇L), where c is θ
        sizes = [value[0].numel() for value in fast.values()]
        parts = zip(fast.items(), moved.split(sizes, 1), strict=True)
        memory = {HIDDEN: hidden, CELL: cell, INPUT: rate, FORGET: kept}
        return {name: part.reshape(value.shape) for (name, value), part in parts}, memory

    def _remember(self, read: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step of an ordinary LSTM: read [T, P, 4], state [T, P, hidden] twice → the next state."""
        takes, keeps, shows, new = self.learner.lstm(torch.cat([read, hidden], -1)).chunk(4, -1)
        cell = keeps.sigmoid() * cell + takes.sigmoid() * new.tanh()
        return shows.sigmoid() * cell.tanh(), cell


def preprocessed(values: Tensor) -> Tensor:
    """Size and sign of numbers of any scale, [...] → [..., 2]: (log|x| / p, sgn x), or (−1, eᵖ x) where x is tiny."""
    tiny = values.abs() < math.exp(-SMALL)
    size = values.abs().clamp(min=math.exp(-SMALL)).log() / SMALL
    return torch.stack([size, torch.where(tiny, math.exp(SMALL) * values, values.sign())], -1)


def _flat(fast: Fast) -> Tensor:
    """All numbers of each task: name → [T, ...] becomes [T, P]."""
    return torch.cat([value.flatten(1) for value in fast.values()], 1)


def _gate(layer: nn.Module, hidden: Tensor, weights: Tensor, before: Tensor) -> Tensor:
    """[T, P, hidden], [T, P] and [T, P] → between 0 and 1, [T, P]."""
    read = torch.cat([hidden, weights.unsqueeze(-1), before.unsqueeze(-1)], -1)
    gate: Tensor = layer(read)
    return gate.squeeze(-1).sigmoid()
