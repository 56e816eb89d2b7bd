"""The settings of a result, in words: a named set, possibly with changes."""

import shlex
from itertools import pairwise

from cavia.paper.schema import Result

SETS = ("full", "quick", "tuned", "first")
LONGEST = 30  # characters of a setting's value
_WARNINGS = {
    "first": "a first look: some cells of the table, one seed, trained in full",
    "tuned": "tuned: settings that we found to work better than the paper's",
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
        general = f"quick budget: expect worse numbers than {'with --full' if beyond else 'the paper'}"
    elif result["budget"] == "own":
        base, changes = _made_with(result)
        listed = ", ".join(f"{name} {value}" for name, value in changes.items())
        general = f"the settings of --{base}, except {listed or 'those that the command below names'}"
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
    return base, {
        name: (value if len(value) <= LONGEST else f"{value[:LONGEST]}…").replace(",", " / ")
        for name, value in changes.items()
    }
