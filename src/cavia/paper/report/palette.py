"""One style per method across all figures, in colours that colour-blind readers can distinguish (Okabe and Ito)."""

from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Any

METHODS: dict[str, tuple[str, str]] = {  # method → colour, marker
    "CAVIA": ("#0072b2", "o"),
    "MAML": ("#d55e00", "s"),
    "CAVIA, learned start": ("#009e73", "^"),
    "CNP": ("#cc79a7", "D"),
    "ANIL": ("#e69f00", "v"),
    "Meta-SGD": ("#56b4e9", "P"),
    "Reptile": ("#5f6670", "X"),
    "CAVIA + MAML": ("#8c6d1f", "h"),
    "CAVIA, sampled context": ("#009e73", "<"),
    "MAESN": ("#cc79a7", ">"),
    "E-MAML": ("#e69f00", "p"),
    "wave basis": ("#333840", "H"),
}
CLASSES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5f6670", "#8c6d1f")  # of points
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
_PALEST = 0.55  # the share of white in the last of many lines of one method


def line_styles(labels: Sequence[str]) -> list[dict[str, Any]]:
    """How to draw each series: a method always in its own colour, other labels in the remaining ones.

    A label stands for a method if it names it in any spelling: "CAVIA with learned φ₀" is "CAVIA, learned start".
    A colour used twice in one figure is dashed the second time; used more often, it gets paler, too.
    """
    named = [_method(label) for label in labels]
    free = cycle([method for method in METHODS if method not in named] or METHODS)
    methods = [name or next(free) for name in named]
    in_all, uses = Counter(methods), Counter[str]()
    styles = []
    for method in methods:
        colour, marker = METHODS[method]
        paler = _PALEST * uses[method] / (in_all[method] - 1) if in_all[method] > 2 else 0.0
        dashes = _DASHES[uses[method] % len(_DASHES)]
        styles.append({"color": _with_white(colour, paler), "marker": marker, "linestyle": dashes})
        uses[method] += 1
    return styles


def _with_white(colour: str, share: float) -> str:
    """`#d55e00` with a share of white, from 0 to 1."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def _method(label: str) -> str | None:
    name = label.lower().replace("metasgd", "meta-sgd")
    if "cavia" in name and "maml" in name:
        return "CAVIA + MAML"
    if "cavia" in name and "learned" in name:
        return "CAVIA, learned start"
    return max((method for method in METHODS if method.lower() in name), key=len, default=None)
