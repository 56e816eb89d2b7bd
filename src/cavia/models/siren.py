"""Sine network whose every layer the context shifts, for pictures and other fields over coordinates."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_at_least, require_positive
from cavia.models.base import ContextModel


class ModulatedSiren(ContextModel):
    """h ← sin(ω (W h + b + shift(φ))) at every layer: x [T, N, inputs] in [0, 1], context [T, C] → [T, N, outputs].

    hidden:    width of each hidden layer.
    context:   number of context parameters C; one linear map without bias turns φ into the shifts of all layers.
    frequency: ω, how fine the detail is that the network starts with.

    The network is that of "From data to functa" (Dupont et al., 2022), with the initialisation of SIREN (Sitzmann et
    al., 2020). It wants smaller rates than a ReLU network: for pictures start from an outer rate of 3e-4 and
    inner_lr 0.3, as Table 2 does, where it still got worse after 600 iterations.

    >>> model = ModulatedSiren(inputs=2, outputs=3, hidden=(64, 64), context=16)
    >>> model(torch.zeros(25, 10, 2), torch.zeros(25, 16)).shape
    torch.Size([25, 10, 3])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: Sequence[int] = (128,) * 5,
        context: int = 128,
        frequency: float = 10.0,
    ):
        super().__init__()
        hidden = tuple(hidden)
        for name, size in (("inputs", inputs), ("outputs", outputs), *(("hidden", width) for width in hidden)):
            require_at_least(name, size, 1)
        require_at_least("layers in hidden", len(hidden), 1)
        self.arguments = {
            "inputs": inputs,
            "outputs": outputs,
            "hidden": hidden,
            "context": context,
            "frequency": require_positive("frequency", frequency),
        }
        self.context = require_at_least("context", context, 1)
        self.frequency = frequency
        widths = (inputs, *hidden, outputs)
        # SIREN's bounds keep the arguments of the sines equally spread at every depth.
        bounds = [1 / inputs] + [(6 / width) ** 0.5 / frequency for width in hidden]
        self.layers = nn.ModuleList(_uniform_linear(widths[i], widths[i + 1], bound) for i, bound in enumerate(bounds))
        self.shifts = nn.ModuleList(nn.Linear(context, width, bias=False) for width in hidden)

    def stem(self, x: Tensor) -> Tensor:
        """The first layer before its shift: [T, N, inputs] → [T, N, hidden[0]]."""
        if x.shape[-1] != self.arguments["inputs"]:
            raise CaviaError(f"ModulatedSiren takes {self.arguments['inputs']} inputs, got x of shape {list(x.shape)}")
        return self.layers[0](2 * x - 1)  # [0, 1] → [-1, 1]

    def head(self, h: Tensor, context: Tensor) -> Tensor:
        for i, shift in enumerate(self.shifts):
            if i:
                h = self.layers[i](h)
            h = torch.sin(self.frequency * (h + shift(context).unsqueeze(1)))
        return self.layers[-1](h)


def _uniform_linear(inputs: int, outputs: int, bound: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.uniform_(layer.bias, -bound, bound)
    return layer
