"""Every subcommand and every flag of the command line, with each value wrong in turn."""

import argparse
import contextlib
import csv
import io
import random
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import cavia
from attacks.outcomes import Case
from cavia.cli import main, make_parser
from cavia.paper.running.processes import start_server
from cavia.tables.model import load_table_model

TINY = ["iterations=2", "test_tasks=8", "validation_tasks=8", "hidden=4", "contexts=2"]
TRAINING = ("run", "fit", "watch", "evaluate", "demo", "serve")  # commands that may be at work for long
# What a right call of each command gives for what it must be given; a command that is not here is called with nothing.
RIGHT: dict[str, Sequence[str]] = {
    "run": ["table1", "--jobs", "1", *(word for change in TINY for word in ("--set", change))],
    "reproduce": ["--dry-run", "--plan", "plan.toml"],
    "report": ["results", "--out", "page"],
    "evaluate": ["policy", "--tasks", "2"],
    "complete": ["completion.cavia", "picture.png", "--size", "8", "--known", "4", "--width", "16"],
    "watch": ["policy", "--updates", "1", "--out", "way.png"],
    "store": ["contexts"],
    "demo": ["--no-browser", "--port", "0"],
    "serve": ["model.cavia", "--store", "contexts", "--port", "0", "--no-compile"],
    "fit": ["table.csv", "--task", "user", "--target", "y", "--iterations", "2", "--hidden", "4", "--support", "3"],
    "adapt": ["model.cavia", "table.csv"],
    "predict": ["model.cavia", "table.csv", "--contexts", "contexts"],
    "embed": ["model.cavia", "table.csv", "--out", "map.png"],
}
# A file's suffix → the bytes that it begins with, and where; what else is written to such a name contradicts it.
SIGNS = {".parquet": (0, b"PAR1"), ".png": (0, b"\x89PNG"), ".cavia": (8, b"{")}
MANY = str(10**400)
WORDS = ["", " ", "-", "-1", "0", "2", "1.5", "nan", "inf", "-inf", "1e400", MANY, "99999999999", "1000000000", "text"]
WORDS += ["\udc80", "a\0b", "x" * 5000, "√2", "=1+1", ",", "1,,2", "a=b", "a=", "=", "--", "../..", "~", "%s", "{0}"]
PLACES = ["no/such/file", "/dev/null", "/dev/full", "/", ".", "loop", "empty", "binary", "deep.json", "foreign.json"]
PLACES += ["new.csv", "new.parquet", "new.png", "new.cavia"]
PLACES += ["table.csv", "model.cavia", "contexts", "picture.png", "results", "folder", "latin.csv", "header.csv"]


def prepare(folder: Path) -> None:
    """Files for right calls, and files that are damaged, foreign, endless or empty."""
    torch.manual_seed(0)
    with (folder / "table.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "x", "y"])
        rows.writerows((f"u{row // 8}", f"{row % 7}.5", f"{row % 5}.25") for row in range(80))
    env = cavia.envs.Navigation(4)
    policy = cavia.GaussianPolicy(env.observations, env.actions, (4,), 2)
    learner = cavia.CAVIA(policy, policy.loss, 1.0)
    few = cavia.Validation(tasks=2)
    cavia.fit(
        learner, env, 1, outer=cavia.TRPO(), tasks_per_batch=2, support=2, validation=few, run_dir=folder / "policy"
    )
    cavia.CAVIA(cavia.MLP(2, 3, (4,), 2), "mse").save(folder / "completion.cavia")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / "picture.png")
    (folder / "plan.toml").write_text('[[run]]\nexperiment = "table1"\nset = "quick"\n')
    for command in (["fit", *RIGHT["fit"]], ["adapt", *RIGHT["adapt"]], ["run", *RIGHT["run"], "--out", "results"]):
        # In processes of their own: the server that `run` starts outlives this folder.
        subprocess.run([sys.executable, "-m", "cavia", *command], cwd=folder, check=True, capture_output=True)
    load_table_model(folder / "model.cavia")
    (folder / "loop").symlink_to("loop")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(random.Random(0).randbytes(5000))
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "foreign.json").write_text('{"experiment": 1e999, "": null}')
    (folder / "latin.csv").write_bytes("user,x,y\nä,1,2\n".encode("latin-1"))
    (folder / "header.csv").write_text("user,user,y\n")
    (folder / "folder").mkdir()


def cases(folder: Path, seed: int) -> Iterator[Case]:
    """The misuses of every subcommand, asked of the parser itself."""
    chance = random.Random(seed)
    for name, parser in subcommands().items():
        right = list(RIGHT.get(name, ()))
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction):
                continue
            for word in [*WORDS, *PLACES, _mixed(chance)]:
                about = action.option_strings[-1] if action.option_strings else action.dest
                command = Command(folder, [name, *_replaced(right, parser, action, word)])
                yield Case(f"cavia {name}", about, word, command, judge=str, may_last=name in TRAINING)
        for word in ("--no-such-flag", "surplus", "-x"):
            yield Case(f"cavia {name}", "surplus", word, Command(folder, [name, *right, word]))


def subcommands() -> dict[str, argparse.ArgumentParser]:
    groups = [action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0].choices)


def _replaced(right: Sequence[str], parser: argparse.ArgumentParser, action: argparse.Action, word: str) -> list[str]:
    """The right arguments with one of them changed, or given in addition."""
    arguments = list(right)
    if action.option_strings:
        flag = action.option_strings[-1]
        if action.nargs == 0:
            return [*arguments, f"{flag}={word}"]
        if flag in arguments and flag != "--set":
            arguments[arguments.index(flag) + 1] = word
            return arguments
        return [*arguments, f"{flag}={word}"]
    place = [each for each in parser._actions if not each.option_strings].index(action)
    if place < len(arguments) and not arguments[place].startswith("--"):
        arguments[place] = word
    else:  # one that may be left out
        arguments.insert(place, word)
    return arguments


def _mixed(chance: random.Random) -> str:
    return "".join(chr(chance.choice([chance.randrange(1, 128), chance.randrange(0x2FFF)])) for _ in range(6))


class Command:
    """A call of the command line in a copy of the prepared files; its error is raised as it was said."""

    def __init__(self, prepared: Path, arguments: Sequence[str]):
        self.prepared, self.arguments = prepared, arguments

    def __call__(self) -> str:
        said, errors = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory(prefix="attack-") as temporary:
            place = Path(temporary) / "place"
            shutil.copytree(self.prepared, place, symlinks=True)
            before = _state(place)
            if self.arguments[0] == "run":
                start_server()  # here, not in a folder that the case leaves deleted: PyTorch could not be imported
            with contextlib.chdir(place), contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
                try:
                    code = main(self.arguments)
                except SystemExit as end:  # --help and --version
                    code = int(end.code or 0)
            changed = sorted(name for name, content in _state(place).items() if before.get(name) != content)
            wrong = [name for name in changed if not _is_as_named(place / name)]
        lines = [line for line in errors.getvalue().splitlines() if line.startswith("cavia: ")]
        if code == 0 and wrong:
            return f"{', '.join(wrong)}: another format is written"
        if code == 0:
            return "prints nan with exit code 0" if "nan" in said.getvalue().replace("written: nan", "").split() else ""
        if code not in (1, 2) or len(lines) != 1 or "Traceback" in errors.getvalue():
            raise RuntimeError(f"exit code {code}: {errors.getvalue()[-300:]!r}")
        if changed and code == 2:
            raise RuntimeError(f"{', '.join(changed)} written in spite of {lines[0]!r}")
        raise cavia.CaviaError(lines[0])


def _is_as_named(path: Path) -> bool:
    """Whether a file holds what its suffix says."""
    content = path.read_bytes()
    place, sign = SIGNS.get(path.suffix, (0, b""))
    return content[place:].startswith(sign) and not (path.suffix == ".csv" and b"\0" in content)


def _state(folder: Path) -> dict[str, int]:
    """The files in the folder itself and a sum of each; a store's own files beside it are not counted."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith("contexts-")]
    return {path.name: zlib.crc32(path.read_bytes()) for path in files}
