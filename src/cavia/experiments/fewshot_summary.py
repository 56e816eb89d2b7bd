"""What the few-shot experiments show: Table 3, Omniglot, learning curves and what the context encodes."""

from itertools import product
from typing import Any

from cavia.evaluation.verdict import verdict
from cavia.experiments.base import Result, Settings
from cavia.experiments.curves import curve, x_label
from cavia.experiments.seeds import mean_over_seeds

PAPER_ITERATIONS = 60_000
# Method and filters → accuracy and half the 95 % interval for 1 and 5 shots, in percent, as Table 3 prints them.
PAPER_TABLE3: dict[tuple[str, int], dict[int, tuple[float, float | None]]] = {
    ("CAVIA", 32): {1: (47.24, 0.65), 5: (59.05, 0.54)},
    ("CAVIA", 128): {1: (49.84, 0.68), 5: (64.63, 0.54)},
    ("CAVIA", 512): {1: (51.82, 0.65), 5: (65.85, 0.55)},
    ("CAVIA (first order)", 512): {1: (49.92, 0.68), 5: (63.59, 0.57)},
    ("MAML", 32): {1: (48.07, 1.75), 5: (63.15, 0.91)},
    ("MAML", 64): {1: (44.70, 1.69), 5: (61.87, 0.93)},
}
# Rows that it quotes from other papers, whose networks and budgets differ; they stand below ours and beside none.
QUOTED: dict[str, dict[int, tuple[float, float | None]]] = {
    "Matching Networks, quoted": {1: (46.6, None), 5: (60.0, None)},
    "Meta-LSTM, quoted": {1: (43.44, 0.77), 5: (60.60, 0.71)},
    "ProtoNets, quoted": {1: (46.61, 0.78), 5: (65.77, 0.70)},
    "Meta-SGD, quoted": {1: (50.47, 1.87), 5: (64.03, 0.94)},
    "Reptile, quoted": {1: (49.97, 0.32), 5: (65.99, 0.58)},
    "MT-Net, quoted": {1: (51.70, 1.84)},
    "VERSA, quoted": {1: (53.40, 1.82), 5: (67.37, 0.86)},
}


def table3_summary(settings: Settings, results: list[Result]) -> Result:
    columns = [(ways, shots) for ways in settings.ways for shots in settings.shots]
    rows = _rows(settings, results, columns, PAPER_TABLE3)
    if not _is_synthetic(results):
        rows += [
            {"label": name, "cells": [_quoted(known, *column) for column in columns]} for name, known in QUOTED.items()
        ]
    table = _table(settings, columns, rows, "Rows without a number of ours are quoted in the paper from others.")
    return {
        "tables": [table],
        "figures": [*_curves("table3", settings, results, PAPER_TABLE3), *_probes("table3", results)],
        "claims": [*_compared(settings, results), *_wider_is_better(settings, results), *_context_claims(results)],
    }


def omniglot_summary(settings: Settings, results: list[Result]) -> Result:
    columns = [(ways, shots) for ways in settings.ways for shots in settings.shots]
    note = "Every character counts as four classes, turned by 0, 90, 180 and 270 degrees. The paper has no such table."
    table = _table(settings, columns, _rows(settings, results, columns, {}), note)
    return {
        "tables": [table],
        "figures": [*_curves("omniglot", settings, results, {}), *_probes("omniglot", results)],
        "claims": [*_above(results, 97.0), *_context_claims(results)],
    }


def _is_synthetic(results: list[Result]) -> bool:
    return any(r["data"]["source"].startswith("synthetic") for r in results if "data" in r)


def _label(method: str, filters: int) -> str:
    return f"{method} ({filters})"


def _of(results: list[Result], **choices: object) -> list[Result]:
    """The results with these choices, if none of them diverged."""
    found = [r for r in results if all(r[name] == value for name, value in choices.items())]
    return [] if any("diverged" in r for r in found) else found


def _mean(group: list[Result], name: str) -> float:
    """In percent."""
    return 100 * mean_over_seeds(r[name] for r in group)


def _rows(settings: Settings, results: list[Result], columns: list[tuple[int, int]], paper: dict) -> list[Result]:
    known = {} if _is_synthetic(results) else paper
    rows = []
    for filters in settings.filters:
        for method in settings.methods:
            groups = [_of(results, method=method, filters=filters, ways=ways, shots=shots) for ways, shots in columns]
            published = [known.get((method, filters), {}).get(k) if ways == 5 else None for ways, k in columns]
            cells = [_cell(group, one, bool(known)) for group, one in zip(groups, published, strict=True)]
            rows.append({"label": _label(method, filters), "cells": cells})
    return rows


def _cell(group: list[Result], published: tuple[float, float | None] | None, is_of_paper: bool) -> Result | None:
    """Our mean over seeds, beside the paper's number where there is one."""
    if not group:
        return None
    ours = {"mean": _mean(group, "accuracy"), "interval": _mean(group, "interval")}
    cell: Result = {"ours": ours, "paper": None, "note": "; ".join(_training(r, is_of_paper) for r in group)}
    if published:
        cell["paper"] = {"mean": published[0], "interval": published[1]}
        cell["verdict"] = verdict(ours["mean"], ours["interval"], *published, higher_is_better=True, digits=2)
    return cell


def _quoted(known: dict[int, tuple[float, float | None]], ways: int, shots: int) -> Result | None:
    if ways != 5 or shots not in known:
        return None
    mean, interval = known[shots]
    return {"ours": None, "paper": {"mean": mean, "interval": interval}}


def _training(result: Result, is_of_paper: bool) -> str:
    per_iteration = result["seconds"] / result["iterations"]
    done = f"best at iteration {result['best_iteration']} of {result['iterations']}, {per_iteration:.2g} s each"
    hours = per_iteration * PAPER_ITERATIONS / 3600
    return f"{done}; {PAPER_ITERATIONS:,} would take {hours:.1f} h" if is_of_paper else done


def _table(settings: Settings, columns: list[tuple[int, int]], rows: list[Result], note: str) -> Result:
    budget = f"{settings.minutes:g} minutes of training for each cell" if settings.minutes else ""
    budget = budget or f"{settings.iterations:,} iterations"
    return {
        "caption": f"Accuracy in percent on {settings.test_tasks} tasks of unseen classes, 95 % interval over tasks; "
        f"in brackets the filters of each convolution. {budget}; batch norm by statistics of “{settings.norm}”. {note}",
        "metric": "accuracy",
        "higher_is_better": True,
        "digits": 2,
        "column_title": "Task",
        "columns": [f"{ways}-way {shots}-shot" for ways, shots in columns],
        "rows": rows,
    }


def _curves(name: str, settings: Settings, results: list[Result], paper: dict) -> list[Result]:
    """Validation accuracy of the first seed while training, for every kind of task, and the paper's final CAVIA."""
    figures = []
    for ways in settings.ways:
        for shots in settings.shots:
            group = [r for r in results if (r["ways"], r["shots"], r["seed"]) == (ways, shots, 0)]
            labels = [_label(r["method"], r["filters"]) for r in group]
            series = [curve(r, label, settings, 100) for r, label in zip(group, labels, strict=True) if "curve" in r]
            final = paper.get(("CAVIA", settings.filters[0]), {}).get(shots)
            if final and ways == 5 and series and not _is_synthetic(results):
                ends = [0.0, max(max(one["x"]) for one in series)]
                label = f"the paper's {_label('CAVIA', settings.filters[0])}, final, on test"
                series.append({"label": label, "x": ends, "y": [final[0]] * 2, "interval": None})
            if series:
                figures.append(
                    {
                        "name": f"{name}-{ways}-way-{shots}-shot",
                        "caption": f"Accuracy on validation classes during training, {ways}-way {shots}-shot.",
                        "kind": "lines",
                        "x_label": x_label(settings),
                        "y_label": "accuracy (%)",
                        "x_scale": "linear",
                        "y_scale": "linear",
                        "series": series,
                    }
                )
    return figures


def _probes(name: str, results: list[Result]) -> list[Result]:
    """Where the contexts of some tasks lie, for the first cell that has them."""
    found = next((r for r in results if "plane" in r), None)
    if found is None:
        return []
    x, y = zip(*found["plane"], strict=True)
    panel = {
        "title": f"{_label(found['method'], found['filters'])}, {found['ways']}-way {found['shots']}-shot",
        "x": list(x),
        "y": list(y),
        "colour": [float(task) for task in found["task"]],
        "colour_label": "task",
    }
    return [
        {
            "name": f"{name}-contexts",
            "caption": "Contexts of unseen tasks, each adapted to from several sets of pictures of its classes: the "
            "plane of their two main directions, coloured by task.",
            "kind": "scatter",
            "x_label": "first component",
            "y_label": "second component",
            "panels": [panel],
        }
    ]


def _context_claims(results: list[Result]) -> list[Result]:
    found = [r for r in results if "agreement" in r]
    if not found:
        return []
    shares = (
        f"{_label(r['method'], r['filters'])} {r['ways']}-way {r['shots']}-shot: {r['agreement']:.0%} "
        f"(by chance {r['chance']:.0%})"
        for r in found
    )
    return [
        {
            "claim": "The context tells tasks apart: the nearest context is one of the same task, from other pictures, "
            "more than twice as often as by chance.",
            "holds": all(r["agreement"] > 2 * r["chance"] for r in found),
            "evidence": "; ".join(shares),
        }
    ]


def _compared(settings: Settings, results: list[Result]) -> list[Result]:
    """CAVIA beside MAML and its own first-order variant, at each width."""
    claims = []
    for other in ("MAML", "CAVIA (first order)"):
        pairs = []
        for filters, ways, shots in product(settings.filters, settings.ways, settings.shots):
            kind: dict[str, Any] = {"filters": filters, "ways": ways, "shots": shots}
            ours, theirs = _of(results, method="CAVIA", **kind), _of(results, method=other, **kind)
            if ours and theirs:
                a, b = _mean(ours, "accuracy"), _mean(theirs, "accuracy")
                # Of two independent means; both are of the same tasks, so the true width is smaller.
                width = (_mean(ours, "interval") ** 2 + _mean(theirs, "interval") ** 2) ** 0.5
                pairs.append((f"{filters} filters, {ways}-way {shots}-shot", a, b, width))
        if pairs:
            claims.append(
                {
                    "claim": f"CAVIA is at least as good as {other}, up to the intervals.",
                    "holds": all(a >= b - width for _, a, b, width in pairs),
                    "evidence": "; ".join(f"{name}: {a:.2f} against {b:.2f}" for name, a, b, _ in pairs),
                }
            )
    return claims


def _wider_is_better(settings: Settings, results: list[Result]) -> list[Result]:
    claims = []
    widths = sorted(settings.filters)
    for ways, shots in product(settings.ways, settings.shots):
        groups = [_of(results, method="CAVIA", filters=width, ways=ways, shots=shots) for width in widths]
        if len(widths) > 1 and all(groups):
            means = [_mean(group, "accuracy") for group in groups]
            claims.append(
                {
                    "claim": f"CAVIA gets better with more filters, {ways}-way {shots}-shot.",
                    "holds": means == sorted(means),
                    "evidence": ", ".join(f"{w}: {m:.2f}" for w, m in zip(widths, means, strict=True)),
                }
            )
    return claims


def _above(results: list[Result], percent: float) -> list[Result]:
    """For the easiest task of Omniglot, which every method should solve."""
    found = [r for r in results if r["ways"] == 5 and r["shots"] == 1]
    if not found or _is_synthetic(results):
        return []
    percents = [100 * r["accuracy"] if "accuracy" in r else None for r in found]
    return [
        {
            "claim": f"Every method is above {percent:g} % on 5-way 1-shot tasks of unseen characters.",
            "holds": all(value is not None and value > percent for value in percents),
            "evidence": "; ".join(
                f"{_label(r['method'], r['filters'])}: {'diverged' if value is None else f'{value:.2f}'}"
                for r, value in zip(found, percents, strict=True)
            ),
        }
    ]
