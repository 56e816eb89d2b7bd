"""How wide the vectors are that a compiled step computes with."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

WIDE, NARROW = 512, 256  # bits


def vectors(graph: GraphModule) -> dict[str, Any]:
    """Inductor's option for a processor with 512-bit vectors: shorter ones if those fit the rows of this graph better.

    What is left of a row behind its last whole vector is often computed number by number: of 40 numbers in float32
    that is 8 behind two wide vectors, and none behind five narrow ones.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return {}
    return {"cpp.simdlen": NARROW} if _operations(graph, NARROW) < _operations(graph, WIDE) else {}


def _operations(graph: GraphModule, bits: int) -> int:
    """Vectors, and numbers behind them, in all that the graph computes."""
    count = 0
    for part in (module for module in graph.modules() if isinstance(module, GraphModule)):
        for node in part.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
                row = value.shape[-1] if value.ndim else 1
                lanes = bits // (8 * value.element_size())
                count += value.numel() // row * (row // lanes + row % lanes)
    return count
