"""A meta-step against the paper's task-by-task recipe: the recipe, the contestants, and times taken in turns.

Whoever else uses the machine slows all contestants alike when each round runs every one of them, so ratios within a
round can be trusted where times cannot.
"""

import copy
import ctypes
import resource
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import cavia
from cavia.allocator import M_MMAP_MAX, M_TOP_PAD, M_TRIM_THRESHOLD, MIB, keep_freed_memory
from cavia.tensor_file import write_atomically, write_json
from cavia.training.step import MetaStep

LR, CLIP = 1e-3, 10.0
M_MMAP_THRESHOLD = -3
SIDE = 1024  # of the square matrices whose product is the machine's peak

Step: TypeAlias = Callable[[cavia.TaskBatch], object]


class RecipeNetwork(nn.Module):
    """The network of the paper's appendix: the context is state of the module, concatenated to the input."""

    def __init__(self, like: cavia.MLP):
        super().__init__()
        self.size = like.context
        self.layers = nn.ModuleList(nn.Linear(w.shape[1], w.shape[0]) for w in like.parameters() if w.ndim == 2)
        self.load_state_dict(like.state_dict())
        self.reset_context()

    def reset_context(self) -> None:
        self.context = torch.zeros(self.size, requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:  # x [N, inputs]
        h = torch.cat((x, self.context.expand(x.shape[0], -1)), dim=1)
        for layer in self.layers[:-1]:
            h = torch.relu(layer(h))
        return self.layers[-1](h)


class Recipe:
    """One meta-iteration as the paper's appendix tells it: a Python loop over tasks."""

    def __init__(self, model: cavia.MLP, inner_steps: int):
        self.network, self.inner_steps = RecipeNetwork(model), inner_steps
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=LR)

    def __call__(self, batch: cavia.TaskBatch) -> None:
        network, parameters = self.network, list(self.network.parameters())
        total = [torch.zeros_like(p) for p in parameters]
        for i in range(len(batch)):
            network.reset_context()
            for _ in range(self.inner_steps):
                inner = nn.functional.mse_loss(network(batch.support_x[i]), batch.support_y[i])
                gradient = torch.autograd.grad(inner, network.context, create_graph=True)[0]
                network.context = network.context - 1.0 * gradient
            outer = nn.functional.mse_loss(network(batch.query_x[i]), batch.query_y[i])
            for sum_, part in zip(total, torch.autograd.grad(outer, parameters), strict=True):
                sum_ += part / len(batch)
        self.optimiser.zero_grad()
        for parameter, gradient in zip(parameters, total, strict=True):
            parameter.grad = gradient.clamp(-CLIP, CLIP)
        self.optimiser.step()


class Contestant(NamedTuple):
    """One meta-step, and the network that it trains."""

    step: Step
    network: nn.Module


def contestants(model: cavia.MLP, inner_steps: int, compiled: bool) -> dict[str, Contestant]:
    """The recipe, MetaStep and, if asked for, MetaStep compiled, all from the same weights."""
    recipe = Recipe(model, inner_steps)
    made = {"recipe": Contestant(recipe, recipe.network)}
    for name, is_compiled in (("eager", False), ("compiled", True))[: 1 + compiled]:
        learner = cavia.CAVIA(copy.deepcopy(model), "mse", inner_lr=1.0, inner_steps=inner_steps)
        made[name] = Contestant(MetaStep(learner, LR, CLIP, compiled=is_compiled), learner.model)
    return made


def check(steps: Mapping[str, Contestant], batches: Sequence[cavia.TaskBatch]) -> float:
    """The largest difference between any contestant's parameters and the recipe's after a step on each batch."""
    for batch in batches:
        for contestant in steps.values():
            contestant.step(batch)
    vectors = {name: nn.utils.parameters_to_vector(one.network.parameters()) for name, one in steps.items()}
    worst = max((vector - vectors["recipe"]).abs().max().item() for vector in vectors.values())
    if worst > 1e-4:
        raise SystemExit(f"the contestants disagree by {worst:.1e}; nothing was timed")
    return worst


def repeated(step: Step, batches: Sequence[cavia.TaskBatch], passes: int = 1) -> tuple[Callable[[], object], int]:
    """A step on each batch, several times over, as an action for `in_turns`."""

    def action() -> None:
        for _ in range(passes):
            for batch in batches:
                step(batch)

    return action, passes * len(batches)


def until(action: Callable[[], object], units: int, seconds: float) -> tuple[Callable[[], object], int]:
    """The action as often as fits into so many seconds, at least once, for `in_turns`. It is run twice to find out."""
    action()
    start = time.process_time()
    action()
    passes = max(1, int(seconds / max(time.process_time() - start, 1e-6)))
    return lambda: [action() for _ in range(passes)], passes * units


def in_turns(
    actions: Mapping[str, tuple[Callable[[], object], int]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
    warm: Collection[str] = (),
) -> dict[str, list[float]]:
    """Name → seconds of one unit of work, for each round. An action is a function and how many units it does.

    clock: by default counts only what the processor did for us: on one core, and on a quiet machine, the same as by
           the wall clock, and on a busy one without the time that others had.
    warm:  names of actions that are run once more, untimed, right before: the memory that they keep is theirs by then,
           as in all but the first step of a training.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, (action, units) in actions.items():
            if name in warm:
                action()
            start = clock()
            action()
            times[name].append((clock() - start) / units)
    return times


def publish(path: Path, result: Mapping[str, Any], page: str) -> None:
    """Write what was measured as path.json and the page as path.md, and print the page."""
    write_json(path.with_suffix(".json"), result)
    write_atomically(path.with_suffix(".md"), page.encode())
    print(page)


def milliseconds(seconds: Sequence[float]) -> float:
    """Their median."""
    return round(1e3 * statistics.median(seconds), 3)


def spread(values: Sequence[float], digits: int) -> dict[str, float]:
    """Median, worst and best of numbers of which larger ones are better."""
    summary = {"median": statistics.median(values), "worst": min(values), "best": max(values)}
    return {name: round(value, digits) for name, value in summary.items()}


def times_faster(times: Mapping[str, Sequence[float]], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """How many times faster than the recipe each contestant is, round by round."""
    return {name: spread([r / t for r, t in zip(times["recipe"], times[name], strict=True)], 1) for name in names}


def keeping_memory(action: Callable[[], object]) -> Callable[[], object]:
    """The action with freed memory kept, as `cavia.fit` has it."""

    def kept() -> object:
        keep_freed_memory.__wrapped__()
        return action()

    return kept


def returning_memory(action: Callable[[], object]) -> Callable[[], object]:
    """The action with the settings that glibc arrives at by itself, after its first large tensors."""

    def returned() -> object:
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in {
            M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: 32 * MIB, M_TRIM_THRESHOLD: 64 * MIB, M_TOP_PAD: 128 * 1024
        }.items():  # fmt: skip
            mallopt(name, value)
        return action()

    return returned


def matrix_product() -> tuple[Callable[[], object], int]:
    """Ten products of large matrices, as an action for `in_turns`: the machine's peak."""
    a, b = torch.randn(2, SIDE, SIDE)
    return lambda: [torch.mm(a, b) for _ in range(10)], 10


def count_operations(action: Callable[[], object]) -> int:
    """Floating-point operations of its matrix products and convolutions; a multiplication and an addition are two."""
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]  # its hooks on modules fail inside torch.func.grad
    with counter:
        action()
    return counter.get_total_flops()


class _NoModules(nullcontext):
    """Stands in for FlopCounterMode's record of which module an operation is part of."""

    parents = frozenset({"Global"})


def raised_peak(action: Callable[[], object]) -> float:
    """By how many MB the action raises the peak memory of the process, which must be a new one."""
    before = _new_peak()
    action()
    return round((_peak() - before) / 1024, 2)


def _new_peak() -> int:
    """KB; from here on, where Linux lets us say so. Else a process inherits the peak of the one that started it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """KB, the highest so far."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
