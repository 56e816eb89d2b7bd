"""Attention that can be differentiated twice."""

import threading
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch import Tensor


class PlainAttention:
    """Attention kernels with second derivatives and vmap support, while someone needs them.

    Which kernels there are is a setting of the whole process, so the first who needs them sets it, and the last resets.
    """

    def __init__(self) -> None:
        self.lock, self.users, self.settings = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with self.lock:
            if self.users == 0:
                fused = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
                self.settings.callback(torch.backends.mha.set_fastpath_enabled, fused)
                self.settings.enter_context(sdpa_kernel(SDPBackend.MATH))
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.settings.close()


_plain_attention = PlainAttention()


def differentiable(*inputs: Tensor) -> AbstractContextManager[None]:
    """Attention that can be differentiated twice, where gradients or vmap are on."""
    transformed = any(torch._C._functorch.is_functorch_wrapped_tensor(value) for value in inputs)
    return _plain_attention if torch.is_grad_enabled() or transformed else nullcontext()
