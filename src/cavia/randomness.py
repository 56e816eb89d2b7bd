"""PyTorch's own random numbers, which dropout draws from: each run has its own, in whichever thread it trains.

PyTorch has one generator for the whole process, and no layer can be given another. So whoever draws takes a turn: its
numbers are put into the generator, and taken out again afterwards.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

ONE_AT_A_TIME = threading.RLock()  # there is one generator
State = dict[str, Tensor]  # by device


class OwnRandomNumbers:
    """Random numbers from a seed, as if nobody else drew from PyTorch's generator.

    Other code that draws from it in another thread in the middle of a turn is not kept apart.
    """

    def __init__(self, seed: int):
        with ONE_AT_A_TIME:
            outside = _state()
            torch.manual_seed(seed)
            self.state = _state()
            _set_state(outside)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """These are PyTorch's random numbers inside."""
        with ONE_AT_A_TIME:
            outside = _state()
            _set_state(self.state)
            try:
                yield
            finally:
                self.state = _state()
                _set_state(outside)

    def go_on_from(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` has; an invalid one is PyTorch's error."""
        merged = self.state | {name: value for name, value in state.items() if name in self.state}
        with ONE_AT_A_TIME:
            outside = _state()
            try:
                _set_state(merged)
            finally:
                _set_state(outside)
        self.state = merged


def may_draw(module: nn.Module) -> bool:
    """Whether a module may draw random numbers in a call: it has a layer that does, or third-party code."""
    return any(
        type(layer).__module__.split(".")[0] not in ("torch", "cavia")
        or isinstance(layer, nn.modules.dropout._DropoutNd | nn.RReLU)
        or bool(getattr(layer, "dropout", 0.0))  # recurrent layers and attention
        or getattr(layer, "draws", False)  # a learner whose outer loss is random
        for layer in module.modules()
    )


def _state() -> State:
    """The state of PyTorch's own generators, by device."""
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), **{f"cuda:{i}": state for i, state in enumerate(on_gpus)}}


def _set_state(states: State) -> None:
    torch.set_rng_state(states["cpu"])
    for i in range(len(states) - 1):
        torch.cuda.set_rng_state(states[f"cuda:{i}"], i)
