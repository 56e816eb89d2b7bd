"""The contexts of a whole store in memory, for searches that follow each other."""

from collections.abc import Iterable

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.store.layout import Layout
from cavia.store.nearest import nearest_rows

MOST_BYTES = 512 * 1024**2  # of contexts: a larger store is read from the disk for every search
COMPARED = 2**23  # distances in memory at a time
MOST_CANDIDATES = 1024  # more than k: beyond this, float32 does not tell the nearest from the rest
HALF_STEP = 2.0**-24  # relative error of a float32 number
SMALLEST = 1e-37  # squares below may have lost digits in float32


class Matrix:
    """N contexts [N, C] and the numbers of their rows.

    Contexts of up to 32 bits are kept in float32, relative to a centre. A search among them gives a few more rows than
    asked for: all that can be among the nearest, given what float32 may lose. Those in float64 are compared exactly.
    """

    def __init__(self, layout: Layout, count: int, blocks: Iterable[tuple[Tensor, Tensor]]):
        """blocks: row numbers [B] and contexts [B, C] of all `count` rows."""
        self.exact = layout.dtype == torch.float64
        self.numbers = torch.empty(count, dtype=torch.int64)
        self.contexts = torch.empty(count, layout.size, dtype=torch.float64 if self.exact else torch.float32)
        self.centre, start = torch.zeros(layout.size, dtype=torch.float64), 0
        for numbers, contexts in blocks:
            if not start and not self.exact:
                self.centre = contexts.double().mean(0)
            end = start + len(numbers)
            if end > count:
                break
            self.numbers[start:end] = numbers
            self.contexts[start:end] = contexts.double() - self.centre
            start = end
        if start != count:  # an index of a damaged file counts others than there are
            raise CaviaError(f"the store is damaged: it counts {count} contexts and has others; restore it from a copy")
        # Each square distance ‖b‖² − 2 q·b, less ‖q‖², is off by at most loss · (‖b‖² + ‖q‖²).
        self.loss = 2 * (layout.size + 8) * HALF_STEP
        self.squares = torch.empty(0) if self.exact else torch.linalg.vecdot(self.contexts, self.contexts)  # [N]
        self.least = self.squares * (1 - self.loss)

    @staticmethod
    def fits(layout: Layout, count: int) -> bool:
        return count > 0 and count * layout.size * max(4, layout.dtype.itemsize) <= MOST_BYTES

    def nearest(self, queries: Tensor, k: int) -> list[list[int]] | None:
        """Numbers of rows among which the k nearest to each of queries [Q, C] are; None if float32 cannot tell."""
        neighbours = []
        for part in queries.split(max(1, COMPARED // len(self.numbers))):
            if self.exact:
                neighbours += nearest_rows([(self.numbers, self.contexts)], part, k).tolist()
                continue
            centred = (part - self.centre).float()  # [part, C]
            least = torch.addmm(self.least, centred, self.contexts.T, alpha=-2)  # [part, N]
            for one, low in zip(centred, least, strict=True):
                near = self._candidates(low, one.square().sum(), k)
                if near is None:
                    return None
                neighbours.append(self.numbers[near].tolist())
        return neighbours

    def _candidates(self, low: Tensor, square: Tensor, k: int) -> Tensor | None:
        """Places of what may be among the k nearest to a query. low: no more than each distance [N]; square: ‖q‖²."""
        best = low.topk(min(k, len(low)), largest=False)
        high = (best.values + 2 * self.loss * self.squares[best.indices]).max()  # at least the k-th distance
        high = high + 2 * self.loss * square + len(self.centre) * SMALLEST
        if not high.isfinite():
            return None
        near = (low <= high).nonzero()[:, 0]
        return near if len(near) <= k + MOST_CANDIDATES else None
