"""The network of a table: a line plus a network, whose coefficients for a task are its context."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from cavia.errors import CaviaError, require_at_least, shown
from cavia.machine import require_memory
from cavia.models.base import ContextModel, as_floats
from cavia.tasks.points import one_tensor

REACH = 2.0  # standard deviations: further out the network is constant, and only the lines continue


def packed_size(effects: int) -> int:
    """How many numbers say a task's effects and how sure they are: a mean, and the lower half of a matrix."""
    return effects + effects * (effects + 1) // 2


class EffectsNet(ContextModel):
    """f(x; φ) = b₀(x) + Σ φ_c b_c(x): x [T, N, inputs], context [T, C] → [T, N, outputs].

    Each b is a line and a ReLU network, all with the same hidden layers: b(x) = w·(1, x) + v·net(2 tanh(x/2)). With
    v = 0 this is a mixed model: b₀ are its fixed effects, and φ the random effects of a task, intercept and slopes.
    The tanh keeps networks from going astray where training had no points; only the lines continue there.

    effects: how many φ_c there are. A context has them first, then numbers that say how sure they are, which the
             prediction does not use (`Posterior` does).
    """

    def __init__(self, inputs: int, outputs: int, hidden: Sequence[int] = (64, 64), effects: int = 5):
        super().__init__()
        hidden = tuple(hidden)
        for name, size in (("inputs", inputs), ("outputs", outputs), *(("hidden", width) for width in hidden)):
            require_at_least(name, size, 1)
        require_at_least("effects", effects, 1)
        self.inputs, self.outputs, self.hidden, self.effects = inputs, outputs, hidden, effects
        self.context = packed_size(effects)
        functions = outputs * (1 + effects)
        widths = (inputs, *hidden, functions)
        require_memory(
            4 * (sum(a * b for a, b in pairwise(widths)) + inputs * functions),
            f"a network of inputs={inputs}, hidden={shown(hidden)}, outputs={outputs}, effects={effects}",
        )
        self.line = nn.Linear(inputs, functions)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths[:-1]))
        self.last = nn.Linear(widths[-2], functions, bias=False) if hidden else None
        nn.init.normal_(self.line.weight, std=0.1 * inputs**-0.5)
        nn.init.normal_(self.line.bias, std=0.1)
        if self.last is not None:
            nn.init.zeros_(self.last.weight)

    def stem(self, x: Tensor) -> Tensor:
        """b₀ … b_C at x [T, N, inputs]: [T, N, outputs, 1 + effects]."""
        x = one_tensor(x, "EffectsNet")
        if x.ndim != 3 or x.shape[-1] != self.inputs:
            raise CaviaError(f"this EffectsNet takes x [T, N, {self.inputs}], got x of shape {list(x.shape)}")
        x = as_floats(x, self.line.weight)
        effects, h = self.line(x), REACH * torch.tanh(x / REACH)
        for layer in self.layers:
            h = relu(layer(h))
        if self.last is not None:
            effects = effects + self.last(h)
        return effects.unflatten(-1, (self.outputs, 1 + self.effects))

    def head(self, h: Tensor, context: Tensor) -> Tensor:
        effects = context[:, : self.effects]
        return h[..., 0] + torch.einsum("tnoc,tc->tno", h[..., 1:], effects)

    @torch.no_grad()
    def begin(self, fixed: Tensor, effects: Tensor) -> None:
        """Start the lines at fixed [outputs, 1 + inputs] and, for at most `effects` of them, [C, outputs, 1 + inputs].

        The first of the last axis is the intercept.
        """
        line = torch.zeros(self.outputs, 1 + self.effects, 1 + self.inputs)
        line[:, 0] = fixed
        line[:, 1 : 1 + len(effects)] = effects.transpose(0, 1)
        used = 1 + len(effects)
        own = torch.cat([self.line.bias[:, None], self.line.weight], 1).view_as(line)
        line[:, used:] = 0.1 * own[:, used:]
        self.line.bias.copy_(line[..., 0].flatten())
        self.line.weight.copy_(line[..., 1:].flatten(0, 1))
