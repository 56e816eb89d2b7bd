"""Summaries of the completion experiments, by the rules of results/claims.md."""

from collections.abc import Iterator

from cavia.paper.completion.training import WAVE_BASIS, FacesSettings, Table2Settings
from cavia.paper.published import TABLE2
from cavia.paper.schema import CellResult, Claim, PicturePanel, PictureRow, Pictures, Row, Summary, TableCell
from cavia.paper.showing import cell, iterations, learning_curves, table
from cavia.paper.statistics import Scores, below, difference, grouped, scores, text

Kind = tuple[str, str, int]  # method, order, known pixels


def table2_summary(settings: Table2Settings, results: list[CellResult]) -> Summary:
    groups = grouped(results, lambda one: (one["method"], one["order"], one["known"]))
    columns = [(order, k) for order in settings.orders for k in settings.shots]
    rows: list[Row] = [
        {"label": method, "cells": [_cell(groups.get((method, *column), []), method, *column) for column in columns]}
        for method in settings.methods
    ]
    waves = (
        " The wave basis is a sum of functions of position, weighted by the context, which adapts by one Gauss–Newton "
        f"step; it trains on batches of {settings.wave_tasks_per_batch} and is compared with the paper's CAVIA."
    )
    caption = (
        "Pixel MSE over whole test pictures. Each number of known pixels has its own model. Notes give the length of "
        f"training, in batches of {settings.tasks_per_batch} pictures."
        + (waves if WAVE_BASIS in settings.methods else "")
    )
    names = [f"{k} {order}" for order, k in columns]
    curves = [
        learning_curves(
            f"table2-{order}-curves",
            f"Validation error during training, {order} pixels, seed 0.",
            "MSE",
            {
                f"{one['method']}, {one['known']} pixels": one
                for one in results
                if one["order"] == order and one["seed"] == 0 and one.curve
            },
            log=True,
        )
        for order in settings.orders
    ]
    return {
        "tables": [table(caption, "MSE", 3, "Known pixels", names, rows)],
        "figures": [*curves],
        "claims": [*_claims({kind: scores(group, "mse") for kind, group in groups.items()}, columns)],
    }


def _cell(group: list[CellResult], method: str, order: str, k: int) -> TableCell | None:
    """Our number beside the paper's; the wave basis, which the paper lacks, beside CAVIA's."""
    if not group:
        return None
    is_real = not group[0].probes["data"]["source"].startswith("synthetic")
    known = TABLE2["CAVIA" if method == WAVE_BASIS else method, order].get(k) if is_real else None
    return cell(scores(group, "mse"), None if known is None else (known, None), 3, iterations(group))


def _claims(errors: dict[Kind, Scores], columns: list[tuple[str, int]]) -> Iterator[Claim]:
    for other in ("MAML", "CNP"):
        pairs = {
            f"{k} {order}": difference(errors["CAVIA", order, k], errors[other, order, k])
            for order, k in columns
            if ("CAVIA", order, k) in errors and (other, order, k) in errors
        }
        if pairs:
            won = sum(map(below, pairs.values()))
            yield {
                "claim": f"CAVIA outperforms {other} in most settings.",
                "holds": 2 * won > len(pairs),
                "evidence": f"{won} of {len(pairs)}; CAVIA − {other} on the same pictures: "
                + "; ".join(f"{name}: {text(gap, 4)}" for name, gap in pairs.items()),
            }
    against_paper = {
        f"{k} {order}": (float(errors[WAVE_BASIS, order, k].mean()), TABLE2["CAVIA", order][k])
        for order, k in columns
        if (WAVE_BASIS, order, k) in errors and k in TABLE2["CAVIA", order]
    }
    if against_paper:
        yield {
            "claim": "With as many context parameters, the wave basis beats the paper's CAVIA in every cell.",
            "holds": all(a < b for a, b in against_paper.values()),
            "evidence": "; ".join(f"{name}: {a:.4f} against {b:.3f}" for name, (a, b) in against_paper.items()),
        }


def faces_summary(settings: FacesSettings, results: list[CellResult]) -> Summary:
    trained = [one for one in results if not one.diverged]
    if not trained:
        return {"claims": [{"claim": "Faces are completed.", "holds": False, "evidence": results[0].diverged}]}
    first = {(one["method"], one["known"]): one for one in reversed(trained)}  # the first seed of each
    methods = [m for m in settings.methods if all((m, k) in first for k in settings.shots)]
    known = {one["known"]: one.probes["known"] for one in trained}
    shots = [k for k in settings.shots if k in known]

    def panel(face: int) -> PicturePanel:
        rows: list[PictureRow] = [{"label": "known pixels", "pictures": [known[k][face] for k in shots]}]
        rows += [{"label": m, "pictures": [first[m, k].probes["completed"][face] for k in shots]} for m in methods]
        return {"title": f"face {face + 1}", "truth": trained[0].probes["truth"][face], "rows": rows}

    seeds = {one["seed"] for one in trained}
    figure: Pictures = {
        "name": "fig5",
        "caption": "Test pictures completed from random pixels: the original, the known pixels, and each method's "
        f"completion, with the models of Table 2{f', seed {min(seeds)} of {len(seeds)}' if len(seeds) > 1 else ''}.",
        "kind": "pictures",
        "columns": [f"{k} pixels" for k in shots],
        "panels": [panel(face) for face in range(len(trained[0].probes["truth"]))],
    }
    return {"figures": [figure], "claims": []}
