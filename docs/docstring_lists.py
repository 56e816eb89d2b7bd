"""Shows the argument lines of our docstrings, `name:  what it is`, as a list, and their examples as code."""

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^([a-z_][a-z_0-9]*(?:, [a-z_][a-z_0-9]*)*):\s+(\S.*)$")


class ArgumentLists(griffe.Extension):
    """Rewrites every docstring when it is read from the source."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_list(examples_as_code(obj.docstring.value))


def examples_as_code(text: str) -> str:
    """Examples, from a line with >>> to the next empty one, as fenced blocks."""
    return re.sub(
        r"^>>> .*?(?=\n\n|\Z)", lambda example: f"```pycon\n{example[0]}\n```", text, flags=re.DOTALL | re.MULTILINE
    )


def as_list(text: str) -> str:
    """Argument lines, with the indented lines that continue them, as Markdown list entries."""
    lines, inside = [], False
    for line in text.splitlines():
        argument = ARGUMENT.match(line)
        if argument:
            lines += [*([] if inside else [""]), f"- `{argument[1]}`: {argument[2]}"]
            inside = True
        elif inside and line.startswith("   "):
            lines[-1] += f" {line.strip()}"
        else:
            lines += [*([""] if inside and line.strip() else []), line]
            inside = False
    return "\n".join(lines)
