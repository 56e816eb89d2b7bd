"""Frozen weights of a conditioned module: a file has their fingerprints, and takes them from the module itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cavia.errors import CaviaError, shown
from cavia.learners.base import Learner
from cavia.models.base import ContextModel
from cavia.models.conditioned import Conditioned
from cavia.tensor_file import digest

PREFIX = "model.module."  # of the module's names in a learner
LENGTH = 32  # hexadecimal digits of a fingerprint


def fingerprints(learner: Learner) -> dict[str, list[str]]:
    """Name → type and digest of each weight that `cavia.condition(…, freeze=True)` froze; of other learners, none.

    Buffers are not among them: a module may change them at work.
    """
    model = learner.model
    if not isinstance(model, Conditioned) or not model.freeze:
        return {}
    frozen = model.module.named_parameters(remove_duplicate=False)
    values = {PREFIX + name: value for name, value in frozen if not value.requires_grad}
    return {name: [_type(value), _digest(value)] for name, value in values.items()}


def filled(
    tensors: dict[str, Tensor], wanted: Any, module: nn.Module | None, model: ContextModel | None, path: Path
) -> dict[str, Tensor]:
    """The file's tensors together with the module's, if their fingerprints are those in the file.

    module, model: what was given to `cavia.load`; the second has the module in it.
    """
    if model is None and module is None:
        return tensors  # whoever builds the learner says what is missing
    held, prefix = (module, PREFIX) if model is None else (model, "model.")
    assert held is not None
    own = {prefix + name: value.detach() for name, value in held.state_dict().items()}
    weights = {name: _checked(name, kind, own, path) for name, kind in _readable(wanted, tensors, path).items()}
    wrong = [name for name, value in weights.items() if value is None]
    if wrong:
        name = wrong[0].removeprefix(PREFIX)
        raise CaviaError(
            f"the module is not the one that {path} was trained on: {len(wrong)} of its {len(weights)} frozen weights "
            f"differ, first {name!r}; load the same weights into it"
        )
    return tensors | {name: value for name, value in weights.items() if value is not None}


def _readable(wanted: Any, tensors: Mapping[str, Tensor], path: Path) -> dict[str, tuple[torch.dtype, str]]:
    """Name → type and digest, if they are what `fingerprints` wrote."""
    if not isinstance(wanted, dict):
        raise CaviaError(f"{path} is damaged: backbone must be a dictionary, got {shown(wanted)}")
    kinds = {}
    for name, kind in wanted.items():
        is_pair = isinstance(kind, list) and len(kind) == 2 and all(isinstance(part, str) for part in kind)
        dtype = getattr(torch, kind[0], None) if is_pair else None
        if not isinstance(dtype, torch.dtype) or not name.startswith(PREFIX) or name in tensors:
            raise CaviaError(f"{path} is damaged: backbone[{shown(name)}] must be a type and a digest")
        kinds[name] = dtype, kind[1]
    return kinds


def _checked(name: str, kind: tuple[torch.dtype, str], own: Mapping[str, Tensor], path: Path) -> Tensor | None:
    """The module's weight in the type that it had in the learner; None if it is another."""
    if name not in own:
        raise CaviaError(f"the module is not the one that {path} was trained on: it has no {name.removeprefix(PREFIX)}")
    dtype, wanted = kind
    value = own[name].to(dtype)
    return value if _digest(value) == wanted else None


def _type(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _digest(value: Tensor) -> str:
    return digest({"": value}, "")[:LENGTH]
