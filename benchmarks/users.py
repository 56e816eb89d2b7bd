"""Per-user regression on real tables: CAVIA beside pooled, per-task and mixed-effects models.

    python benchmarks/users.py              # writes results/benchmarks/users.json and users.md

fertility: births per woman by year, a task per country (World Bank, in statsmodels).
wages:     log wages of 545 men over eight years, a task per man (Vella and Verbeek 1998, in linearmodels).

Tasks are split into training, validation and test. Every method sees the same columns and the same support points of a
task, and has its settings chosen on the validation tasks; test tasks choose nothing. The extra
`bench` brings the data.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cavia
from cavia.evaluation.evaluate import half_width
from cavia.tables.columns import Number
from cavia.tasks.batch import seeded_generator

DRAWS = 5  # of support points for each task that is scored
Predict = Callable[[cavia.TaskBatch], Tensor]  # → query predictions [T, Q, 1]


def fertility() -> cavia.Tasks:
    from statsmodels.datasets import fertility as source

    wide = source.load_pandas().data
    years = [name for name in wide.columns if name.isdigit()]
    long = wide.melt("Country Name", years, "year", "births").dropna()
    long["year"] = long["year"].astype(float)
    return _tasks(long, "Country Name", "births", ["year"], support=5)


def wages() -> cavia.Tasks:
    from linearmodels.datasets import wage_panel

    inputs = ["year", "exper", "hours", "married", "union", "educ", "black", "hisp", "occupation"]
    return _tasks(wage_panel.load(), "nr", "lwage", inputs, support=4, category=["occupation"])


def _tasks(table: Any, task: str, target: str, inputs: list[str], support: int, **options: Any) -> cavia.Tasks:
    shares = (0.6, 0.2, 0.2)
    return cavia.Tasks.from_table(table, task, target, inputs=inputs, splits=shares, support=support, **options)


def score(predict: Predict, family: cavia.Tasks, split: str) -> Tensor:
    """Mean squared error of every task of the split, in the target's standard deviations: [T]."""
    members = len(family.splits[split])
    generator, scores = seeded_generator(0, f"users {split}"), []
    for _ in range(DRAWS):
        batch = family.sample(members, family.support, family.query, generator, split)
        mask = torch.ones(batch.query_y.shape[:2]) if batch.query_mask is None else batch.query_mask.float()
        errors = (predict(batch) - batch.query_y).square().squeeze(-1) * mask
        scores.append((errors.sum(1) / mask.sum(1))[batch.attributes["task"].argsort()])
    return torch.stack(scores).mean(0)


def training_rows(family: cavia.Tasks) -> list[tuple[np.ndarray, np.ndarray]]:
    """x [n, F] and y [n] of each training task, in double precision."""
    rows = [slice(int(family.starts[i]), int(family.starts[i] + family.sizes[i])) for i in family.members["train"]]
    return [(family.x[part].double().numpy(), family.y[part, 0].double().numpy()) for part in rows]


def features(x: np.ndarray, degree: int, only_time: bool = False) -> np.ndarray:
    """A constant, the columns, and powers of the first one, time, up to `degree`: [n, F] → [n, features]."""
    powers = [(x[:, :1] / 2) ** power for power in range(1, degree + 1)]
    return np.concatenate([np.ones((len(x), 1)), *powers, *([] if only_time else [x[:, 1:]])], 1)


def by_task(model: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Predict:
    """A model of one task, (support x [K, F], y [K], query x [Q, F]) → [Q], for a batch of them."""

    def predict(batch: cavia.TaskBatch) -> Tensor:
        predictions = torch.zeros(batch.query_y.shape)
        for i in range(len(batch)):
            known = slice(None) if batch.support_mask is None else batch.support_mask[i]
            x, y = batch.support_x[i, known].double().numpy(), batch.support_y[i, known, 0].double().numpy()
            predictions[i, :, 0] = torch.from_numpy(model(x, y, batch.query_x[i].double().numpy()))
        return predictions

    return predict


def ridge(family: cavia.Tasks, degree: int, penalty: float) -> Predict:
    """Each task alone: ridge regression on its support points, its constant unpenalised."""

    def model(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        design = features(x, degree)[:, 1:]
        mean = design.mean(0)
        weights = np.linalg.solve(
            (design - mean).T @ (design - mean) + penalty * np.eye(design.shape[1]), (design - mean).T @ (y - y.mean())
        )
        return y.mean() + (features(new, degree)[:, 1:] - mean) @ weights

    return by_task(model)


def mixed_effects(family: cavia.Tasks, fixed: int, random: int) -> Predict:
    """y = Xβ + Zb + e with b ~ N(0, Ψ), by expectation maximisation; a new task's b is its best linear prediction.

    fixed, random: degree in time of the fixed part X (with all columns) and of the random part Z.
    """
    data = [(features(x, fixed), features(x, random, only_time=True), y) for x, y in training_rows(family)]
    XX, XZ, ZZ = (np.stack([a.T @ b for a, b in pairs]) for pairs in zip(*map(_products, data), strict=True))
    Xy, Zy = (np.stack([row[part].T @ row[2] for row in data]) for part in (0, 1))
    squares, width, count = sum(y @ y for _, _, y in data), ZZ.shape[-1], sum(len(y) for _, _, y in data)
    effects, spread, noise = np.zeros_like(Zy), np.eye(width), 0.5  # b of each task, Ψ, the variance of e
    gram = XX.sum(0) + 1e-8 * np.eye(XX.shape[-1])
    for _ in range(200):
        beta = np.linalg.solve(gram, (Xy - np.einsum("tij,tj->ti", XZ, effects)).sum(0))
        covariance = np.linalg.inv(ZZ / noise + np.linalg.inv(spread + 1e-9 * np.eye(width)))  # of each task's b
        effects = np.einsum("tij,tj->ti", covariance, Zy - np.einsum("tji,j->ti", XZ, beta)) / noise
        moments = covariance + np.einsum("ti,tj->tij", effects, effects)
        fitted = Xy.sum(0) @ beta + np.einsum("ti,ti->", Zy, effects)
        cross = np.einsum("i,tij,tj->", beta, XZ, effects)
        error = squares - 2 * fitted + beta @ XX.sum(0) @ beta + 2 * cross + np.einsum("tij,tji->", ZZ, moments)
        spread, noise = moments.mean(0), error / count

    def model(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        Z = features(x, random, only_time=True)
        inverse = np.linalg.inv(spread + 1e-9 * np.eye(width))
        effect = np.linalg.solve(Z.T @ Z / noise + inverse, Z.T @ (y - features(x, fixed) @ beta) / noise)
        return features(new, fixed) @ beta + features(new, random, only_time=True) @ effect

    return by_task(model)


def _products(row: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    X, Z, _ = row
    return (X, X), (X, Z), (Z, Z)


def pooled(family: cavia.Tasks, width: int, decay: float, iterations: int) -> Predict:
    """One network for all tasks, which no task changes."""
    torch.manual_seed(0)
    network = cavia.MLP(family.x.shape[1], 1, (width, width), context=0)
    optimiser = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, iterations)
    x, y = (torch.from_numpy(np.concatenate(part)).float() for part in zip(*training_rows(family), strict=True))
    generator, nothing = torch.Generator().manual_seed(0), torch.zeros(1, 0)
    for _ in range(iterations):
        rows = torch.randint(len(x), (256,), generator=generator)
        loss = (network(x[None, rows], nothing)[0, :, 0] - y[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return lambda batch: network(batch.query_x, torch.zeros(len(batch), 0)).detach()


def context(family: cavia.Tasks, parameters: int, inner_lr: float, iterations: int) -> Predict:
    """CAVIA, as `cavia fit` trains it."""
    torch.manual_seed(0)
    network = cavia.MLP(family.x.shape[1], 1, (64, 64), context=parameters)
    learner = cavia.CAVIA(network, "mse", inner_lr, inner_steps=2)
    query = min(family.query, 20)
    cavia.fit(
        learner,
        family,
        iterations,
        query=query,
        outer=cavia.Adam(cooldown=0.3),
        validation=cavia.Validation(len(family.splits["val"]), iterations // 3, family.query),
        progress=False,
    )
    return lambda batch: learner.predict(
        batch.query_x, learner.adapt(batch.support_x, batch.support_y, batch.support_mask)
    ).detach()


def methods(iterations: int) -> dict[str, tuple[Callable[..., Predict], list[dict[str, Any]]]]:
    """Method → how it is fitted, and the settings that validation chooses from."""
    return {
        "pooled network": (pooled, grid(width=(64, 128), decay=(0.0, 0.1), iterations=(2 * iterations,))),
        "each task alone, ridge": (
            ridge,
            grid(degree=(0, 1, 2, 3, 4), penalty=(1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)),
        ),
        "mixed effects": (mixed_effects, grid(fixed=(1, 3, 5, 7), random=(0, 1, 2, 3, 4, 5, 6))),
        "CAVIA": (context, grid(parameters=(3, 8), inner_lr=(0.3, 1.0), iterations=(iterations,))),
    }


def grid(**choices: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def measure(family: cavia.Tasks, iterations: int, only: Sequence[str]) -> list[dict[str, Any]]:
    """For each method: the chosen settings and the root mean squared error on the test tasks, in the target's unit."""
    target = family.encoding.target if family.encoding else None
    assert isinstance(target, Number)
    unit, rows = target.scale, []
    for name, (build, settings) in methods(iterations).items():
        if name not in only:
            continue
        begin = time.process_time()
        tried = [
            (score(predict := build(family, **one), family, "val").mean().item(), one, predict) for one in settings
        ]
        _, chosen, best = min(tried, key=lambda entry: entry[0])
        test = score(best, family, "test").sqrt() * unit
        rows.append(
            {
                "method": name,
                "rmse": test.mean().item(),
                "interval": half_width(test).item(),
                "chosen": chosen,
                "tried": len(settings),
                "processor_seconds": round(time.process_time() - begin, 1),
                "scores": [round(value, 5) for value in test.tolist()],
            }
        )
        print(f"{name}: {rows[-1]['rmse']:.4f} ± {rows[-1]['interval']:.4f} {chosen}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1500, help="outer steps of CAVIA (default: 1500)")
    parser.add_argument("--data", nargs="*", default=["fertility", "wages"], choices=["fertility", "wages"])
    known = list(methods(1))
    parser.add_argument("--methods", nargs="*", default=known, choices=known, help="leave the others as they are")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/users.json"))
    options = parser.parse_args()
    result = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.data:
        family = {"fertility": fertility, "wages": wages}[name]()
        counts = {split: len(chosen) for split, chosen in family.splits.items()}
        print(f"{name}: {counts} tasks, {len(family.x)} rows, {family.support} known points", flush=True)
        before = {row["method"]: row for row in result.get(name, {}).get("methods", [])}
        rows = before | {row["method"]: row for row in measure(family, options.iterations, options.methods)}
        result[name] = {
            "tasks": counts,
            "rows": len(family.x),
            "support": family.support,
            "methods": [rows[method] for method in known if method in rows],
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(page(result))


def page(result: dict[str, Any]) -> str:
    """The result as Markdown, with paired differences to CAVIA over the test tasks."""
    lines = ["# Per-user regression", "", "`python benchmarks/users.py`; see there for the data and the methods.", ""]
    for name, table in result.items():
        ours = torch.tensor(next(row["scores"] for row in table["methods"] if row["method"] == "CAVIA"))
        lines += [
            f"**{name}**: {table['tasks']['test']} unseen tasks, {table['support']} known points each, root mean "
            f"squared error in the target's unit, mean over tasks ± 95 %. "
            "Settings are those with the lowest error on the validation tasks, of as many as were tried.",
            "",
            "| method | RMSE | minus CAVIA's, task by task | chosen | tried |",
            "|---|---|---|---|---|",
        ]
        for row in table["methods"]:
            gap = torch.tensor(row["scores"]) - ours
            paired = "–" if row["method"] == "CAVIA" else f"{gap.mean():+.4f} ± {half_width(gap):.4f}"
            chosen = ", ".join(f"{key} {value}" for key, value in row["chosen"].items())
            error = f"{row['rmse']:.4f} ± {row['interval']:.4f}"
            lines.append(f"| {row['method']} | {error} | {paired} | {chosen} | {row['tried']} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
