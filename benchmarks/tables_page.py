"""The page of `tables.py`: a table for each source, wins and losses, and a picture."""

import json
import math
from itertools import cycle
from pathlib import Path
from typing import Any

from cavia.commit import this_commit
from cavia.paper.report.palette import CLASSES
from tables_data import FOLDS, SOURCES

OURS = "CAVIA"
VERDICTS = ("CAVIA better", "level", "CAVIA worse", "open")
HIGHEST = 1.6  # of the picture: some errors are many times CAVIA's
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's, by number of splits


def write_page(out: Path) -> None:
    """tables.json, tables.md and tables.png from the files in `out`/tables."""
    results = [json.loads(path.read_text()) for path in sorted((out / "tables").glob("*.json"))]
    tables: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in results:
        if one["score"] is not None:
            tables.setdefault(one["table"], {}).setdefault(one["method"], []).append(one)
    summary = {name: _summed(methods) for name, methods in tables.items() if OURS in methods}
    (out / "tables.json").write_text(json.dumps(summary, indent=1) + "\n")
    (out / "tables.md").write_text(_page(summary))
    _picture(summary, out / "tables.png")


def _summed(methods: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """For each method the mean over splits, and its paired difference to CAVIA's with a 95 % interval."""
    ours = {one["split"]: one["score"] for one in methods[OURS]}
    rows = {}
    for name, ones in methods.items():
        ones = [one for one in ones if one["split"] in ours]  # the others cannot be compared yet
        if not ones:
            continue
        scores = {one["split"]: one["score"] for one in ones}
        shared = sorted(scores.keys() & ours.keys())
        gap, width = _interval([scores[split] - ours[split] for split in shared])
        chosen = [", ".join(f"{key} {value}" for key, value in one["chosen"].items()) for one in ones]
        rows[name] = {
            "mean": sum(scores.values()) / len(scores),
            "default": sum(one["default"] for one in ones) / len(ones),
            "splits": len(shared),
            "gap": gap,
            "width": None if width == math.inf else width,
            "verdict": "–" if name == OURS else _verdict(gap, width),
            "chosen": max(set(chosen), key=chosen.count),
            "tried": ones[0]["tried"],
            "processor_seconds": sum(one["processor_seconds"] for one in ones),
        }
    first = methods[OURS][0]
    about = {key: first[key] for key in ("groups", "rows", "known", "order", "classes")}
    return {**about, "methods": dict(sorted(rows.items(), key=lambda entry: entry[1]["mean"]))}


def _interval(gaps: list[float]) -> tuple[float, float]:
    mean = sum(gaps) / len(gaps)
    if len(gaps) < 2:
        return mean, math.inf
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1))
    return mean, T_95[len(gaps)] * deviation / math.sqrt(len(gaps))


def _verdict(gap: float, width: float) -> str:
    """Of CAVIA against the method."""
    if width == math.inf:
        return "open"
    return "level" if abs(gap) <= width else "CAVIA better" if gap > 0 else "CAVIA worse"


def _page(summary: dict[str, Any]) -> str:
    lines = [
        "# Unseen groups of real tables",
        "",
        f"`python benchmarks/tables.py`, at commit {this_commit()}. The rule is written there, tables and grids in "
        "tables_data.py and tables_methods.py. Root mean squared error in the target's unit, or log loss for classes, "
        "mean over the splits that are finished; less is better. The difference to CAVIA's is paired by split, ± 95 %. "
        "CAVIA's defaults were settled while splits 0 and 1 of Cigar, Wages, LaborSupply, dropouts, Snmesp and nlswork "
        "were looked at; splits 2 to 4, and the other tables, had no part in it. Sizes and grids were changed after "
        "first scores, and files of split 0 are partly of earlier commits (tables.py says how).",
        "",
        "| against | CAVIA better | level | CAVIA worse | open |",
        "|---|---|---|---|---|",
    ]
    rivals = dict.fromkeys(name for table in summary.values() for name in table["methods"] if name != OURS)
    for rival in rivals:
        held = {
            name: table["methods"][rival]["verdict"] for name, table in summary.items() if rival in table["methods"]
        }
        cells = [
            ", ".join(n for n, v in held.items() if v == w) or "–"
            for w in ("CAVIA better", "level", "CAVIA worse", "open")
        ]
        lines.append(f"| {rival} | {' | '.join(cells)} |")
    lines += ["", *_missing(summary), "", "![ratio of each method's score to CAVIA's](tables.png)", ""]
    for name, table in summary.items():
        groups = table["groups"]
        what = "log loss" if table["classes"] else "RMSE"
        rows = "first" if table["order"] == "ordered" else "random"
        lines += [
            f"**{name}**: {groups['train']} groups to train, {groups['val']} to validate, {groups['test']} unseen "
            f"in each split; {table['rows']} rows; {table['known']} {rows} rows known.",
            "",
            f"| method | {what} | first setting | minus CAVIA's | verdict | chosen, mostly | tried | splits | CPU s |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for method, row in table["methods"].items():
            width = "" if row["width"] is None else f" ± {row['width']:.4f}"
            gap = "–" if method == OURS else f"{row['gap']:+.4f}{width}"
            lines.append(
                f"| {method} | {row['mean']:.4f} | {row['default']:.4f} | {gap} | {row['verdict']} | "
                f"{row['chosen'] or '–'} | {row['tried']} | {row['splits']} | {row['processor_seconds']:.0f} |"
            )
        lines.append("")
    return "\n".join(lines)


def _missing(summary: dict[str, Any]) -> list[str]:
    """What is not measured yet; with two splits or three an interval says little."""
    least = min((row["splits"] for table in summary.values() for row in table["methods"].values()), default=0)
    absent = [name for name in SOURCES if name not in summary]
    if not absent and least == FOLDS:
        return []
    counts = dict.fromkeys(range(1, FOLDS + 1), 0)
    for table in summary.values():
        counts[table["methods"][OURS]["splits"]] += 1
    done = ", ".join(f"{count} tables with {splits}" for splits, count in counts.items() if count)
    return [
        f"**Not finished**: CAVIA is measured on {done} of {FOLDS} splits"
        + (f", and not yet on {', '.join(absent)}" if absent else "")
        + '. With one split there is no interval, and every verdict is "open". The same command goes on.'
    ]


def _picture(summary: dict[str, Any], path: Path) -> None:
    """Each rival's error as a multiple of CAVIA's; hollow marks at the upper edge are beyond it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.add_subplot()
    rivals = list(dict.fromkeys(name for table in summary.values() for name in table["methods"] if name != OURS))
    lowest = 1.0
    for place, (rival, colour) in enumerate(zip(rivals, cycle(CLASSES))):
        look: dict[str, Any] = {"marker": "osD^vP*X"[place % 8], "color": colour, "markersize": 6, "linestyle": ""}
        axes.plot([], [], label=rival, **look)
        for column, table in enumerate(summary.values()):
            if rival not in table["methods"]:
                continue
            ratio = table["methods"][rival]["mean"] / table["methods"][OURS]["mean"]
            beyond = {"fillstyle": "none", "clip_on": False} if ratio > HIGHEST else {}
            aside = 0.1 * (place - (len(rivals) - 1) / 2)  # marks of one table do not cover each other
            axes.plot(column + aside, min(ratio, HIGHEST), **look | beyond)
            lowest = min(lowest, ratio)
    axes.axhline(1, color="black", linewidth=1, zorder=0)
    axes.set_xticks(range(len(summary)), list(summary), rotation=30, ha="right")
    axes.set_ylim(lowest - 0.05, HIGHEST)
    axes.set_ylabel(f"error, CAVIA's = 1 (hollow: above {HIGHEST})")
    axes.set_title("Error on unseen groups; above the line CAVIA is better", fontsize=10, pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize=9, ncols=5)
    figure.savefig(path, dpi=130)
