"""A sine network that learns a basis of functions; the context are the coefficients."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, require_at_least, require_positive
from cavia.models.base import ContextModel


class SineBasis(ContextModel):
    """f(x; φ) = b₀(x) + Σ φ_c b_c(x): x [T, N, inputs] in [0, 1], context [T, C] → [T, N, outputs].

    hidden:    width of each hidden layer of the sine network whose outputs are b₀ … b_C.
    context:   number of context parameters C.
    frequency: ω in sin(ω (W h + b)), how fine the detail is that the network starts with.

    For pictures and other fields over coordinates. The network is computed once per place, however often φ moves, and
    a squared error is quadratic in φ. Sines and their initialisation are those
    of SIREN (Sitzmann et al., 2020). Take a smaller outer rate than for ReLUs, 3e-4 say.

    >>> model = SineBasis(inputs=2, outputs=3, hidden=(64, 64), context=16)
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
        self.outputs, self.frequency = outputs, frequency
        widths = (inputs, *hidden, outputs * (1 + context))
        # SIREN's bounds keep the arguments of the sines equally spread at every depth.
        bounds = [1 / inputs] + [(6 / width) ** 0.5 / frequency for width in hidden]
        self.layers = nn.ModuleList(_uniform_linear(widths[i], widths[i + 1], bound) for i, bound in enumerate(bounds))

    def stem(self, x: Tensor) -> Tensor:
        """The basis at every point, [T, N, inputs] → [T, N, outputs, 1 + C], computed once for points that are equal.

        The pixels of many pictures are few places: 25 pictures with 256 pixels each have 1024 between them.
        """
        if torch.compiler.is_compiling() or x.requires_grad:  # neither a graph nor a gradient knows how many there are
            return self.basis(x)
        places, which = x.flatten(0, 1).unique(dim=0, return_inverse=True)
        return self.basis(places).index_select(0, which).unflatten(0, x.shape[:2])

    def basis(self, x: Tensor) -> Tensor:
        """b₀ … b_C at x: [..., inputs] → [..., outputs, 1 + C]."""
        if x.shape[-1] != self.arguments["inputs"]:
            raise CaviaError(f"this SineBasis takes {self.arguments['inputs']} inputs, got x of shape {list(x.shape)}")
        h = 2 * x - 1  # [0, 1] → [-1, 1]
        for layer in self.layers[:-1]:
            h = torch.sin(self.frequency * layer(h))
        return self.layers[-1](h).unflatten(-1, (self.outputs, 1 + self.context))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:  # without looking for equal places: vmap cannot
        return self.head(self.basis(x), context)

    def head(self, h: Tensor, context: Tensor) -> Tensor:
        coefficients = torch.cat([torch.ones_like(context[:, :1]), context], 1)  # b₀ always counts once
        rows = h.flatten(1, 2)  # [T, N·outputs, 1 + C]
        return (rows @ coefficients.unsqueeze(-1)).view(h.shape[:-1])


def _uniform_linear(inputs: int, outputs: int, bound: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.uniform_(layer.bias, -bound, bound)
    return layer
