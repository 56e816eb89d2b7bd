"""Where the training of a table's network starts: at a mixed model's solution, or at a logistic regression."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cavia.learners.base import Learner
from cavia.tables.mixed import MOST_SLOPES, Mixed, fit_mixed, square_root
from cavia.tables.posterior import Posterior
from cavia.tables.rivals import training_rows
from cavia.tables.tasks import Tasks
from cavia.tasks.batch import seeded_generator

LEAST_NOISE = 1e-3
ROWS = 200_000  # of training, at most, that the start is fitted to
SLOPES = (0, 1, 2, 4, MOST_SLOPES)  # of each task, to choose from
QUERY = 200  # rows of a validation task, at most
DRAWS = 3  # of its known rows
CLASS_SPREAD = 0.7  # of a task's logits at the start


def start_at_mixed(learner: Posterior, family: Tasks) -> None:
    """Set the lines of the learner's network, and the noise, by the training tasks.

    How many slopes a task has of its own is chosen by all tasks but the test's: with few tasks, many are learned ill.
    """
    network = learner.model
    x, y, starts = training_rows(family, ROWS)
    if learner.loss != "mse":
        fixed = _logistic(torch.from_numpy(x), torch.from_numpy(y), network.outputs)
        intercepts = torch.zeros(min(network.effects, network.outputs), network.outputs, 1 + network.inputs)
        intercepts[:, :, 0] = CLASS_SPREAD * torch.eye(network.outputs)[: len(intercepts)]
        return network.begin(fixed.float(), intercepts)
    begin = {name: value.clone() for name, value in learner.state_dict().items()}
    states, losses = [], []
    splits = [split for split in ("train", "val") if family.splits[split]]
    for slopes in sorted({min(count, network.inputs, MOST_SLOPES) for count in SLOPES}):
        learner.load_state_dict(begin)
        if _set_lines(learner, x, y, starts, slopes):
            states.append({name: value.clone() for name, value in learner.state_dict().items()})
            losses.append(torch.cat([losses_of_tasks(learner, family, 0, split) for split in splits]))
    learner.load_state_dict(states[simplest(losses)] if states else begin)


def _set_lines(learner: Posterior, x: np.ndarray, y: np.ndarray, starts: np.ndarray, slopes: int) -> bool:
    """Lines and noise of a mixed model with this many slopes; False if there is none, because numbers are too large."""
    try:
        models = [fit_mixed(x, y[:, i], starts, slopes) for i in range(y.shape[1])]
        fixed = torch.from_numpy(np.stack([model.beta for model in models])).float()
        effects = _principal(models, x, learner.model.effects).float()
    except np.linalg.LinAlgError:
        return False
    if not (fixed.isfinite().all() and effects.isfinite().all()):
        return False
    learner.model.begin(fixed, effects)
    noises = [max(0.5 * math.log(model.noise), math.log(LEAST_NOISE)) for model in models]
    with torch.no_grad():
        learner.log_noise.copy_(torch.tensor(noises))
    return True


def simplest(losses: Sequence[Tensor]) -> int:
    """Which of several models, the simplest first, whose losses on the same tasks are given, each [T].

    The first that is worse than the best by no more than one standard error of the difference: few tasks do not make
    a model complicated.
    """
    best = min(losses, key=lambda one: float(one.nan_to_num(math.inf).mean()))
    gaps = [one - best for one in losses]
    errors = [float(gap.std()) / len(gap) ** 0.5 if len(gap) > 1 else 0.0 for gap in gaps]
    return next(
        (place for place, gap in enumerate(gaps) if float(gap.mean()) <= errors[place]),
        len(losses) - 1,
    )


def validation_loss(learner: Learner, family: Tasks, seed: int = 0) -> float:
    """The mean loss of the validation tasks, of targets in standard deviations; the same rows for every learner."""
    return float(losses_of_tasks(learner, family, seed).mean())


@torch.no_grad()
def losses_of_tasks(learner: Learner, family: Tasks, seed: int = 0, split: str = "val") -> Tensor:
    """The loss of each of a split's tasks, [T], in a fixed order, with the same known rows for every learner."""
    generator, losses = seeded_generator(seed, "compare"), []
    for _ in range(DRAWS if family.order == "random" else 1):
        batch = family.sample(len(family.splits[split]), family.support, min(family.query, QUERY), generator, split)
        losses.append(learner.task_losses(batch)[batch.attributes["task"].argsort()])
    return torch.stack(losses).mean(0)


def _principal(models: list[Mixed], x: np.ndarray, count: int) -> Tensor:
    """The effects [C, outputs, 1 + inputs] along which predictions vary most, scaled so that φ ~ N(0, 1)."""
    components: list[tuple[float, int, np.ndarray]] = []
    for output, model in enumerate(models):
        Z = np.concatenate([np.ones((len(x), 1)), x[:, model.slopes]], 1)
        root = square_root(Z.T @ Z / len(Z))  # |rootᵀ b|² is the mean square of what effects b do to predictions
        sizes, directions = np.linalg.eigh(root.T @ model.spread @ root)
        for size, direction in zip(sizes, directions.T, strict=True):
            line = np.zeros(1 + x.shape[1])
            effect = np.linalg.solve(root.T, direction) * math.sqrt(max(size, 0.0))
            line[0], line[1 + model.slopes] = effect[0], effect[1:]
            components.append((float(size), output, line))
    components.sort(key=lambda entry: -entry[0])
    effects = np.zeros((min(count, len(components)), len(models), 1 + x.shape[1]))
    for place, (_, output, line) in enumerate(components[: len(effects)]):
        effects[place, output] = line
    return torch.from_numpy(effects)


def _logistic(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Weights [classes, 1 + inputs] of a logistic regression with a small penalty: x [rows, inputs], y [rows]."""
    x = torch.cat([x.new_ones(len(x), 1), x], 1)
    weights = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weights.T, y) + 1e-3 * weights.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()
