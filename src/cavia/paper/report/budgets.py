"""The settings of a result, in words: a named set, possibly with changes."""

import shlex
from collections.abc import Iterable
from itertools import groupby, pairwise

from cavia.paper.schema import Result

SETS = ("full", "quick", "tuned", "first")
LONGEST = 50  # characters of a setting's value
_WARNINGS = {
    "first": "A first look: some cells of the table, one seed, with the paper's full training",
    "tuned": "Tuned: settings that we found to work better than the paper's",
}


def label(result: Result) -> str:
    """`full`, or `full, 6 settings changed`."""
    if result["budget"] != "own":
        return result["budget"]
    base, changes = _made_with(result)
    count = f"{len(changes)} setting{'s' * (len(changes) != 1)}" if changes else "settings"
    return f"{base}, {count} changed"


def warning(result: Result, beyond: bool) -> str:
    """What a reader must know about the settings before the numbers; may be empty.

    beyond: the experiment is not in the paper.
    """
    general = _WARNINGS.get(result["budget"], "")
    if result["budget"] == "quick":
        general = f"Quick budget: expect worse numbers than {'with --full' if beyond else 'the paper'}"
    elif result["budget"] == "own":
        base, changes = _made_with(result)
        listed = ", ".join(f"{name} {value}" for name, value in changes.items())
        general = f"Changed from --{base}: {listed or 'see the command below'}"
    return ". ".join(filter(None, (general, result.get("differs", ""))))


def _made_with(result: Result) -> tuple[str, dict[str, str]]:
    """The set that the command names, and the changes by `--set`, with long values shortened."""
    try:
        words = shlex.split(result["command"])
    except ValueError:  # not a command line
        words = []
    base = next((name for name in SETS if f"--{name}" in words), "quick")
    given = [after for word, after in pairwise(words) if word == "--set"]
    changes = dict(text.split("=", 1) for text in given if "=" in text)
    shown = {name: in_runs(value.split(",")) for name, value in changes.items()}
    return base, {
        name: value if len(value) <= LONGEST else f"{value[:LONGEST].rstrip(' /')} …" for name, value in shown.items()
    }


def in_runs(texts: Iterable[str]) -> str:
    """`10 (60 times) / 100 / 100`: values of a setting, more than three alike in a row counted."""
    runs = [(text, len(list(alike))) for text, alike in groupby(texts)]
    return " / ".join(f"{text} ({count} times)" if count > 3 else " / ".join([text] * count) for text, count in runs)
