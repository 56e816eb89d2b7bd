"""Why a network is better left uncompiled."""

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

TESTED = "2.13"  # the version of PyTorch whose private functions, the tracer's and Inductor's, we know


def obstacle(module: nn.Module, loss: object) -> str | None:
    """The reason not to compile the module, unless its owner knows better; None: there is none."""
    return doubt(module, loss) or drawback(module)


def doubt(module: nn.Module, loss: object) -> str | None:
    """Why the compiled function might not be the same; only the owner can know."""
    for one in module.modules():
        if type(one).__module__.split(".")[0] not in ("torch", "cavia"):
            return f"{type(one).__name__} is your own code, which may compute different things at different times"
    if callable(loss):
        return "the loss is your own code, which may compute different things at different times"
    version = ".".join(torch.__version__.split(".")[:2])
    if version != TESTED:
        return f"this is PyTorch {version}, and its compiler was tested with {TESTED} only"
    return None


def drawback(module: nn.Module) -> str | None:
    """Why the compiled function would be the same, but slower."""
    on_cpu = all(value.device.type == "cpu" for value in (*module.parameters(), *module.buffers()))
    if on_cpu and any(isinstance(one, _ConvNd) for one in module.modules()):
        return "on a CPU, compiled convolutions are slower than uncompiled ones"
    return None
