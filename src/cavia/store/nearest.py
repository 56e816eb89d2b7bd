"""The nearest of many contexts: exact, one block of them in memory at a time."""

from collections.abc import Iterable

import torch
from torch import Tensor

QUERIES = 512  # compared with a block at a time: with blocks of 8192 contexts, 32 MB of distances


def nearest_rows(
    blocks: Iterable[tuple[Tensor, Tensor]], queries: Tensor, k: int, without: Tensor | None = None
) -> Tensor:
    """The k rows nearest to each query, in no particular order: [Q, k], or fewer columns if there are fewer rows.

    blocks:  row numbers [B] and their contexts [B, C], several times.
    queries: [Q, C] in float64, in which a distance by ‖b‖² − 2 q·b has more digits than a float32 context.
    without: [Q], the row that a query must not find: itself.
    """
    best = torch.empty(len(queries), 0, dtype=torch.float64)
    rows = torch.empty(len(queries), 0, dtype=torch.int64)
    for numbers, contexts in blocks:
        contexts = contexts.double()
        norms = contexts.square().sum(1)  # [B]
        parts = []
        for part in torch.arange(len(queries)).split(QUERIES):
            distances = torch.addmm(norms, queries[part], contexts.T, alpha=-2)  # squared, less ‖q‖²: [part, B]
            if without is not None:
                distances.masked_fill_(numbers == without[part, None], torch.inf)
            distances = torch.cat([best[part], distances], 1)
            near = distances.topk(min(k, distances.shape[1]), largest=False)
            candidates = torch.cat([rows[part], numbers.expand(len(part), -1)], 1)
            parts.append((near.values, candidates.gather(1, near.indices)))
        best, rows = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return rows
