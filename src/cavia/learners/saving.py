"""A learner in one file: weights as safetensors, the classes' names and arguments as JSON in its header."""

import inspect
import json
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from cavia.errors import CaviaError, closest
from cavia.learners.amortised import CNP
from cavia.learners.base import Learner
from cavia.learners.gradient import ANIL, CAVIA, MAML, CaviaMAML, MetaSGD
from cavia.learners.losses import PointLoss
from cavia.learners.metric import MatchingNets, ProtoNets
from cavia.learners.newton import GaussNewton
from cavia.learners.reptile import Reptile
from cavia.models.base import ContextModel
from cavia.models.basis import WaveBasis
from cavia.models.conditioned import Conditioned
from cavia.models.convnet import ConvNet
from cavia.models.mlp import MLP
from cavia.models.policy import CategoricalPolicy, GaussianPolicy
from cavia.tensor_file import digest, read_tensors, write_tensors

LEARNERS: dict[str, type[Learner]] = {
    cls.__name__: cls
    for cls in (ANIL, CAVIA, CNP, MAML, CaviaMAML, GaussNewton, MatchingNets, MetaSGD, ProtoNets, Reptile)
}
MODELS: dict[str, type[ContextModel]] = {
    cls.__name__: cls for cls in (CategoricalPolicy, ConvNet, GaussianPolicy, MLP, WaveBasis)
}
FORMAT = 1
VERSION_LENGTH = 16  # hexadecimal digits: two learners share a version by chance once in 10¹⁹ pairs


def describe(learner: Learner) -> dict[str, Any]:
    """The learner's classes and arguments as JSON values, enough to build it again without its weights."""
    model = learner.model
    return {
        "learner": type(learner).__name__,
        "arguments": learner.arguments,
        "loss": learner.loss if isinstance(learner.loss, str) else None,
        "model": type(model).__name__,
        "model_arguments": getattr(model, "arguments", {}),
    }


def version(learner: Learner) -> str:
    """A digest of the learner's weights, classes and arguments: a context is good for one version only."""
    return digest(learner.state_dict(), json.dumps(describe(learner), sort_keys=True))[:VERSION_LENGTH]


def save(learner: Learner, path: str | PathLike[str], extra: dict[str, Any] | None = None) -> None:
    """Write the learner to `path`, atomically; `extra` are JSON values to keep with it, for `read_extra`."""
    kept = {"extra": extra} if extra else {}
    write_tensors(Path(path), learner.state_dict(), {"format": FORMAT, **describe(learner), **kept})


def read_extra(path: str | PathLike[str]) -> dict[str, Any]:
    """What was saved with the learner as `extra`."""
    return read_tensors(Path(path))[1].get("extra", {})


def load(
    path: str | PathLike[str],
    model: ContextModel | None = None,
    loss: PointLoss | None = None,
    module: nn.Module | None = None,
) -> Learner:
    """The learner that `learner.save(path)` wrote. No code of the file is run.

    model:  the network to put the weights into, if it is of a class of your own.
    loss:   the loss, if it was a function of your own.
    module: the module that was given to `cavia.condition`, if the network was made by it; its weights are replaced.
    """
    path = Path(path)
    tensors, description = read_tensors(path)
    if description.get("format") != FORMAT:
        raise CaviaError(f"{path} has format {description.get('format')!r}, this version of cavia reads {FORMAT}")
    try:
        learner = build(description, model, loss, str(path), module)
    except CaviaError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CaviaError(f"{path} does not describe a learner ({error})") from error
    learner.to(next((tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), None))
    try:
        learner.load_state_dict(tensors)
    except RuntimeError as error:
        problem = str(error).splitlines()[-1].strip()
        raise CaviaError(f"the weights in {path} do not fit the network: {problem}") from error
    return learner


def build(
    description: dict[str, Any],
    model: ContextModel | None = None,
    loss: Any = None,
    where: str = "the description",
    module: nn.Module | None = None,
) -> Learner:
    """A new learner, with fresh weights, from what `describe` returned."""
    if model is None:
        name = description["model"]
        if name == Conditioned.__name__:
            model = _conditioned(description["model_arguments"], where, module)
        elif name not in MODELS:
            raise CaviaError(f"{where} needs its own network of class {name}: cavia.load(path, model={name}(…))")
        else:
            model = _construct(MODELS[name], description["model_arguments"], where)
    loss = loss or description["loss"]
    if loss is None:
        raise CaviaError(f"{where} was trained with a loss function of its own: cavia.load(path, loss=that_function)")
    name = description["learner"]
    if name not in LEARNERS:
        raise CaviaError(f"{where} has an unknown learner {name!r}; {closest(str(name), LEARNERS)}")
    return _construct(LEARNERS[name], {"model": model, "loss": loss, **description["arguments"]}, where)


def _conditioned(arguments: dict[str, Any], where: str, module: nn.Module | None) -> Conditioned:
    if module is None:
        layers = ", ".join(repr(site["layer"]) for site in arguments["sites"])
        raise CaviaError(f"{where} holds a module conditioned at {layers}: cavia.load(path, module=that_module)")
    try:
        return _construct(Conditioned, {"module": module, **arguments}, where)
    except CaviaError as error:
        raise CaviaError(f"the module does not fit {where}: {error}") from error


def _construct(cls: Any, arguments: dict[str, Any], where: str) -> Any:
    unknown = set(arguments) - set(inspect.signature(cls).parameters)
    if unknown:
        raise CaviaError(f"{where}: {cls.__name__} has no argument {sorted(unknown)[0]!r}")
    return cls(**arguments)
