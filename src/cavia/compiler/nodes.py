"""Nodes of a graph that is being rewritten."""

from typing import Any

import torch
from torch.fx import Graph, Node


def arguments(node: Node) -> tuple[Any, ...]:
    """node.args, typed so that callers need not narrow it."""
    return node.args


def call(graph: Graph, function: Any, *arguments: Any, **options: Any) -> Node:
    """A node for function(*arguments, **options), with what the compiler wants to know of its value."""
    node = graph.call_function(function, arguments, options)
    node.meta["val"] = function(*(one.meta["val"] if isinstance(one, Node) else one for one in arguments), **options)
    return node


def transposed(graph: Graph, matrices: Node) -> Node:
    """Each matrix of [..., N, M] transposed, [..., M, N]."""
    *tasks, rows, columns = range(matrices.meta["val"].ndim)
    return call(graph, torch.ops.aten.permute.default, matrices, [*tasks, columns, rows])
