"""oneDNN's products in float32, for compiled graphs. Import it late: it loads the compiler.

PyTorch takes MKL's product. Its switches for oneDNN's change all products of the process, and mean bf16 elsewhere.
But some of its operators are oneDNN's and nothing else: layers with fixed weights, and convolutions.
"""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._inductor.ir import ExternKernel, TensorBox
from torch._inductor.lowering import fallback_handler, lowerings, register_lowering
from torch._inductor.mkldnn_ir import LinearUnary
from torch.fx import Graph, Node

from cavia.compiler.nodes import arguments, call, transposed

aten = torch.ops.aten
PROCESSOR = Path("/proc/cpuinfo")
LARGE, TALL = 10_000_000, 4  # multiplications, and times that a matrix is longer than wide, for oneDNN to be faster
NARROW = 16  # numbers in a row
ONE_BY_ONE = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False])  # a convolution's, for its weights
IMAGES, PIXELS = 16, 128  # fewer images PyTorch does not give to oneDNN; such small ones it is fastest with


@cache
def is_faster() -> bool:
    """Whether oneDNN has the better kernels for this processor: MKL has 512-bit vectors for Intel's only."""
    with suppress(OSError):
        is_amd = "AuthenticAMD" in PROCESSOR.read_text()
        return is_amd and torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return False


def take_over(graph: Graph) -> None:
    """Large products in float32 by oneDNN, where its operators take the factors as they lie in memory."""
    layers: dict[Node, Node] = {}  # b → its transpose, copied once for all products with b
    for node in graph.find_nodes(op="call_function", target=aten.mm.default):
        left, right = arguments(node)
        a, b = left.meta["val"], right.meta["val"]
        (n, k), m = a.shape, b.shape[1]
        if a.dtype != torch.float32 or n * k * m < LARGE or min(n, k, m) < NARROW:
            continue
        with graph.inserting_before(node):
            if n >= TALL * max(k, m) and a.is_contiguous():
                if right not in layers:
                    turned = transposed(graph, right)
                    layers[right] = call(graph, aten.clone.default, turned, memory_format=torch.contiguous_format)
                replacement = call(graph, product, left, layers[right])
            elif k >= TALL * max(n, m) and a.t().is_contiguous() and b.is_contiguous() and (images := _images(k)):
                replacement = call(graph, weight_gradient, transposed(graph, left), right, images)
            else:
                continue
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)


# Many rows times a small matrix, as of a layer


@torch.library.custom_op("cavia::onednn_product", mutates_args=())
def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """rows [N, K] · weightᵀ, weight [M, K] → [N, M]"""
    return torch.ops.mkldnn._linear_pointwise(rows, weight.contiguous(), None, "none", [], "")


@_product.register_fake
def _(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.new_empty(len(rows), len(weight))


product = torch.ops.cavia.onednn_product.default


@register_lowering(product, type_promotion_kind=None)
def _lowered(rows: Any, weight: Any) -> Any:
    """The call in C++. Inductor's own lowering of the operator wants a constant weight, to time candidates with."""
    return TensorBox.create(LinearUnary.create(rows, weight, None, "none", [], ""))


# A sum over many rows, as of the gradient of a layer's weights


def _images(rows: int) -> int | None:
    """The number of images of about `PIXELS` into which the rows can be cut, if any."""
    fitting = [n for n in range(IMAGES, rows) if rows % n == 0 and PIXELS / 2 <= rows / n <= 2 * PIXELS]
    return min(fitting, key=lambda n: abs(rows / n - PIXELS), default=None)


@torch.library.custom_op("cavia::onednn_weight_gradient", mutates_args=())
def _weight_gradient(outward: Tensor, inward: Tensor, images: int) -> Tensor:
    """outwardᵀ · inward, [K, N] and [K, M] → [N, M]: as of a 1×1 convolution of K pixels, M inputs and N outputs."""
    views = (part.view(images, 1, -1, part.shape[1]).permute(0, 3, 1, 2) for part in (outward, inward))
    n, m = outward.shape[1], inward.shape[1]
    weight = inward[:n].view(n, m, 1, 1)  # nothing but its shape is looked at
    return aten.convolution_backward(*views, weight, *ONE_BY_ONE)[1].view(n, m)


@_weight_gradient.register_fake
def _(outward: Tensor, inward: Tensor, images: int) -> Tensor:
    return outward.new_empty(outward.shape[1], inward.shape[1])


weight_gradient = torch.ops.cavia.onednn_weight_gradient.default


convolution_backward = fallback_handler(aten.convolution_backward.default, add_to_fallback_set=False)


@register_lowering(weight_gradient, type_promotion_kind=None)
def _lowered_gradient(outward: Any, inward: Any, images: int) -> Any:
    """The call in C++ on views. By its own lowering, the operator would be given copies."""
    n, m = outward.get_size()[1], inward.get_size()[1]
    views = []
    for rows in (outward, inward):
        rows = ExternKernel.require_contiguous(ExternKernel.realize_input(rows))
        box = rows if isinstance(rows, TensorBox) else TensorBox(rows)
        parts = lowerings[aten.view.default](box, [images, 1, -1, rows.get_size()[1]])
        views.append(lowerings[aten.permute.default](parts, [0, 3, 1, 2]))
    weight = lowerings[aten.view.default](lowerings[aten.slice.Tensor](inward, 0, 0, n), [n, m, 1, 1])
    gradient = convolution_backward(*views, weight, *ONE_BY_ONE)[1]
    return lowerings[aten.view.default](gradient, [n, m])
