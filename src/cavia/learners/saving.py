"""A learner in one file: weights as safetensors, the classes' names and arguments as JSON in its header."""

import json
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from cavia import building
from cavia.errors import CaviaError
from cavia.learners.base import Learner
from cavia.learners.losses import PointLoss
from cavia.models.base import ContextModel
from cavia.models.conditioned import Conditioned
from cavia.tensor_file import digest, read_tensors, write_tensors

FORMAT = 1
VERSION_LENGTH = 16  # hexadecimal digits: two learners share a version by chance once in 10¹⁹ pairs


def describe(learner: Learner) -> dict[str, Any]:
    """The learner's classes and arguments as JSON values, enough to build it again without its weights."""
    model = learner.model
    try:
        model_arguments = model.arguments
    except (CaviaError, AttributeError):  # a network that does not say what it was built with: `load` asks for it
        model_arguments = {}
    return {
        "learner": type(learner).__name__,
        "arguments": learner.arguments,
        "loss": learner.loss if isinstance(learner.loss, str) else None,
        "model": type(model).__name__,
        "model_arguments": model_arguments,
    }


def version(learner: Learner) -> str:
    """A digest of the learner's weights, classes and arguments: a context is good for one version only."""
    return digest(learner.state_dict(), json.dumps(describe(learner), sort_keys=True))[:VERSION_LENGTH]


def save(learner: Learner, path: str | PathLike[str], extra: dict[str, Any] | None = None) -> None:
    """Write the learner to `path`, atomically; `extra` are JSON values to keep with it."""
    foreign = {"learner": building.module_of(type(learner)), "model": building.module_of(type(learner.model))}
    modules = {name: module for name, module in foreign.items() if module}
    kept = ({"extra": extra} if extra else {}) | ({"modules": modules} if modules else {})
    write_tensors(Path(path), learner.state_dict(), {"format": FORMAT, **describe(learner), **kept})


def load(
    path: str | PathLike[str],
    model: ContextModel | None = None,
    loss: PointLoss | None = None,
    module: nn.Module | None = None,
    learner: type[Learner] | None = None,
) -> Learner:
    """The learner that `learner.save(path)` wrote, in evaluation mode. No code of the file is run, and none imported.

    model:  the network to put the weights into, if it is of a class of your own that cannot be built from what it says
            of itself, or is not imported.
    loss:   the loss, if it was a function of your own.
    module: the module that was given to `cavia.condition`, if the network was made by it; its weights are replaced.
    learner: the class of the learner, if it is your own; not needed if it is imported.
    """
    found, extra = load_with_extra(path, model, loss, module, learner)
    if "table" in extra:
        raise CaviaError(
            f"{path} is the model of a table, and needs its columns; use `cavia adapt` and `cavia predict` on it"
        )
    return found


def load_with_extra(
    path: str | PathLike[str],
    model: ContextModel | None = None,
    loss: PointLoss | None = None,
    module: nn.Module | None = None,
    learner: type[Learner] | None = None,
) -> tuple[Learner, dict[str, Any]]:
    """The learner, and the JSON values that `save` was given as `extra`."""
    path = Path(path)
    tensors, description = read_tensors(path)
    if description.get("format") != FORMAT:
        raise CaviaError(f"{path} has format {description.get('format')!r}, this version of cavia reads {FORMAT}")
    try:
        found = build(description, model, loss, str(path), module, learner)
    except CaviaError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CaviaError(f"{path} does not describe a learner ({error})") from error
    found.to(next((tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), None))
    try:
        found.load_state_dict(tensors)
    except RuntimeError as error:
        problem = str(error).splitlines()[-1].strip()
        raise CaviaError(f"the weights in {path} do not fit the network: {problem}") from error
    extra = description.get("extra", {})
    if not isinstance(extra, dict):
        raise CaviaError(f"{path} does not describe a learner (extra is {type(extra).__name__})")
    return found.eval(), extra


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
