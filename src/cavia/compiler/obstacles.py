"""Why a network is better left uncompiled."""

from torch import nn
from torch.nn.modules.conv import _ConvNd


def obstacle(module: nn.Module, loss: object) -> str | None:
    """The reason not to compile what the module computes, unless its owner knows better; None: there is none."""
    for one in module.modules():
        if type(one).__module__.split(".")[0] not in ("torch", "cavia"):
            return f"{type(one).__name__} is your own code, which may compute other things at other times"
    if callable(loss):
        return "the loss is your own code, which may compute other things at other times"
    on_cpu = all(value.device.type == "cpu" for value in (*module.parameters(), *module.buffers()))
    if on_cpu and any(isinstance(one, _ConvNd) for one in module.modules()):
        return "convolutions are slower compiled than as they are on a processor"
    return None
