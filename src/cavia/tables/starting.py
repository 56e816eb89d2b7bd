"""Where the training of a table's network starts: at a mixed model's solution, or at a logistic regression."""

import math

import numpy as np
import torch
from torch import Tensor

from cavia.tables.mixed import Mixed, fit_mixed, square_root
from cavia.tables.network import EffectsNet
from cavia.tables.posterior import Posterior
from cavia.tables.rivals import training_rows
from cavia.tables.tasks import Tasks

LEAST_NOISE = 1e-3
ROWS = 200_000  # of training, at most, that the start is found from
CLASS_SPREAD = 0.7  # of a task's logits at the start


def start_at_mixed(learner: Posterior, family: Tasks) -> None:
    """Set the lines of the learner's network, and the noise, by the training tasks."""
    network = learner.model
    assert isinstance(network, EffectsNet)
    x, y, starts = training_rows(family, ROWS)
    if learner.loss == "mse":
        try:
            models = [fit_mixed(x, y[:, i], starts) for i in range(y.shape[1])]
            fixed = torch.from_numpy(np.stack([model.beta for model in models])).float()
            effects = _principal(models, x, network.effects).float()
        except np.linalg.LinAlgError:  # numbers so large that nothing can be solved: train from any start
            return
        if fixed.isfinite().all() and effects.isfinite().all():
            network.begin(fixed, effects)
            noises = [max(0.5 * math.log(model.noise), math.log(LEAST_NOISE)) for model in models]
            with torch.no_grad():
                learner.log_noise.copy_(torch.tensor(noises))
        return
    fixed = _logistic(torch.from_numpy(x), torch.from_numpy(y), network.outputs)
    intercepts = torch.zeros(min(network.effects, network.outputs), network.outputs, 1 + network.inputs)
    intercepts[:, :, 0] = CLASS_SPREAD * torch.eye(network.outputs)[: len(intercepts)]
    network.begin(fixed.float(), intercepts)


def _principal(models: list[Mixed], x: np.ndarray, count: int) -> Tensor:
    """The effects [C, outputs, 1 + inputs] along which predictions vary most, scaled so that φ ~ N(0, 1)."""
    found: list[tuple[float, int, np.ndarray]] = []
    for output, model in enumerate(models):
        Z = np.concatenate([np.ones((len(x), 1)), x[:, model.slopes]], 1)
        root = square_root(Z.T @ Z / len(Z))  # |rootᵀ b|² is the mean square of what effects b do to predictions
        sizes, directions = np.linalg.eigh(root.T @ model.spread @ root)
        for size, direction in zip(sizes, directions.T, strict=True):
            line = np.zeros(1 + x.shape[1])
            effect = np.linalg.solve(root.T, direction) * math.sqrt(max(size, 0.0))
            line[0], line[1 + model.slopes] = effect[0], effect[1:]
            found.append((float(size), output, line))
    found.sort(key=lambda entry: -entry[0])
    effects = np.zeros((min(count, len(found)), len(models), 1 + x.shape[1]))
    for place, (_, output, line) in enumerate(found[: len(effects)]):
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
