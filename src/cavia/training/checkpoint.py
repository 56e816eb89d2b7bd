"""The run folder: configuration, metrics and a checkpoint from which training resumes, identical to the bit."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from torch import Tensor

from cavia.commit import this_commit
from cavia.errors import Busy, CaviaError, named, require_at_least, shown
from cavia.json_text import parse_object
from cavia.kinds import checked, require_kind
from cavia.locking import try_lock
from cavia.temporaries import clear_leftovers
from cavia.tensor_file import (
    checked_path,
    finite,
    read_object,
    read_tensors,
    read_text,
    write_atomically,
    write_json,
    write_tensors,
)
from cavia.training.outer import outer_of
from cavia.training.ranks import Packed

Groups: TypeAlias = dict[str, dict[str, Tensor]]  # "learner", "generator", …: name → tensor of each

IN_CONFIG = {"iterations": int, "batches_ahead": int, "learner": dict, "commits": Sequence[str], "outer": str}


@dataclass
class TrainingState:
    """Everything a resumed run needs beyond its configuration."""

    iteration: int = 0
    seconds: float = 0.0
    drawn: int = 0  # how many batches of the current block are used
    interval: dict[str, float] = field(default_factory=dict)  # sums of metrics since the last line
    interval_count: int = 0  # iterations in these sums
    loss: float | None = None  # mean over the last complete interval
    score: float | None = None  # of the last validation
    best_score: float | None = None
    best_iteration: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)  # parameters of the best model so far


class RunFolder:
    """`config.json`, `metrics.jsonl`, `checkpoint.safetensors` and finally `model.cavia` of one training run.

    events: also write TensorBoard events, if TensorBoard is installed.
    """

    @checked
    def __init__(self, path: str | PathLike[str], events: bool = True):
        self.path, self.events = checked_path(path), events
        if not str(self.path).isprintable():  # TensorBoard's writer accepts text only
            raise CaviaError(f"a run folder's path must be printable, got {named(self.path)}")
        self.config = self.path / "config.json"
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.before_cooldown = self.path / "before-cooldown.safetensors"  # where a longer run resumes
        self.metrics = self.path / "metrics.jsonl"
        self.model = self.path / "model.cavia"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out while this one trains here; the lock ends with the process, even if it is killed."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a")
        except OSError as error:
            raise CaviaError(f"cannot write {self.path}: {error.strerror or error}") from error
        with file:
            if not try_lock(file):
                raise Busy(f"another process is at work in {self.path}; wait for it or use another folder")
            for written in (self.config, self.metrics, self.checkpoint, self.before_cooldown, self.model):
                clear_leftovers(written)
            yield

    def recorded(self) -> dict[str, Any] | None:
        """The configuration of the run in this folder, or None if nothing was trained yet."""
        used = self.checkpoint.exists() or self.metrics.exists() or (self.path / "cells").exists()
        if not (self.config.exists() and used):
            return None
        return self._config()

    def _config(self) -> dict[str, Any]:
        """The contents of config.json, checked to be a run's."""
        config = read_object(self.config)
        kinds = {
            "iterations": int,
            "batches_ahead": int,
            "learner": dict[str, Any],
            "commits": Sequence[str],
            "outer": str,
        }
        for name in config.keys() & kinds.keys():
            require_kind(f"{name} in {self.config}", config[name], kinds[name])
        return config

    def keep_before_cooldown(self) -> None:
        """Keep a copy of the current checkpoint."""
        write_atomically(self.before_cooldown, self.checkpoint.read_bytes())

    def go_back_before_cooldown(self) -> None:
        """Restore that copy as the checkpoint, if there is one: the steps since then had decaying learning rates."""
        if self.before_cooldown.exists():
            self.before_cooldown.replace(self.checkpoint)

    def claim(self, config: dict[str, Any], may_grow: str | None = None) -> None:
        """Claim the folder for this configuration, or raise if it holds a run of another one.

        may_grow: a setting that may be larger than before: a longer run resumes a shorter one.
        A folder whose run failed in its first step is free. config.json records the commits of cavia that trained
        here; they do not count as a difference.
        """
        config = json.loads(json.dumps(config, default=repr))
        there, commits = self.recorded(), []
        if there is not None:
            commits = there.pop("commits", ["not recorded"])
            there.setdefault("outer", outer_of(there))
            if may_grow and there.get(may_grow, 0) <= config[may_grow]:
                there = there | {may_grow: config[may_grow]}
            if differs := difference(there, _known_by(there, config)):
                raise CaviaError(
                    f"{self.config}: the folder holds a run of another configuration: {differs}; use another folder"
                )
        config["commits"] = list(dict.fromkeys([*commits, this_commit()]))
        write_json(self.config, config)

    def commits(self) -> list[str]:
        """The commits of cavia that trained here."""
        return self._config().get("commits", [])

    def save(self, state: TrainingState, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write the checkpoint, atomically. groups: "learner", "generator", …: name → tensor of each."""
        parts = {**groups, "best": state.best}
        tensors = {f"{group}/{name}": value for group, values in parts.items() for name, value in values.items()}
        description = {name: value for name, value in vars(state).items() if name != "best"}
        write_tensors(self.checkpoint, tensors, description)

    def packed(self) -> Packed | None:
        """The checkpoint as stored, or None if there is none yet."""
        return read_tensors(self.checkpoint) if self.checkpoint.exists() else None

    def load(self) -> tuple[TrainingState, Groups] | None:
        """What `save` was given, without empty groups; None if there is no checkpoint yet."""
        packed = self.packed()
        return None if packed is None else unpacked(packed, self.checkpoint)

    def forget_metrics_after(self, iteration: int) -> None:
        """Drop the lines that a killed run wrote after its last checkpoint, and a half-written one."""
        if self.metrics.exists():
            kept = [line for line, metrics in self._lines(may_be_cut=True) if metrics["iteration"] <= iteration]
            write_atomically(self.metrics, "".join(line + "\n" for line in kept).encode())

    def read_metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, oldest first."""
        return [metrics for _, metrics in self._lines()]

    def _lines(self, may_be_cut: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines of metrics.jsonl, raw and parsed; may_be_cut: skip a truncated last line."""
        lines = read_text(self.metrics, errors="replace").split("\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"line {number} of {self.metrics}"
            try:
                metrics = parse_object(line, where)
                for name in ("iteration", "seconds"):
                    require_kind(f"{name} in {where}", metrics.get(name), float)
            except CaviaError as error:
                if may_be_cut and number == len(lines):
                    return
                raise CaviaError(f"{error}; delete the line to continue without it") from error
            yield line, metrics

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl."""
        try:
            with self.metrics.open("a") as file:
                file.write(json.dumps(finite(line), allow_nan=False) + "\n")
        except OSError as error:
            raise CaviaError(f"cannot write {self.metrics}: {error.strerror or error}") from error


def unpacked(packed: Packed, where: Path) -> tuple[TrainingState, Groups]:
    """What `RunFolder.save` was given, from a packed checkpoint."""
    tensors, description = packed
    groups: Groups = {}
    for name, value in tensors.items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = value
    return _state(description, groups.pop("best", {}), where), groups


def _known_by(there: Mapping[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without what earlier versions did not write: the loss, if it had no name."""
    if "loss_code" in there.get("learner", {}) or "loss_code" not in config.get("learner", {}):
        return config
    return config | {"learner": {name: value for name, value in config["learner"].items() if name != "loss_code"}}


def _state(description: dict[str, Any], best: dict[str, Tensor], where: Path) -> TrainingState:
    """The state that a checkpoint's header describes; raises if it does not describe one."""
    if "interval_loss" in description:  # written by earlier versions
        loss = description.pop("interval_loss")
        description["interval"] = {"loss": loss} if description.get("interval_count") else {}
    fields = {"drawn": 0} | description  # missing in earlier versions
    kinds = {name: hint for name, hint in get_type_hints(TrainingState).items() if name != "best"}
    if fields.keys() != kinds.keys():
        wrong = sorted(fields.keys() ^ kinds.keys())[0]
        raise CaviaError(f"{where} is not a training checkpoint: {shown(wrong)} is {_where(wrong, kinds)}")
    for name, hint in kinds.items():
        require_kind(f"{name} in {where}", fields[name], hint)
        if hint is int:
            require_at_least(f"{name} in {where}", fields[name], 0)
    if not 0 <= fields["seconds"] < math.inf:
        raise CaviaError(f"seconds in {where} must be at least 0 and finite, got {fields['seconds']}")
    return TrainingState(**fields, best=best)


def _where(name: str, kinds: Mapping[str, Any]) -> str:
    return "missing" if name in kinds else "not known"


def difference(there: Any, here: Any, name: str = "", places: tuple[str, str] = ("there", "here")) -> str | None:
    """The first setting in which two configurations differ, in words."""
    if isinstance(there, dict) and isinstance(here, dict):
        names = sorted(there.keys() | here.keys(), key=lambda name: (name != "outer", name))  # it decides the others
        differences = (difference(there.get(name), here.get(name), name, places) for name in names)
        return next(filter(None, differences), None)
    return None if there == here else f"{name} is {there!r} {places[0]} and {here!r} {places[1]}"
