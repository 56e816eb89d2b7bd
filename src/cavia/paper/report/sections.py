"""The sections of a report: each result with its anchor, its drawn figures and a summary in words."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cavia.paper.catalogue import is_beyond
from cavia.paper.report import budgets
from cavia.paper.report.figures import figure_svg
from cavia.paper.schema import Result

PAGE_TITLE = "CAVIA: our results beside the paper's"
PAPER = "Zintgraf et al., Fast Context Adaptation via Meta-Learning, ICML 2019"
BEYOND = "Beyond the paper"
ABOUT_BEYOND = "Experiments that the paper does not have."
_COMMAND_WIDTH = 90  # characters of a line


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: its SVG and the name of its file."""

    file: str
    caption: str
    svg: str
    opens: bool = False  # stands at the top of the section


@dataclass(frozen=True)
class Section:
    """One experiment of the report."""

    anchor: str
    result: Result
    drawings: Sequence[Drawing]
    apart: str  # the settings that distinguish it from the report's other runs of the same experiment
    others: "Sequence[Section]" = ()  # the same experiment with other sets of settings

    @property
    def reproduces(self) -> str:
        """What it shows, of the paper or beyond it, and what distinguishes this run from others."""
        what = self.result["reproduces"]
        if self.beyond:  # the heading of its part of the report says so
            what = what.removeprefix(f"{BEYOND.lower()}: ")
            what = what[:1].upper() + what[1:]
        return f"{what} ({self.apart})" if self.apart else what

    @property
    def all_drawings(self) -> "list[Drawing]":
        """Its own drawings and those of the other sets."""
        return [*self.drawings, *(drawing for other in self.others for drawing in other.all_drawings)]

    @property
    def beyond(self) -> bool:
        """Whether the experiment is not in the paper."""
        return is_beyond(self.result["experiment"])

    @property
    def budget(self) -> str:
        """`full`, or `full, 6 settings changed`."""
        return budgets.label(self.result)

    @property
    def warning(self) -> str:
        """What a reader must know about its settings before the numbers; may be empty."""
        return budgets.warning(self.result, self.beyond)

    @property
    def verdicts(self) -> Counter[str]:
        """How many cells of its tables are within, better or short."""
        cells = (cell for table in self.result.get("tables", []) for row in table["rows"] for cell in row["cells"])
        return Counter(verdict for cell in cells if cell and (verdict := cell.get("verdict")))

    @property
    def claims_in_words(self) -> str:
        """`2 of 3 hold`, or nothing if there are no claims."""
        claims = self.result.get("claims", [])
        return f"{sum(claim['holds'] for claim in claims)} of {len(claims)} hold" if claims else ""

    @property
    def command(self) -> str:
        """What to type for these numbers, broken at its options into lines that a page can show."""
        lines = [""]
        for part in re.split(r" (?=--)", " ".join(self.result["command"].split())):
            if lines[-1] and len(lines[-1]) + len(part) > _COMMAND_WIDTH:
                lines[-1] += " \\"
                lines.append(f"    {part}")
            else:
                lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
        return "\n".join(lines)

    @property
    def details(self) -> list[tuple[str, str]]:
        """How the numbers were made, as names and values: seeds, settings, machine, time."""
        result = self.result
        settings = ", ".join(f"{name} {_plain(value)}" for name, value in result["settings"].items())
        machine = ", ".join(f"{name} {_plain(value)}" for name, value in result["machine"].items())
        cells = result.get("cells", [])
        return [
            ("seeds", str(result["seeds"])),
            *([("trained cells", str(len(cells)))] if cells else []),
            ("training time", f"{_duration(result['seconds'])}, summed over cells"),
            ("machine", machine),
            ("cavia", ", ".join([result["version"], *result.get("commits", [])])),
            ("finished", result["finished"]),
            *([("settings", settings)] if settings else []),
        ]


def parts(sections: Sequence[Section]) -> tuple[list[Section], list[Section]]:
    """The sections on the paper's experiments, and those beyond it."""
    return [one for one in sections if not one.beyond], [one for one in sections if one.beyond]


def make_sections(results: Sequence[Result]) -> list[Section]:
    """A section per result, in order, with all figures drawn and with unique names of files and anchors."""
    uses = Counter(figure["name"] for result in results for figure in result.get("figures", []))
    anchors: set[str] = set()
    files: set[str] = set()

    def section(result: Result, is_other: bool = False) -> Section:
        anchor = _unused(f"{result['experiment']}-{result['budget']}", anchors)
        drawings = []
        for figure in result.get("figures", []):
            shared = is_other or uses[figure["name"]] > 1
            name = _unused(f"{result['budget']}-{figure['name']}" if shared else figure["name"], files)
            prefix = "svg-" + name.replace(".", "-")
            opens = figure["kind"] == "curves"
            drawings.append(Drawing(f"{name}.svg", figure["caption"], figure_svg(figure, prefix), opens))
        others = [section(other, is_other=True) for other in result.get("others", [])]
        return Section(anchor, result, drawings, "" if is_other else _apart(result, results), others)

    return [section(result) for result in results]


def _apart(result: Result, results: Sequence[Result]) -> str:
    """`filters 64, minutes 100`: its settings that differ among the results of its experiment and budget."""
    alike = [r for r in results if (r["experiment"], r["budget"]) == (result["experiment"], result["budget"])]
    settings = result["settings"]
    return ", ".join(
        f"{name} {_plain(value)}"
        for name, value in settings.items()
        if any(r["settings"].get(name) != value for r in alike)
    )


def _unused(name: str, taken: set[str]) -> str:
    """The name, with a number appended if it is taken; marks it as taken."""
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}-{count}"
    taken.add(candidate)
    return candidate


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return budgets.in_runs(map(_plain, value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
