"""Fixed-step integration of ordinary differential equations, batched over any number of systems."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

Field: TypeAlias = Callable[[Tensor], Tensor]  # states [...] → their time derivatives [...]


def rk4(field: Field, state: Tensor, times: Tensor, substeps: int = 1) -> list[Tensor]:
    """The classical fourth-order Runge–Kutta method: the states [...] at each of the times.

    state: at time 0, [..., D] or with more axes at the end
    times: increasing, from 0 on, [..., S] for the leading axes of the states
    substeps: equal steps from one time to the next
    """
    states: list[Tensor] = []
    steps = times.diff(dim=-1, prepend=torch.zeros_like(times[..., :1])) / substeps  # [..., S]
    for step in steps.unbind(-1):
        h = step.view(*step.shape, *(1,) * (state.ndim - step.ndim))
        for _ in range(substeps):
            state = rk4_step(field, state, h)
        states.append(state)
    return states


def rk4_step(field: Field, state: Tensor, h: Tensor) -> Tensor:
    """One step of length h, which broadcasts against the state."""
    half = h / 2
    k1 = field(state)
    k2 = field(state + half * k1)
    k3 = field(state + half * k2)
    k4 = field(state + h * k3)
    return state + (h / 6) * (k1 + 2 * (k2 + k3) + k4)
