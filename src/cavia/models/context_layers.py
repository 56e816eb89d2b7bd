"""How a layer takes the context φ: concatenated to its input, or as FiLM on its output (Section 3.3)."""

from torch import Tensor, nn
from torch.nn.functional import linear

from cavia.errors import require_at_least
from cavia.kinds import checked
from cavia.machine import require_memory


@checked
class Concat(nn.Linear):
    """A linear layer on the concatenation [h, φ].

    Eq. (9) splits into a sum over h and a sum over φ, and so do we: φ is never repeated N times, and the part that
    depends on h alone is computed once for all inner steps.
    """

    def __init__(self, features: int, context: int, outputs: int):
        for name, value, least in (("features", features, 1), ("context", context, 0), ("outputs", outputs, 1)):
            require_at_least(name, value, least)
        require_memory(4 * (features + context) * outputs, f"a layer of {features} + {context} × {outputs} weights")
        super().__init__(features + context, outputs)
        self.context = context

    def from_features(self, h: Tensor) -> Tensor:
        """Eq. (9), first sum and bias: h [T, N, features] → [T, N, outputs]."""
        weight = self.weight[:, : -self.context] if self.context else self.weight
        return linear(h, weight, self.bias)

    def forward(self, h: Tensor, context: Tensor) -> Tensor:  # type: ignore[override]  # a layer of two inputs
        """h [T, N, features] and context [T, C] → [T, N, outputs]."""
        return self.add_context(self.from_features(h), context)

    def add_context(self, h: Tensor, context: Tensor) -> Tensor:
        """Eq. (9), second sum added to what `from_features` gave: h [T, N, outputs], context [T, C] → as h."""
        if self.context == 0:
            return h
        return h + linear(context, self.weight[:, -self.context :]).unsqueeze(1)


@checked
class FiLM(nn.Module):
    """Scale and shift each channel by a linear function of the context: γ(φ)·h + β(φ)."""

    def __init__(self, context: int, channels: int):
        super().__init__()
        for name, value in (("context", context), ("channels", channels)):
            require_at_least(name, value, 1)
        require_memory(8 * context * channels, f"FiLM of context={context} for channels={channels}")
        self.to_film = nn.Linear(context, 2 * channels)

    def forward(self, h: Tensor, context: Tensor) -> Tensor:
        """h [T, N, channels, ...] and context [T, C] → the shape of h."""
        scale, shift = self.to_film(context).unflatten(-1, (2, -1)).unbind(-2)  # each [T, channels]
        per_channel = (h.shape[0], 1, -1) + (1,) * (h.ndim - 3)
        return h * scale.view(per_channel) + shift.view(per_channel)
