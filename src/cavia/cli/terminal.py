"""Output for any terminal: spells out characters that its encoding lacks, and prints errors on one line."""

import codecs
import io
import os
import sys
import unicodedata
from functools import partial
from typing import Any

SPELLED = {
    "±": "+-", "−": "-", "–": "-", "—": "--", "×": "x", "·": "*", "→": "->", "≤": "<=", "≥": ">=", "‘": "'", "’": "'",
    "“": '"', "”": '"', "α": "alpha", "β": "beta", "γ": "gamma", "θ": "theta", "λ": "lambda", "φ": "phi",
}  # fmt: skip
LONGEST = 500  # characters of an error; the middle of longer ones is left out


def make_readable() -> None:
    """Make the output accept any text, whatever the locale. Errors name values, so accents stay, as \\u…"""
    codecs.register_error("cavia.spelled", _spell)
    codecs.register_error("cavia.exact", partial(_spell, exactly=True))
    for stream, errors in ((sys.stdout, "cavia.spelled"), (sys.stderr, "cavia.exact")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _spell(error: UnicodeError, exactly: bool = False) -> tuple[str, int]:
    """An ASCII replacement for characters that cannot be encoded: a name, a letter without accents, or \\u…"""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    words = []
    for character in error.object[error.start : error.end]:
        plain = "" if exactly else unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
        words.append(SPELLED.get(character) or plain or character.encode("ascii", "backslashreplace").decode())
    return "".join(words), error.end


def say(message: object) -> None:
    """Print one line to stderr, if there is one."""
    line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in f"cavia: {message}")
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence(sys.stderr)


def silence(stream: Any) -> None:
    """Write nothing more to the stream, not even its buffer when Python exits."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # it is not a file
        pass
