"""Contexts by task name in one file. The one place that knows how `cavia adapt --out` keeps them."""

import hashlib
from pathlib import Path

from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.base import Learner
from cavia.tensor_file import read_tensors, write_tensors

KIND = "contexts"


def write_contexts(path: Path, names: list[str], contexts: Tensor, learner: Learner) -> None:
    """Write the contexts [T, C] of tasks by name, atomically, for this learner only."""
    write_tensors(path, {"context": contexts}, {"kind": KIND, "names": names, "model": fingerprint(learner)})


def read_contexts(path: Path, learner: Learner) -> dict[str, Tensor]:
    """Task → its context [C], of a file that was written for this learner."""
    tensors, description = read_tensors(path)
    if description.get("kind") != KIND or "context" not in tensors:
        raise CaviaError(f"{path} does not hold contexts; `cavia adapt MODEL TABLE --out {path}` writes them")
    if description["model"] != fingerprint(learner):
        raise CaviaError(f"the contexts in {path} belong to another model; run `cavia adapt` with this one")
    return dict(zip(description["names"], tensors["context"], strict=True))


def fingerprint(learner: Learner) -> str:
    """The same for the same weights only."""
    digest = hashlib.sha256()
    for name, value in sorted(learner.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
