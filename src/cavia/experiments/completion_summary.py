"""What the completion experiments show: Table 2 and the faces of Figure 5, from the results of their cells."""

from cavia.evaluation.verdict import verdict
from cavia.experiments.base import Result, Settings
from cavia.experiments.curves import curve, x_label
from cavia.experiments.seeds import mean_over_seeds

WAVE_BASIS = "wave basis"  # beyond the paper: a better network at the same number of context parameters
METHODS = ("CAVIA", "MAML", "CNP", WAVE_BASIS)
PAPER_TABLE2: dict[tuple[str, str], dict[int, float]] = {
    ("CAVIA", "random"): {10: 0.037, 100: 0.014, 1000: 0.006},
    ("CAVIA", "ordered"): {10: 0.053, 100: 0.047, 1000: 0.006},
    ("MAML", "random"): {10: 0.040, 100: 0.017, 1000: 0.006},
    ("MAML", "ordered"): {10: 0.055, 100: 0.047, 1000: 0.007},
    ("CNP", "random"): {10: 0.039, 100: 0.016, 1000: 0.009},
    ("CNP", "ordered"): {10: 0.057, 100: 0.047, 1000: 0.021},
}


def _cell(group: list[Result], method: str, order: str, k: int) -> Result | None:
    """Our mean over seeds beside the paper's number; the wave basis, which is not in it, beside CAVIA's."""
    group = [r for r in group if r["known"] == k]
    lost = not group or any("diverged" in r for r in group)
    if lost:
        return None
    mean, interval = (mean_over_seeds(r[name][str(k)] for r in group) for name in ("mse", "interval"))
    cell: Result = {"ours": {"mean": mean, "interval": interval}, "paper": None, "note": _which_model(group)}
    known = PAPER_TABLE2["CAVIA" if method == WAVE_BASIS else method, order].get(k)
    if known is not None and not group[0]["data"]["source"].startswith("synthetic"):
        cell["paper"] = {"mean": known, "interval": None}
        cell["verdict"] = verdict(mean, interval, known, None, higher_is_better=False, digits=3)
    return cell


def _which_model(group: list[Result]) -> str:
    return ", ".join(f"best at iteration {r['best_iteration']} of {r['iterations']}" for r in group)


def table2_summary(settings: Settings, results: list[Result]) -> Result:
    columns = [(order, k) for order in settings.orders for k in settings.shots]
    rows: list[Result] = []
    for method in settings.methods:
        of_order = {
            order: [r for r in results if r["method"] == method and r["order"] == order] for order in settings.orders
        }
        rows.append({"label": method, "cells": [_cell(of_order[o], method, o, k) for o, k in columns]})
    table = {
        "caption": "Pixel-wise MSE of whole test pictures, 95 % interval over pictures. Each number of known pixels "
        f"has a model of its own. {_budget(settings)} batches of {settings.tasks_per_batch} pictures"
        f"{_wave_basis(settings)}.",
        "metric": "MSE",
        "higher_is_better": False,
        "digits": 3,
        "column_title": "Known pixels",
        "columns": [f"{k} {order}" for order, k in columns],
        "rows": rows,
    }
    curves = [_curves(order, settings, [r for r in results if r["order"] == order]) for order in settings.orders]
    return {"tables": [table], "figures": curves, "claims": _claims(columns, rows)}


def _budget(settings: Settings) -> str:
    if settings.minutes:
        return f"{settings.minutes:g} CPU minutes of training for each model (the notes say how many iterations),"
    return f"{settings.iterations:,} iterations,"


def _wave_basis(settings: Settings) -> str:
    if WAVE_BASIS not in settings.methods:
        return ""
    return (
        f" ({settings.wave_tasks_per_batch} for the wave basis: functions of the place, weighted by the context, which "
        "adapts by one Gauss–Newton step; its row stands beside the paper's CAVIA)"
    )


def _curves(order: str, settings: Settings, results: list[Result]) -> Result:
    """The validation error of every method while it trained, of the first seed."""
    trained = [r for r in results if r["seed"] == 0 and "curve" in r]
    labels = [f"{r['method']}, {r['known']} pixels" for r in trained]
    return {
        "name": f"table2-{order}-curves",
        "caption": f"Validation error during training, {order} pixels, seed 0.",
        "kind": "lines",
        "x_label": x_label(settings),
        "y_label": "MSE",
        "x_scale": "linear",
        "y_scale": "log",
        "series": [curve(r, label, settings) for r, label in zip(trained, labels, strict=True)],
    }


def _claims(columns: list[tuple[str, int]], rows: list[Result]) -> list[Result]:
    means = {row["label"]: [cell and cell["ours"]["mean"] for cell in row["cells"]] for row in rows}
    ours = means.get("CAVIA", [])
    claims = []
    for other in ("MAML", "CNP"):
        pairs = [
            (f"{k} {order}", a, b)
            for (order, k), a, b in zip(columns, ours, means.get(other, []), strict=False)
            if a is not None and b is not None
        ]
        if pairs:
            claims.append(
                {
                    "claim": f"To three digits, CAVIA is at least as good as {other} in every cell, in the same time.",
                    "holds": all(round(a, 3) <= round(b, 3) for _, a, b in pairs),
                    "evidence": "; ".join(f"{name}: {a:.4f} against {b:.4f}" for name, a, b in pairs),
                }
            )
    against_paper = [
        (f"{k} {order}", cell["ours"]["mean"], cell["paper"]["mean"])
        for row in rows
        for (order, k), cell in zip(columns, row["cells"], strict=True)
        if row["label"] == WAVE_BASIS and cell and cell["paper"]
    ]
    if against_paper:
        claims.append(
            {
                "claim": "The wave basis, with as many context parameters, beats the paper's CAVIA in every cell.",
                "holds": all(a < b for _, a, b in against_paper),
                "evidence": "; ".join(f"{name}: {a:.4f} against {b:.3f}" for name, a, b in against_paper),
            }
        )
    return claims


def faces_summary(settings: Settings, results: list[Result]) -> Result:
    trained = [r for r in results if "diverged" not in r]
    if not trained:
        return {"claims": [{"claim": "Faces are completed.", "holds": False, "evidence": results[0]["diverged"]}]}
    columns = [str(k) for k in settings.shots]
    first = _by_known(trained, "known")
    completed = {
        method: _by_known([r for r in trained if r["method"] == method], "completed")
        for method in dict.fromkeys(r["method"] for r in trained)
    }
    panels = []
    for face, truth in enumerate(trained[0]["pictures"]["truth"]):
        top = {"label": "known pixels", "pictures": [first[k][face] for k in columns]}
        below = [
            {"label": method, "pictures": [pictures[k][face] for k in columns]}
            for method, pictures in completed.items()
            if all(k in pictures for k in columns)
        ]
        panels.append({"title": f"face {face + 1}", "truth": truth, "rows": [top, *below]})
    figure = {
        "name": "fig5",
        "caption": "Test pictures completed from random pixels: the truth, the known pixels, and each method's "
        "completion, by the models of Table 2.",
        "kind": "pictures",
        "columns": [f"{k} pixels" for k in columns],
        "panels": panels,
    }
    return {"figures": [figure], "claims": []}


def _by_known(results: list[Result], name: str) -> dict[str, list[str]]:
    """Number of known pixels → the pictures of that name, whichever of the results has them."""
    return {k: pictures for result in results for k, pictures in result["pictures"][name].items()}
