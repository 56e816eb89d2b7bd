"""Summaries of the few-shot experiments, by the rules of results/claims.md."""

from collections.abc import Iterator
from itertools import product

from cavia.paper.fewshot.training import FewShotSettings
from cavia.paper.published import QUOTED, TABLE3, TABLE3_ITERATIONS
from cavia.paper.schema import CellResult, Claim, Lines, Row, Scatter, Summary, TableCell
from cavia.paper.showing import cell, iterations, learning_curves, plane, table
from cavia.paper.statistics import Scores, above, difference, estimate, grouped, scores, text

Kind = tuple[str, int, int, int]  # method, filters, ways, shots
ABOVE_CHANCE = 0.05  # methods are only compared if both exceed chance by this much


def table3_summary(settings: FewShotSettings, results: list[CellResult]) -> Summary:
    real = not _is_synthetic(results)
    note = " Rows marked “quoted” are results of others, as quoted in the paper." if real else ""
    summary = _summary("table3", settings, results, TABLE3 if real else {}, note)
    if real:
        columns = list(product(settings.ways, settings.shots))
        summary["tables"][0]["rows"] += [
            {"label": name, "cells": [_quoted(known, *column) for column in columns]} for name, known in QUOTED.items()
        ]
    accuracies = _accuracies(results)
    summary["claims"] = [*_with_maml(accuracies), *_width(accuracies), *summary["claims"]]
    return summary


def omniglot_summary(settings: FewShotSettings, results: list[CellResult]) -> Summary:
    note = " Each character counts as four classes, one per rotation by 90°. The paper has no such table."
    summary = _summary("omniglot", settings, results, {}, note)
    summary["claims"] = [*_all_above(results, 0.97), *summary["claims"]]
    return summary


def _summary(name: str, settings: FewShotSettings, results: list[CellResult], published: dict, note: str) -> Summary:
    groups = grouped(results, _kind)
    columns = list(product(settings.ways, settings.shots))
    rows: list[Row] = [
        {
            "label": f"{method} ({filters})",
            "cells": [_cell(groups.get((method, filters, *column), []), published) for column in columns],
        }
        for filters in settings.filters
        for method in settings.methods
    ]
    caption = (
        f"Accuracy (%) on {settings.test_tasks} tasks of unseen classes, with pictures of {settings.image} × "
        f"{settings.image} pixels. In brackets: filters per convolution. Batch-norm statistics: “{settings.norm}”. "
        f"Notes give the length of training.{note}"
    )
    names = [f"{ways}-way {shots}-shot" for ways, shots in columns]
    probed = [one for one in results if "plane" in one.probes]
    return {
        "tables": [table(caption, "accuracy", 2, "Task", names, rows, higher=True)],
        "figures": [*_curves(name, results), *(_contexts(name, one) for one in probed[:1])],
        "claims": [*_context_claims(results)],
    }


def _kind(one: CellResult) -> Kind:
    return one["method"], one["filters"], one["ways"], one["shots"]


def _label(one: CellResult) -> str:
    return f"{one['method']} ({one['filters']})"


def _is_synthetic(results: list[CellResult]) -> bool:
    return any(one.probes["data"]["source"].startswith("synthetic") for one in results if not one.diverged)


def _accuracies(results: list[CellResult]) -> dict[Kind, Scores]:
    return {kind: scores(group, "accuracy") for kind, group in grouped(results, _kind).items()}


def _cell(
    group: list[CellResult], published: dict[tuple[str, int], dict[int, tuple[float, float | None]]]
) -> TableCell | None:
    """Our number beside the paper's, if there is one, and the time that the paper's budget would take."""
    if not group:
        return None
    method, filters, ways, shots = _kind(group[0])
    known = published.get((method, filters), {}).get(shots) if ways == 5 else None
    each = sum(one.seconds for one in group) / sum(one.iterations for one in group)
    note = f"{iterations(group)}, {each:.2g} s each"
    if published:
        note += f"; {TABLE3_ITERATIONS:,} take {each * TABLE3_ITERATIONS / 3600:.1f} h"
    return cell(scores(group, "accuracy"), known, 2, note, higher_is_better=True, unit=100)


def _quoted(known: dict[int, tuple[float, float | None]], ways: int, shots: int) -> TableCell | None:
    if ways != 5 or shots not in known:
        return None
    mean, interval = known[shots]
    return {"ours": None, "paper": {"mean": mean, "interval": interval}}


def _curves(name: str, results: list[CellResult]) -> Iterator[Lines]:
    """Validation accuracy of the first seed during training, for every kind of task."""
    kinds = dict.fromkeys((one["ways"], one["shots"]) for one in results)
    for ways, shots in kinds:
        runs = {
            _label(one): one
            for one in results
            if (one["ways"], one["shots"], one["seed"]) == (ways, shots, 0) and one.curve
        }
        caption = f"Validation accuracy during training, {ways}-way {shots}-shot, seed 0."
        if runs:
            yield learning_curves(f"{name}-{ways}-way-{shots}-shot", caption, "accuracy (%)", runs, unit=100)


def _contexts(name: str, shown: CellResult) -> Scatter:
    """A scatter plot of the contexts of some tasks."""
    caption = (
        "Contexts of unseen tasks on their first two principal components, coloured by task. The model adapted to each "
        "task several times, from different pictures of its classes. "
        f"{_label(shown)}, {shown['ways']}-way {shown['shots']}-shot."
    )
    return plane(f"{name}-contexts", caption, shown.probes["plane"], {"task": shown.probes["task"]}, "component")


def _context_claims(results: list[CellResult]) -> Iterator[Claim]:
    probed = [one for one in results if "agreement" in one.probes]
    shares = (
        f"{_label(one)} {one['ways']}-way {one['shots']}-shot: {one.probes['agreement']:.0%} "
        f"(chance {one.probes['chance']:.0%})"
        for one in probed
    )
    if probed:
        yield {
            "claim": "Contexts identify their task: the nearest context belongs to the same task, adapted from other "
            "pictures, more than twice as often as by chance.",
            "holds": all(one.probes["agreement"] > 2 * one.probes["chance"] for one in probed),
            "evidence": "; ".join(shares),
        }


def has_learned(ways: int, *accuracies: Scores) -> bool:
    """Whether all accuracies are far enough above chance to compare them."""
    return all(float(one.mean()) >= 1 / ways + ABOVE_CHANCE for one in accuracies)


def _with_maml(accuracies: dict[Kind, Scores]) -> Iterator[Claim]:
    """CAVIA's smallest network beside MAML's: "underperforms MAML (within the confidence intervals)"."""
    for (method, filters, ways, shots), ours in accuracies.items():
        theirs = accuracies.get(("MAML", filters, ways, shots))
        is_smallest = filters == min(kind[1] for kind in accuracies)
        if method != "CAVIA" or theirs is None or not is_smallest or not has_learned(ways, ours, theirs):
            continue
        a, b = estimate(100 * ours), estimate(100 * theirs)
        meet = abs(a["mean"] - b["mean"]) <= (a.get("interval") or 0) + (b.get("interval") or 0)
        yield {
            "claim": f"With {filters} filters, {ways}-way {shots}-shot, the intervals of CAVIA and MAML overlap.",
            "holds": meet,
            "evidence": f"CAVIA {text(a, 2)}, MAML {text(b, 2)}; CAVIA − MAML on the same tasks "
            f"{text(difference(100 * ours, 100 * theirs), 2)}",
        }


def _width(accuracies: dict[Kind, Scores]) -> Iterator[Claim]:
    """Whether the widest network is better than the narrowest: yes for CAVIA, no for MAML, says the paper."""
    tasks = dict.fromkeys((kind[2], kind[3]) for kind in accuracies)
    for (method, gains), (ways, shots) in product((("CAVIA", True), ("MAML", False)), tasks):
        kinds = sorted(kind for kind in accuracies if (kind[0], *kind[2:]) == (method, ways, shots))
        if len(kinds) < 2 or not has_learned(ways, *(accuracies[kind] for kind in kinds)):
            continue
        gain = difference(100 * accuracies[kinds[-1]], 100 * accuracies[kinds[0]])
        means = (f"{kind[1]}: {100 * accuracies[kind].mean():.2f}" for kind in kinds)
        yield {
            "claim": f"{method} {'gains' if gains else 'does not gain'} from width, {ways}-way {shots}-shot.",
            "holds": above(gain) == gains,
            "evidence": f"{', '.join(means)}; widest − narrowest on the same tasks {text(gain, 2)}",
        }


def _all_above(results: list[CellResult], least: float) -> Iterator[Claim]:
    """For the easiest task of Omniglot, which every method should solve."""
    trained = _accuracies(results)
    easy = {_kind(one): trained.get(_kind(one)) for one in results if _kind(one)[2:] == (5, 1)}
    if easy and not _is_synthetic(results):
        shown = {kind: "diverged" if scores is None else f"{scores.mean():.2%}" for kind, scores in easy.items()}
        yield {
            "claim": f"Every method is above {least:.0%} on 5-way 1-shot tasks of unseen characters.",
            "holds": all(scores is not None and bool(scores.mean() > least) for scores in easy.values()),
            "evidence": "; ".join(f"{kind[0]} ({kind[1]}): {words}" for kind, words in shown.items()),
        }
