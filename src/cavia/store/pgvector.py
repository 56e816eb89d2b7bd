"""Contexts as vectors of pgvector, and how far its distances can be trusted."""

import torch
from torch import Tensor

from cavia.store.layout import Layout

INSTALLED = "SELECT 1 FROM pg_extension WHERE extname = 'vector'"
HAS_VECTORS = "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'near' AND NOT attisdropped"
FARTHEST = (
    "SELECT max(apart) FROM (SELECT near <-> %s::vector AS apart FROM {table} ORDER BY apart LIMIT %s) AS nearest"
)
WITHIN = "SELECT number FROM {table} WHERE near <-> %s::vector <= %s"
MOST_NUMBERS = 16_000  # of a vector
LARGEST = 1e18  # distances: the squares of larger ones leave the range of float32
SMALLEST = 1e-18  # squares of smaller ones lose digits
HALF_STEP = 2.0**-24  # relative error of a float32 number


def can_compare(layout: Layout) -> bool:
    """Whether float32 holds these contexts."""
    return layout.dtype != torch.float64 and layout.size <= MOST_NUMBERS


def as_text(contexts: Tensor) -> list[str]:
    """Each of [T, C] as pgvector reads it; float32 numbers come back to the bit."""
    return [str(context) for context in contexts.double().tolist()]


def as_bytes(contexts: Tensor) -> list[bytes]:
    """Each of [T, C] as pgvector receives it: the size and a zero in 16 bits, then big-endian float32 numbers."""
    head = contexts.shape[1].to_bytes(2, "big") + b"\0\0"
    return [head + row.tobytes() for row in contexts.float().numpy().astype(">f4")]


def farthest(last: float, query: Tensor) -> float:
    """The largest distance by pgvector of any that truly are among the k nearest to query [C].

    last: the k-th smallest distance by pgvector. One of C numbers is off by a share of at most (C + 4) half steps, and
    by what rounding the query to float32 changes.
    """
    share = (len(query) + 4) * HALF_STEP
    rounded = HALF_STEP * float(query.norm()) + len(query) * SMALLEST
    return last * (1 + 3 * share) + 3 * rounded
