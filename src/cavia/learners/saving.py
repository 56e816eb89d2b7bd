"""A learner in one file: weights as safetensors, the classes' names and arguments as JSON in its header."""

import json
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from cavia import building
from cavia.errors import CaviaError, shown
from cavia.kinds import checked
from cavia.learners.backbone import filled, fingerprints
from cavia.learners.base import Learner
from cavia.learners.losses import PointLoss
from cavia.learners.own_code import identity
from cavia.learners.rebuilding import built_to_fit
from cavia.models.base import ContextModel
from cavia.models.conditioned import Conditioned
from cavia.tensor_file import checked_path, digest, read_tensors, write_tensors

FORMAT = 1
VERSION_LENGTH = 16  # hexadecimal digits: two learners share a version by chance once in 10¹⁹ pairs


def describe(learner: Learner) -> dict[str, Any]:
    """The learner's classes and arguments as JSON values, enough to build it again without its weights."""
    model = learner.model
    try:
        model_arguments = model.arguments
    except (CaviaError, AttributeError):  # a network that does not say what it was built with: `load` asks for it
        model_arguments = {}
    named = isinstance(learner.loss, str)
    return {
        "learner": type(learner).__name__,
        "arguments": learner.arguments,
        "loss": learner.loss if named else None,
        **({} if named else {"loss_code": identity(learner.loss)}),
        "model": type(model).__name__,
        "model_arguments": model_arguments,
    }


def version(learner: Learner) -> str:
    """A digest of the learner's weights, classes, arguments and loss: a context is good for one version only."""
    return digest(learner.state_dict(), json.dumps(describe(learner), sort_keys=True))[:VERSION_LENGTH]


def save(
    learner: Learner, path: str | PathLike[str], extra: dict[str, Any] | None = None, backbone: bool = False
) -> None:
    """Write the learner to `path`, atomically; `extra` are JSON values to keep with it.

    backbone: with the frozen weights of a conditioned module, not only their fingerprints.
    """
    foreign = {"learner": building.module_of(type(learner)), "model": building.module_of(type(learner.model))}
    modules = {name: module for name, module in foreign.items() if module}
    frozen = [name for name, value in _parameters(learner) if not value.requires_grad]
    kept = ({"extra": extra} if extra else {}) | ({"modules": modules} if modules else {}) | {"frozen": frozen}
    elsewhere = {} if backbone else fingerprints(learner)
    description = {"format": FORMAT, **describe(learner), **kept, **({"backbone": elsewhere} if elsewhere else {})}
    tensors = {name: value for name, value in learner.state_dict().items() if name not in elsewhere}
    write_tensors(checked_path(path), tensors, description)


@checked
def load(
    path: str | PathLike[str],
    model: ContextModel | None = None,
    loss: PointLoss | None = None,
    module: nn.Module | None = None,
    learner: type[Learner] | None = None,
) -> Learner:
    """The learner that `learner.save(path)` wrote, in evaluation mode. The file runs no code and imports none.

    model:  the network to put the weights into, if its class is your own and is not imported, or cannot be built from
            its arguments.
    loss:   the loss, if it was a function of your own.
    module: the module that was given to `cavia.condition`, if the network was made by it. Its weights are replaced by
            those in the file; frozen ones, which are not in the file, must be those that it was trained on.
    learner: the class of the learner, if it is your own; not needed if it is imported.
    """
    return load_with_extra(path, model, loss, module, learner, of_table=False)[0]


def load_with_extra(
    path: str | PathLike[str],
    model: ContextModel | None = None,
    loss: PointLoss | None = None,
    module: nn.Module | None = None,
    learner: type[Learner] | None = None,
    of_table: bool = True,
) -> tuple[Learner, dict[str, Any]]:
    """The learner, and the JSON values that `save` was given as `extra`.

    of_table: False: refuse the model of a table, which is of no use without its columns, before it is built.
    """
    path = checked_path(path)
    tensors, description = read_tensors(path)
    if description.get("format") != FORMAT:
        raise CaviaError(f"{path} has format {shown(description.get('format'))}, this version of cavia reads {FORMAT}")
    kept = description.get("extra")
    if not of_table and isinstance(kept, dict) and "table" in kept:
        raise CaviaError(
            f"{path} is the model of a table, and needs its columns; use `cavia adapt` and `cavia predict` on it"
        )
    if "backbone" in description:
        tensors = filled(tensors, description["backbone"], module, model, path)
    loaded = built_to_fit(partial(build, description, model, loss, str(path), module, learner), tensors, path)
    loaded.load_state_dict(tensors)
    _freeze(loaded, description.get("frozen"), path)
    extra = description.get("extra", {})
    if not isinstance(extra, dict):
        raise CaviaError(f"{path} is damaged: extra must be a dictionary, got {shown(extra)}")
    return loaded.eval(), extra


def _freeze(learner: Learner, frozen: Any, path: Path) -> None:
    """Train exactly what was trainable when the learner was saved; older files do not say."""
    parameters = dict(_parameters(learner))
    if frozen is None:
        return
    if not isinstance(frozen, list) or not all(isinstance(name, str) and name in parameters for name in frozen):
        raise CaviaError(f"{path} is damaged: frozen must name parameters of the learner, got {shown(frozen)}")
    for name, value in parameters.items():
        if value.is_floating_point():
            value.requires_grad_(name not in frozen)


def _parameters(learner: Learner) -> Iterator[tuple[str, nn.Parameter]]:
    return learner.named_parameters(remove_duplicate=False)


def build(
    description: dict[str, Any],
    model: ContextModel | None = None,
    loss: Any = None,
    where: str = "the description",
    module: nn.Module | None = None,
    learner: type[Learner] | None = None,
) -> Learner:
    """A new learner, with fresh weights, from what `describe` returned."""
    modules = description.get("modules", {})
    if model is None:
        model = _model(description, where, module, modules.get("model"))
    loss = loss or description["loss"]
    if loss is None:
        raise CaviaError(f"{where} was trained with a loss function of its own: cavia.load(path, loss=that_function)")
    kind = learner or building.find(Learner, description["learner"], where, modules.get("learner"))
    return building.build(kind, description["arguments"], where, model=model, loss=loss)


def _model(description: dict[str, Any], where: str, module: nn.Module | None, place: str | None) -> ContextModel:
    name, arguments = description["model"], description["model_arguments"]
    if name == Conditioned.__name__:
        return _conditioned(arguments, where, module)
    missing = f"{where} needs its own network of class {name}: cavia.load(path, model={name}(…))"
    try:
        kind = building.find(ContextModel, name, where, place)
    except CaviaError as error:
        raise CaviaError(missing) from error
    if building.module_of(kind) and set(arguments) != set(building.argument_names(kind)):
        raise CaviaError(missing)  # it did not say what it was built with
    return building.build(kind, arguments, where)


def _conditioned(arguments: dict[str, Any], where: str, module: nn.Module | None) -> Conditioned:
    if module is None:
        layers = ", ".join(repr(site["layer"]) for site in arguments["sites"])
        raise CaviaError(f"{where} holds a module conditioned at {layers}: cavia.load(path, module=that_module)")
    try:
        return building.build(Conditioned, arguments, where, module=module)
    except CaviaError as error:
        raise CaviaError(f"the module does not fit {where}: {error}") from error
