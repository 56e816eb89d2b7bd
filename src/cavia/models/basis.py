"""A basis of functions made of cosine waves; the context are the coefficients."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from cavia.errors import CaviaError, require_at_least, shown
from cavia.kinds import checked
from cavia.machine import require_memory
from cavia.models.base import ContextModel, as_floats
from cavia.tasks.points import as_tensor, one_tensor

MOST_WAVES = 4096
FEW_PLACES = 16  # times as many places as points of a task: up to here it is cheaper to predict at all places


class Places(NamedTuple):
    """The basis at the positions of points."""

    basis: Tensor  # [places, outputs, 1 + C], or [T, N, outputs, 1 + C] if `which` is None
    which: Tensor | None  # the place of each point, [T, N]


class WaveBasis(ContextModel):
    """f(x; φ) = b₀(x) + Σ a_c(φ) b_c(x): x [T, N, inputs] in [0, 1], context [T, C] → [T, N, outputs].

    waves:   each b is a learned sum of the products of cos(π i x₁), cos(π j x₂), … with i, j, … below this number and
             √(i² + j² + …) too, so it is also how fine the detail gets.
    context: number of context parameters C.
    hidden:  widths of the layers between φ and the coefficients, a(φ) = φ + r(φ) with r = 0 at the start;
             without any, a(φ) = φ, and a squared error is quadratic in φ.

    For pictures and other fields over coordinates. The basis, the expensive part, is computed once per position,
    however many tasks have a point there and however many steps φ takes.

    >>> model = WaveBasis(inputs=2, outputs=3, waves=8, context=16)
    >>> model(torch.zeros(25, 10, 2), torch.zeros(25, 16)).shape
    torch.Size([25, 10, 3])
    """

    def __init__(self, inputs: int, outputs: int, waves: int = 24, context: int = 128, hidden: Sequence[int] = ()):
        super().__init__()
        hidden = tuple(hidden)
        for name, size in (("inputs", inputs), ("outputs", outputs), ("waves", waves), ("context", context)):
            require_at_least(name, size, 1)
        for width in hidden:
            require_at_least("hidden", width, 1)
        if inputs * math.log(waves) > math.log(MOST_WAVES) + 1e-9:
            raise CaviaError(
                f"waves={waves} for inputs={inputs} are {waves}^{inputs}, more than {MOST_WAVES}; take fewer"
            )
        shape = (
            f"WaveBasis(inputs={inputs}, outputs={outputs}, waves={waves}, context={context}, hidden={shown(hidden)})"
        )
        bent = sum(a * b for a, b in pairwise((context, *hidden, context)))
        require_memory(4 * (waves**inputs * (inputs + outputs * (context + 1)) + bent), shape)
        self.inputs, self.outputs, self.waves, self.context, self.hidden = inputs, outputs, waves, context, hidden
        counts = torch.cartesian_prod(*[torch.arange(float(waves))] * inputs).view(-1, inputs)
        self.counts: Tensor  # i, j, … of each wave, [waves, inputs]
        self.register_buffer("counts", counts[counts.square().sum(1) < waves**2], persistent=False)
        self.constant = nn.Parameter(torch.zeros(len(self.counts), outputs))  # b₀
        # Σ_c b_c(x)², the curvature of the inner loss, starts at or below 1: steps with inner_lr=1 are stable.
        spread = (context * self._scale().square().sum()) ** -0.5
        self.functions = nn.Parameter(spread * torch.randn(len(self.counts), outputs, context))  # b₁ … b_C
        widths = (context, *hidden, context) if hidden else ()
        self.bends = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise(widths))  # r
        for layer in self.bends:  # φ is smaller than 1, so weights a little larger than He et al.'s
            nn.init.normal_(layer.weight, std=2 / layer.in_features**0.5)  # type: ignore[arg-type, operator]
        for parameter in self.bends[-1:].parameters():
            nn.init.zeros_(parameter)

    def stem(self, x: Tensor) -> Places:
        """The basis at the places of x [T, N, inputs], computed once for points that are equal.

        The pixels of many pictures are few positions: 25 pictures with 256 pixels each have 1024 between them.
        """
        x = one_tensor(x, "WaveBasis")
        if x.ndim != 3 or x.shape[-1] != self.inputs:
            raise CaviaError(f"this WaveBasis takes x [T, N, {self.inputs}], got x of shape {list(x.shape)}")
        if torch.compiler.is_compiling() or x.requires_grad or not x.numel():  # no graph or gradient knows how many
            return Places(self.basis(x), None)
        if (x == x[:1]).all():  # whole pictures: all tasks have their points at the same places
            return Places(self.basis(x[0]), torch.arange(x.shape[1], device=x.device).expand(x.shape[:2]))
        places, which = distinct(x.flatten(0, 1))
        basis = self.basis(places)
        apart = not basis[:, 0, 0].isfinite().all()  # in a gradient over all places, NaN would reach every task
        if apart or len(places) > FEW_PLACES * x.shape[1]:
            return Places(basis.index_select(0, which).unflatten(0, x.shape[:2]), None)
        return Places(basis, which.view(x.shape[:2]))

    def basis(self, x: Tensor) -> Tensor:
        """b₀ … b_C at x: [..., inputs] → [..., outputs, 1 + C]."""
        if x.shape[-1] != self.inputs:
            raise CaviaError(f"this WaveBasis takes {self.inputs} inputs, got x of shape {list(x.shape)}")
        x = as_floats(x, self.functions)
        weights = torch.cat([self.constant.unsqueeze(-1), self.functions], -1).flatten(1)
        return (self._waves(x) @ weights).unflatten(-1, (self.outputs, 1 + self.context))

    @checked
    @torch.no_grad()
    def initialise(self, x: Tensor, y: Tensor) -> float:
        """Start from the mean and the principal components of S whole tasks: places x [P, inputs], y [S, P, outputs].

        Components are as long as the tasks vary along them, so φ is as likely in every direction, and the curvature
        Σ_c b_c(x)² is ½ on average. Returns the variance of what they leave over, divided by that of φ: with this
        damping, `GaussNewton` starts from the best linear prediction with this many components.
        """
        if x.ndim != 2 or y.ndim != 3 or y.shape[1:] != (len(x), self.outputs) or len(y) < 2:
            raise CaviaError(
                f"initialise takes x [P, inputs] and y [S, P, {self.outputs}] of at least 2 tasks, "
                f"got {list(x.shape)} and {list(y.shape)}"
            )
        x, y = as_floats(as_tensor("x", x), self.functions), as_floats(as_tensor("y", y), self.functions)
        if not len(x) or x.device != self.functions.device or y.device != x.device:
            raise CaviaError(
                f"initialise needs at least 1 place x on {self.functions.device}, got {shown(x)}, {shown(y)}"
            )
        if not (x.isfinite().all() and y.isfinite().all()):
            raise CaviaError("initialise needs finite x and y, got a number that is NaN or infinite")
        waves = self._waves(x)
        gram = waves.T @ waves / len(x)
        gram.diagonal().add_(1e-6 * gram.diagonal().mean())  # more waves than places have no single answer
        root = torch.linalg.cholesky(gram)  # |root.T @ a|² is the mean square of the field with coefficients a
        fields = waves.T @ y.transpose(0, 1).flatten(1) / len(x)
        coefficients = torch.cholesky_solve(fields, root).unflatten(1, y.shape[::2])  # [waves, S, outputs]
        self.constant.copy_(coefficients.mean(1))
        varying = (coefficients - self.constant.unsqueeze(1)).transpose(1, 2).flatten(1)  # [waves, outputs·S]
        varying = (root.T @ varying).view(-1, len(y))  # [waves·outputs, S]
        sizes, directions = torch.linalg.eigh(varying @ varying.T / len(y))  # rising
        best = min(self.context, len(sizes), len(y) - 1)
        components = (directions * sizes.clamp(min=0).sqrt())[:, -best:].reshape(len(self.counts), -1)
        functions = torch.linalg.solve_triangular(root.T, components, upper=True).unflatten(1, (self.outputs, best))
        self.functions[..., :best] = functions
        explained = self.basis(x)[..., 1:].square().sum(-1).mean()  # where there are fewer tasks than C, with noise
        scale = (0.5 / explained).sqrt()
        self.functions.mul_(scale)
        left_over = (y - y.mean(0)).square().mean() - explained
        return (left_over.clamp(min=1e-6 * explained) * scale.square()).item()

    def _waves(self, x: Tensor) -> Tensor:
        """[..., inputs] → [..., waves]"""
        return self._scale() * torch.cos(math.pi * self.counts * x.unsqueeze(-2)).prod(-1)

    def _scale(self) -> Tensor:
        """Slow waves count more, as they do in pictures: a step of the optimiser is a step at every scale."""
        return 2 / (1 + self.counts.square().sum(1)).sqrt()

    def _bent(self, context: Tensor) -> Tensor:
        """a(φ): [..., C] → [..., C]"""
        h = context
        for number, layer in enumerate(self.bends):
            h = layer(gelu(h) if number else h)
        return context + h if self.bends else context

    def forward(self, x: Tensor, context: Tensor) -> Tensor:  # without looking for equal places: vmap cannot
        x = self.checked(x, context)
        return self.head(Places(self.basis(one_tensor(x, "WaveBasis")), None), context)

    def head(self, h: Places, context: Tensor) -> Tensor:
        coefficients = torch.cat([torch.ones_like(context[:, :1]), self._bent(context)], 1)  # b₀ always counts once
        if h.which is None:
            rows = h.basis.flatten(1, 2)  # [T, N·outputs, 1 + C]
            return (rows @ coefficients.unsqueeze(-1)).view(h.basis.shape[:-1])
        everywhere = (coefficients @ h.basis.flatten(0, 1).T).unflatten(-1, (-1, self.outputs))  # [T, places, outputs]
        return everywhere.gather(1, h.which.unsqueeze(-1).expand(-1, -1, self.outputs))

    def slopes(self, h: Places, context: Tensor) -> Tensor:
        """∂f/∂φ at the context [T, C], or [1, C] if it is the same for all tasks: [T, N, outputs, C]."""
        functions, turned = h.basis[..., 1:], torch.func.vmap(torch.func.jacfwd(self._bent))(context)  # [T, C, C]
        if len(context) == 1 and self.bends:
            functions = functions @ turned[0]
        if h.which is not None:
            functions = functions.index_select(0, h.which.flatten()).unflatten(0, h.which.shape)
        return functions if len(context) == 1 else functions @ turned.unsqueeze(1)


def distinct(points: Tensor) -> tuple[Tensor, Tensor]:
    """Points [P, inputs] → the different ones among them [U, inputs], and which of these each point is [P].

    As points.unique(dim=0, return_inverse=True), but many times faster: sorted by one number instead of several.
    """
    weights = torch.arange(1, points.shape[1] + 1, dtype=torch.float64, device=points.device).sqrt()
    which = (points.double() @ weights).unique(return_inverse=True)[1]
    first = which.new_empty(int(which.max()) + 1).scatter_(0, which, torch.arange(len(which), device=points.device))
    places = points[first]
    if not torch.equal(places[which], points):  # two different points with the same number
        places, which = points.unique(dim=0, return_inverse=True)
    return places, which
