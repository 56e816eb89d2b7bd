"""The methods of `tables.py`: each is fitted on training tasks by one of its settings and answers for unseen tasks."""

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cavia
from cavia.tables.fitting import train_table
from cavia.tables.mixed import Mixed, fit_mixed
from cavia.tables.rivals import (
    Task,
    class_statistics,
    ridge,
    statistics,
    tasks_of,
    training_examples,
    training_rows,
)

Answer = Callable[[cavia.TaskBatch], Tensor]  # → [T, N, 1], or chances [T, N, classes]


def grid(**choices: Sequence[Any]) -> list[dict[str, Any]]:
    """All combinations; the first is called the method's default."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def by_task(answer: Callable[[Task], np.ndarray], classes: int = 1) -> Answer:
    def answers(batch: cavia.TaskBatch) -> Tensor:
        answered = np.stack([np.asarray(answer(task)).reshape(len(task.x), classes) for task in tasks_of(batch)])
        return torch.from_numpy(answered)

    return answers


def classes_of(family: cavia.Tasks) -> int:
    """How many, 0 for numbers."""
    assert family.encoding
    return family.encoding.outputs if family.encoding.is_classification else 0


def cavia_table(family: cavia.Tasks, **settings: Any) -> Answer:
    """As `cavia fit` trains it."""
    learner = train_table(family, progress=False, **settings)[0].learner

    def answers(batch: cavia.TaskBatch) -> Tensor:
        adapted = learner.adapt(batch.support_x, batch.support_y, batch.support_mask)
        answered = learner.predict(batch.query_x, adapted).double()
        return answered.softmax(-1) if classes_of(family) else answered

    return answers


def mean(family: cavia.Tasks) -> Answer:
    classes = classes_of(family)
    if not classes:
        return by_task(lambda task: np.full(len(task.x), task.known_y.mean()))
    overall = np.bincount(training_rows(family)[1], minlength=classes) / len(training_rows(family)[1])

    def shares(task: Task) -> np.ndarray:
        counts = np.bincount(task.known_y, minlength=classes) + 2 * overall
        return np.tile(counts / counts.sum(), (len(task.x), 1))

    return by_task(shares, classes)


def alone(family: cavia.Tasks, penalty: float) -> Answer:
    return by_task(lambda task: ridge(task, penalty))


def mixed_effects(family: cavia.Tasks, slopes: int | str) -> Answer:
    """A linear mixed model; an unseen group's effects are its best linear prediction (BLUP).

    slopes: how many inputs have a slope of each group, those that vary most within groups: by statsmodels, restricted
            maximum likelihood. "all": by our own expectation maximisation, which does not fail where statsmodels does.
    """
    if slopes == "all":
        x, y, starts = training_rows(family)
        fitted = fit_mixed(x, y[:, 0], starts)
        return by_task(lambda task: fitted.predict(task.x, task.known_x, task.known_y))
    return _by_statsmodels(family, int(slopes))


def _by_statsmodels(family: cavia.Tasks, slopes: int) -> Answer:
    from statsmodels.regression.mixed_linear_model import MixedLM

    x, y, starts = training_rows(family)
    owner = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(x))))
    chosen = varying(x, starts)[:slopes]
    kept = independent(x)
    design = np.concatenate([np.ones((len(x), 1)), x[:, kept]], 1)
    effects = np.concatenate([np.ones((len(x), 1)), x[:, chosen]], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = MixedLM(y[:, 0], design, owner, effects).fit(reml=True, method=["lbfgs"], maxiter=60)
    beta = np.zeros(1 + x.shape[1])
    beta[[0, *(1 + kept)]] = result.fe_params
    model = Mixed(beta, np.asarray(result.cov_re), float(result.scale), chosen)
    return by_task(lambda task: model.predict(task.x, task.known_x, task.known_y))


def varying(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Inputs by how much they vary within groups, the most first."""
    counts = np.diff(np.append(starts, len(x)))
    means = np.repeat(np.add.reduceat(x, starts, axis=0) / counts[:, None], counts, axis=0)
    within = np.square(x - means).mean(0)
    return np.argsort(-within, kind="stable")[: int((within > 1e-6).sum())]


def independent(x: np.ndarray) -> np.ndarray:
    """Inputs that are no linear combination of those before them and a constant."""
    kept: list[int] = []
    basis = np.ones((len(x), 1)) / len(x) ** 0.5
    for column in range(x.shape[1]):
        left = x[:, column] - basis @ (basis.T @ x[:, column])
        length = np.linalg.norm(left)
        if length > 1e-4 * np.sqrt(len(x)):
            kept.append(column)
            basis = np.concatenate([basis, left[:, None] / length], 1)
    return np.array(kept, dtype=int)


def gpboost(family: cavia.Tasks, leaves: int, rounds: int, rate: float, slopes: int) -> Answer:
    """Boosted trees with random effects of the group; an unseen group's effects are its BLUP, or Laplace's mode."""
    import gpboost as gpb

    x, y, starts = training_rows(family)
    owner = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(x))))
    chosen = varying(x, starts)[:slopes]
    binary = bool(classes_of(family))
    options: dict[str, Any] = {"group_rand_coef_data": x[:, chosen]} if slopes else {}
    if slopes:
        options["ind_effect_group_rand_coef"] = [1] * len(chosen)
    effects = gpb.GPModel(
        group_data=owner, likelihood="bernoulli_logit" if binary else "gaussian", num_parallel_threads=1, **options
    )
    settings = {"learning_rate": rate, "num_leaves": leaves, "min_data_in_leaf": 20, "verbose": -1, "num_threads": 1}
    data = gpb.Dataset(x, (y if binary else y[:, 0]).astype(float))
    booster = gpb.train(settings, data, num_boost_round=rounds, gp_model=effects)
    variances = np.asarray(effects.get_cov_pars(format_pandas=False), dtype=float).ravel()

    def fixed(rows: np.ndarray) -> np.ndarray:
        return np.asarray(booster.predict(rows, ignore_gp_model=True, pred_latent=True), dtype=float)

    if binary:
        return by_task(lambda task: _with_intercept(task, fixed, variances[-1]), 2)
    model = Mixed(np.zeros(1 + x.shape[1]), np.diag(variances[1:]), variances[0], chosen)

    def answer(task: Task) -> np.ndarray:
        return fixed(task.x) + model.predict(task.x, task.known_x, task.known_y - fixed(task.known_x))

    return by_task(answer)


def _with_intercept(task: Task, fixed: Callable[[np.ndarray], np.ndarray], variance: float) -> np.ndarray:
    """Chances of two classes: the group's intercept is the mode of its posterior, the chance is that at the mode."""
    known, effect = fixed(task.known_x), 0.0
    for _ in range(20):
        chance = 1 / (1 + np.exp(-known - effect))
        slope = (task.known_y - chance).sum() - effect / variance
        effect += slope / ((chance * (1 - chance)).sum() + 1 / variance)
    chance = 1 / (1 + np.exp(-fixed(task.x) - effect))
    return np.stack([1 - chance, chance], 1)


def lightgbm(family: cavia.Tasks, leaves: int, rounds: int, rate: float) -> Answer:
    """Boosted trees with statistics of the group's known rows as further inputs."""
    import lightgbm as lgb

    classes = classes_of(family)

    def features(task: Task) -> np.ndarray:
        return class_statistics(task, classes) if classes else statistics(task)

    inputs, targets = training_examples(family, 0, features)
    settings: dict[str, Any] = {"learning_rate": rate, "num_leaves": leaves, "verbose": -1, "num_threads": 1, "seed": 0}
    settings |= {"objective": "multiclass", "num_class": classes} if classes else {"objective": "regression"}
    booster = lgb.train(settings, lgb.Dataset(inputs, targets), num_boost_round=rounds)
    return by_task(lambda task: np.asarray(booster.predict(features(task))), classes or 1)


Method = tuple[Callable[..., Answer], list[dict[str, Any]]]
METHODS: dict[str, Method] = {
    "CAVIA": (cavia_table, [{}]),  # the defaults of `cavia fit`
    "mixed effects": (mixed_effects, grid(slopes=(0, 1, 2, 4, "all"))),
    "GPBoost": (
        gpboost,
        grid(leaves=(8,), rounds=(100, 300), rate=(0.02, 0.1), slopes=(0,))
        + grid(leaves=(8,), rounds=(100,), rate=(0.02,), slopes=(2,)),
    ),
    "LightGBM": (lightgbm, grid(leaves=(8, 31), rounds=(100, 300), rate=(0.05,))),
    "each group alone": (alone, grid(penalty=(0.1, 1.0, 10.0, 100.0))),
    "the group's mean": (mean, [{}]),
    "CAVIA by gradient": (cavia_table, grid(method=("gradient",), context=(5,), iterations=(1500,))),
}


def applies(method: str, classes: int) -> bool:
    """Whether a method answers for so many classes; 0: numbers."""
    if method == "GPBoost":
        return classes in (0, 2)
    return not classes or method not in ("mixed effects", "each group alone")
