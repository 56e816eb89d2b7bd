"""A vector field with context, integrated: trajectories of dynamical systems."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, silu

from cavia.errors import CaviaError, require_at_least, require_one_of, require_positive, shown
from cavia.machine import require_memory
from cavia.models.adaptive import adaptive
from cavia.models.base import ContextModel, as_floats
from cavia.tasks.integrating import Field, rk4
from cavia.tasks.points import shape

SOLVERS = ("rk4", "adaptive")


class Start(NamedTuple):
    """Initial states of trajectories, and the times of observation."""

    state: Tensor  # [T, N, ..., D]
    times: Tensor  # [T, N, ..., S]


class Flow(ContextModel):
    """The trajectories of ż = f₀(z) + Σ φ_c f_c(z), a field that is linear in the context.

    x = {"state": [T, N, ..., D], "times": [T, N, ..., S]} and context [T, C] → the states at these times,
    [T, N, ..., S, D]. Times start at the initial state and increase. The axes in between are whatever the data have,
    such as windows that a trajectory is cut into.

    states:   D, the numbers that describe a state.
    hidden:   widths of the network's SiLU layers, which compute all 1 + C fields.
    context:  number of context parameters C.
    centre:   the approximate centre of each state variable; by default 0.
    scale:    the approximate spread around it; by default 1.
    tempo:    the time in which a state changes by about its scale.
    solver:   "rk4", the Runge–Kutta method with `substeps` equal steps from one time to the next; or "adaptive",
              which chooses its steps to stay within `tolerance`, by torchode: `pip install 'cavia-torch[flow]'`.

    >>> model = Flow(states=2, context=2)
    >>> x = {"state": torch.ones(3, 4, 2), "times": torch.arange(1.0, 6).expand(3, 4, 5)}
    >>> model(x, torch.zeros(3, 2)).shape
    torch.Size([3, 4, 5, 2])
    """

    def __init__(
        self,
        states: int,
        hidden: Sequence[int] = (64, 64, 64),
        context: int = 2,
        centre: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        tempo: float = 1.0,
        solver: str = "rk4",
        substeps: int = 1,
        tolerance: float = 1e-5,
    ):
        super().__init__()
        hidden = tuple(hidden)
        for name, size in (("states", states), *(("hidden", width) for width in hidden), ("substeps", substeps)):
            require_at_least(name, size, 1)
        require_at_least("context", context, 0)
        if not hidden:
            raise CaviaError("hidden must have at least one layer, got none")
        require_one_of("solver", solver, SOLVERS)
        self.tempo, self.tolerance = require_positive("tempo", tempo), require_positive("tolerance", tolerance)
        self.states, self.hidden, self.context = states, hidden, context
        self.centre, self.scale, self.solver, self.substeps = centre, scale, solver, substeps
        self.vectorises = solver == "rk4"  # how many steps are taken is not known before
        for name, values, default in (("middle", centre, 0.0), ("unit", scale, 1.0)):
            numbers = torch.full((states,), default) if values is None else torch.tensor([float(v) for v in values])
            if (
                numbers.shape != (states,)
                or not numbers.isfinite().all()
                or (name == "unit" and not (numbers > 0).all())
            ):
                what = "centre" if name == "middle" else "scale, above 0,"
                raise CaviaError(f"{what} must be {states} finite numbers, one for each state, got {shown(values)}")
            self.register_buffer(name, numbers, persistent=False)
        self.middle: Tensor
        self.unit: Tensor
        widths = (states, *hidden, states * (1 + context))
        size = 4 * sum(a * b for a, b in pairwise(widths))
        require_memory(size, f"a Flow of states={states}, hidden={shown(hidden)}, context={context}")
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise(widths))

    def stem(self, x: Any) -> Start:
        """The initial states and times, checked."""
        if not isinstance(x, Mapping) or set(x) != {"state", "times"}:
            what = f"a dictionary of {', '.join(map(repr, x))}" if isinstance(x, Mapping) else shown(x)
            raise CaviaError(f'a Flow takes x = {{"state": [T, N, ..., D], "times": [T, N, ..., S]}}, got {what}')
        state, times = (as_floats(x[name], self.layers[0].weight) for name in ("state", "times"))  # type: ignore[arg-type]
        if state.ndim < 3 or state.shape[-1] != self.states or state.shape[:-1] != times.shape[:-1]:
            raise CaviaError(
                f'this Flow takes x = {{"state": [T, N, ..., {self.states}], "times": [T, N, ..., S]}}, whose axes '
                f"before the last are the same, got {shape(x)}"
            )
        return Start(state, times)

    def head(self, h: Start, context: Tensor) -> Tensor:
        coefficients, speed = self._coefficients(h, context).unsqueeze(-2), self.unit / self.tempo
        *layers, last = self.layers

        def field(state: Tensor) -> Tensor:  # [T, N, ..., D]
            z = (state - self.middle) / self.unit
            for layer in layers:
                z = silu(layer(z))
            fields = last(z).unflatten(-1, (self.states, -1))  # [T, N, ..., D, 1 + C]
            return (fields * coefficients).sum(-1) * speed

        return torch.stack(self._integrate(field, h.state, h.times), -2)

    def slopes(self, h: Start, context: Tensor) -> Tensor:
        """∂f/∂φ at the context [T, C], or [1, C] if it is the same for all tasks: [T, N, ..., S, D, C]."""
        return self.linearised(h, context)[1]

    def linearised(self, h: Start, context: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions [T, N, ..., S, D] and their `slopes`, at little more than the cost of the slopes.

        A state and its derivatives are integrated together: row 0 is z, row c is s_c = ∂z/∂φ_c, whose own field is
        (∂f/∂z) s_c + f_c(z).
        """
        coefficients = self._coefficients(h, context)[..., None, None, :]  # for the rows, too
        speed = self.unit / self.tempo
        *layers, last = self.layers

        def field(rows: Tensor) -> Tensor:  # [T, N, ..., 1 + C, D]
            z, s = (rows[..., :1, :] - self.middle) / self.unit, rows[..., 1:, :] / self.unit
            for layer in layers:
                z, s = layer(z), linear(s, layer.weight)  # type: ignore[arg-type]
                bend = z.sigmoid()
                z = z * bend  # SiLU
                s = s * (z + bend * (1 - z))  # its derivative
            fields = torch.cat([last(z), linear(s, last.weight)], -2)  # type: ignore[arg-type]
            fields = fields.unflatten(-1, (self.states, -1))  # [T, N, ..., 1 + C, D, 1 + C]
            own = pad(fields[..., 0, :, 1:], (1, 0)).transpose(-1, -2)  # f_c(z), none for z itself
            return ((fields * coefficients).sum(-1) + own) * speed

        start = pad(h.state.unsqueeze(-2), (0, 0, 0, self.context))  # which φ does not change
        rows = torch.stack(self._integrate(field, start, h.times), -3)  # [T, N, ..., S, 1 + C, D]
        return rows[..., 0, :], rows[..., 1:, :].transpose(-1, -2)

    def _coefficients(self, h: Start, context: Tensor) -> Tensor:
        """1 and φ: [T, 1, ..., 1 + C], with as many axes as the states [T, N, ..., D] have."""
        coefficients = torch.cat([torch.ones_like(context[:, :1]), context], 1)
        return coefficients.view(len(coefficients), *(1,) * (h.state.ndim - 2), -1)

    def _integrate(self, field: Field, state: Tensor, times: Tensor) -> list[Tensor]:
        if self.solver == "rk4":
            return rk4(field, state, times, self.substeps)
        return adaptive(field, state, times, self.tolerance)
