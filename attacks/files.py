"""Every kind of file that we read, damaged: bytes changed, lost, doubled, numbers made enormous."""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import cavia
from attacks import commands
from attacks.outcomes import Case
from attacks.values import folder, learner
from cavia.paper.plan import read_plan
from cavia.paper.report.reading import read_results
from cavia.tables.model import load_table_model
from cavia.tables.reading import read_table


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is opened, as values that can be compared, and whether damage must be noticed.

    A CSV file with another number in it is another CSV file; a model with another weight is a damaged model.
    """

    name: str
    path: Path  # below the prepared folder
    read: Callable[[Path], Any]
    sealed: bool


def weights(path: Path) -> list[Any]:
    loaded = cavia.load(path)
    return [repr(loaded), *(value.tolist() for value in loaded.state_dict().values())]


def contexts(path: Path) -> list[Any]:
    with cavia.ContextStore(path) as store:
        return [(ids, values.tolist()) for ids, values in store.batches()]


def state_of_run(path: Path) -> Any:
    """A run folder as `fit` takes it up again: it goes on to the bit, or says why not."""
    torch.manual_seed(0)
    trained = learner()
    cavia.fit(trained, cavia.Sine(), 4, validation=cavia.Validation(tasks=4), run_dir=path.parent, progress=False)
    return [value.tolist() for value in trained.state_dict().values()]


def table_model(path: Path) -> Any:
    model = load_table_model(path)
    return [value.tolist() for value in model.learner.state_dict().values()]


def formats(prepared: Path) -> list[Format]:
    """Each with a file, made here."""
    commands.prepare(prepared)
    run = prepared / "run"
    cavia.fit(learner(), cavia.Sine(), 2, validation=cavia.Validation(tasks=4), run_dir=run, progress=False)
    learner().save(prepared / "plain.cavia")
    listed = [Format("model", prepared / "plain.cavia", weights, True)]
    listed += [Format(f"run folder, {path.name}", path, state_of_run, True) for path in _files(run)]
    return [
        *listed,
        Format("store", prepared / "contexts", contexts, True),
        Format("table model", prepared / "model.cavia", table_model, True),
        Format("table", prepared / "table.csv", lambda path: list(read_table(path)), False),
        Format("result", prepared / "results" / "result.json", lambda path: read_results([path.parent]), False),
        Format("plan", prepared / "plan.toml", lambda path: read_plan(path, Path("runs")), False),
    ]


def _files(run: Path) -> list[Path]:
    return sorted(path for path in run.iterdir() if path.is_file() and path.stat().st_size)


def cases(prepared: Path, seed: int, mutations: int) -> Iterator[Case]:
    """So many damaged files of each format."""
    chance = random.Random(seed)
    for each in formats(prepared):
        whole = each.path.read_bytes()
        right = each.read(_copy(each, whole))
        for number in range(mutations):
            name, damaged = damage(whole, chance)
            run = lambda each=each, damaged=damaged: each.read(_copy(each, damaged))  # noqa: E731
            judge = (lambda result, right=right: _differs(result, right)) if each.sealed else (lambda result: None)
            yield Case(each.name, each.path.name, f"{name}, mutation {number} of seed {seed}", run, None, judge)


def _differs(result: Any, right: Any) -> str | None:
    return None if result == right else "reads as something else"


def _copy(each: Format, content: bytes) -> Path:
    """The file, damaged, with the files beside it as they were."""
    place = folder()
    for path in each.path.parent.iterdir():
        if path.is_file() and not path.is_symlink() and path != each.path:
            shutil.copy(path, place)
    (place / each.path.name).write_bytes(content)
    return place / each.path.name


def damage(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """A name of what was done, and the damaged content."""
    start = chance.randrange(len(content))
    stop = min(len(content), start + chance.choice([1, 4, 64, 1024]))
    return chance.choice(
        [
            ("a bit", content[:start] + bytes([content[start] ^ 1 << chance.randrange(8)]) + content[start + 1 :]),
            ("a byte", content[:start] + chance.randbytes(1) + content[start + 1 :]),
            ("cut off", content[:start]),
            ("a gap", content[:start] + content[stop:]),
            ("zeros", content[:start] + bytes(stop - start) + content[stop:]),
            ("twice", content[:stop] + content[start:]),
            ("noise", content[:start] + chance.randbytes(stop - start) + content[stop:]),
            ("a digit", _digits(content, chance)),
        ]
    )


def _digits(content: bytes, chance: random.Random) -> bytes:
    """A number somewhere in it made enormous."""
    places = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not places:
        return content[:-1]
    place = chance.choice(places)
    return content[:place] + chance.choice([b"9" * 30, b"-1", b"1e999", b"null", b"0"]) + content[place + 1 :]
