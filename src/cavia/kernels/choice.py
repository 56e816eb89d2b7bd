"""Chooses how to compute an operation: by our own kernel or by PyTorch's operations."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from cavia.errors import require_one_of
from cavia.kernels.build import library
from cavia.kernels.stem import Layers

FUSED, PLAIN = KERNELS = ("fused", "plain")
_chosen: ContextVar[str] = ContextVar("kernel", default=FUSED)


@contextmanager
def using(kernel: str) -> Iterator[None]:
    """Inside: "plain", PyTorch's operations only, or "fused", our own kernels wherever they apply."""
    require_one_of("kernel", kernel, KERNELS)
    before = _chosen.set(kernel)
    try:
        yield
    finally:
        _chosen.reset(before)


def available() -> str:
    """What a new run takes: "plain" if that was chosen or the kernels cannot be built."""
    return FUSED if _chosen.get() == FUSED and library() is not None else PLAIN


def may_fuse(x: Tensor, layers: Layers) -> bool:
    """Whether the fused stem gives what PyTorch's operations would, here and now; not where x wants a gradient."""
    return not x.requires_grad and x.numel() > 0 and is_float_on_cpu(x) and is_ready(layers)


def is_ready(layers: Layers) -> bool:
    """`may_fuse` for valid pictures."""
    return may_use(*(part for layer in layers for part in layer))


def may_use(*tensors: Tensor) -> bool:
    """Whether our own kernels give what PyTorch's operations on these tensors would, here and now.

    They do not for other devices and types, or if somebody looks at the single operations: transforms of torch.func,
    compilers, counters of operations, automatic casts.
    """
    return (
        _chosen.get() == FUSED
        and not torch._C._are_functorch_transforms_active()
        and not _is_watched()
        and all(map(is_float_on_cpu, tensors))
        and library() is not None
    )


def may_pool_first(x: Tensor, weight: Tensor, gamma: Tensor) -> bool:
    """Whether weights adapt here, by gradients through torch.func, and a block may pool before it norms."""
    if _chosen.get() == PLAIN or not torch._C._are_functorch_transforms_active():
        return False
    transforms = {interpreter.key() for interpreter in torch._C._functorch.get_interpreter_stack() or ()}
    return (
        transforms == {torch._C._functorch.TransformType.Grad}
        and torch._C._functorch.is_functorch_wrapped_tensor(weight)
        and not _is_watched()
        and all(is_float_on_cpu(tensor) for tensor in (x, weight, gamma))
        and not bool((gamma == 0).any())  # PyTorch's pooling would take the largest place, not the first
        and library() is not None
    )


def has_hooks(module: nn.Module) -> bool:
    """Whether the module has hooks, or a replaced forward."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in module.__dict__


def _is_watched() -> bool:
    return bool(
        torch.compiler.is_compiling()
        or torch.jit._trace.is_tracing()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled("cpu")
    )


def is_float_on_cpu(tensor: Tensor) -> bool:
    """Whether the kernels can read the tensor: float32 in the processor's memory, and no subclass of Tensor."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
    )
