"""The nearest of many contexts: exact, one block of them in memory at a time."""

from collections.abc import Iterable

import torch
from torch import Tensor

QUERIES = 512  # compared with a block at a time: with blocks of 8192 contexts, 32 MB of distances

SMALLEST = 1e-140  # distances below may have lost digits: their squares are near the smallest numbers of float64
PAIRS = 2**16  # looked at again at a time


def nearest_rows(
    blocks: Iterable[tuple[Tensor, Tensor]], queries: Tensor, k: int, without: Tensor | None = None
) -> Tensor:
    """The k rows nearest to each query, in no particular order: [Q, k], or fewer columns if there are fewer rows.

    blocks:  row numbers [B] and their contexts [B, C], several times.
    queries: [Q, C] in float64, in which a distance by ‖b‖² − 2 q·b has more digits than a float32 context. Contexts
             in float64 have as many digits, and may be too large or too small to square: see `distances`.
    without: [Q], the row that a query must not find: itself.
    """
    best = torch.empty(len(queries), 0, dtype=torch.float64)
    rows = torch.empty(len(queries), 0, dtype=torch.int64)
    for numbers, contexts in blocks:
        exact = contexts.dtype == torch.float64
        contexts = contexts.double()
        norms = contexts.square().sum(1)  # [B]
        parts = []
        for part in torch.arange(len(queries)).split(QUERIES):
            if exact:
                apart = distances(queries[part], contexts)
            else:
                apart = torch.addmm(norms, queries[part], contexts.T, alpha=-2)  # squared, less ‖q‖²: [part, B]
            if without is not None:
                apart.masked_fill_(numbers == without[part, None], torch.inf)
            apart = torch.cat([best[part], apart], 1)
            near = apart.topk(min(k, apart.shape[1]), largest=False)
            candidates = torch.cat([rows[part], numbers.expand(len(part), -1)], 1)
            parts.append((near.values, candidates.gather(1, near.indices)))
        best, rows = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return rows


def distances(queries: Tensor, contexts: Tensor) -> Tensor:
    """Between each of [Q, C] and each of [B, C], in float64, whatever their size: [Q, B]."""
    apart = torch.cdist(queries, contexts, compute_mode="donot_use_mm_for_euclid_dist")
    place, other = (~((apart > SMALLEST) & apart.isfinite())).nonzero(as_tuple=True)  # lost when squared
    for part in torch.arange(len(place)).split(PAIRS):
        which = place[part], other[part]
        apart[which] = lengths(queries[which[0]] - contexts[which[1]])
    return apart


def lengths(vectors: Tensor) -> Tensor:
    """‖v‖ of each of [N, C], also where a square is no number of float64."""
    largest = vectors.abs().amax(1, keepdim=True).clamp(min=torch.finfo(vectors.dtype).tiny)
    return ((vectors / largest).norm(dim=1) * largest[:, 0]).nan_to_num(torch.inf, torch.inf)
