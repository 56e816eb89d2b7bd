"""What the contexts of a store have in common, and how they become bytes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cavia.errors import CaviaError
from cavia.learners.adapted import CONTEXT, Adapted
from cavia.store.ids import first_few
from cavia.tasks.batch import shape

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


class Layout(NamedTuple):
    """One kind of ids, and contexts of one type and size; the first `put` into a store decides it."""

    kind: str  # "int" or "str"
    dtype: torch.dtype
    size: int  # C

    @classmethod
    def of(cls, ids: Sequence[Any], contexts: Tensor) -> "Layout":
        """ids [T], contexts [T, C]; T must be at least 1."""
        return cls(type(ids[0]).__name__, contexts.dtype, contexts.shape[1])

    @property
    def length(self) -> int:
        """Bytes of one context."""
        return self.size * self.dtype.itemsize

    def check(self, other: "Layout", where: object) -> None:
        """Raise unless contexts of the other layout can be put here."""
        self.check_kind(other.kind, where)
        if other.size != self.size:
            raise CaviaError(f"{where} holds contexts of {self.size} numbers, got {other.size}")
        if other.dtype != self.dtype:
            raise CaviaError(f"{where} holds {self.dtype}, got {other.dtype}; contexts.to({self.dtype}) converts")

    def check_kind(self, kind: str, where: object) -> None:
        if kind != self.kind:
            raise CaviaError(f"the ids of {where} are {self.kind}, got {kind}")

    def pack(self, contexts: Tensor) -> list[memoryview]:
        """The bytes of each of the contexts [T, C], which must be on the CPU and contiguous. Nothing is copied."""
        content = memoryview(contexts.view(torch.uint8).numpy().data).cast("B")
        return [content[start : start + self.length] for start in range(0, len(content), self.length)]

    def unpack(self, contexts: Sequence[bytes]) -> Tensor:
        """[T, C], from what `pack` made."""
        if not contexts:
            return torch.empty(0, self.size, dtype=self.dtype)
        return torch.frombuffer(bytearray(b"".join(contexts)), dtype=self.dtype).view(-1, self.size)


def checked_contexts(ids: Sequence[Any], contexts: Tensor | Adapted, size: int | None) -> Tensor:
    """The contexts of these T tasks as one block of memory, [T, C], if they can be stored.

    contexts: [T, C], or what `adapt` returned. size: C, if it is known.
    """
    if isinstance(contexts, Adapted):
        held = [*contexts.keys(), *(["statistics"] if contexts.statistics is not None else [])]
        if held != [CONTEXT]:
            raise CaviaError(
                f"a store holds contexts alone, but these tasks have {first_few(sorted(held))}: "
                "they could not be restored"
            )
        contexts = contexts.context
    got = type(contexts).__name__
    if isinstance(contexts, Tensor):
        got = f"{contexts.dtype} {shape(contexts)}"
        size = size or (contexts.shape[-1] if contexts.ndim else None)
        fits = contexts.shape == (len(ids), size) and size and contexts.dtype in DTYPES.values()
        if fits and has_numbers(contexts):
            contexts = contexts.detach().cpu().contiguous()
            _check_finite(ids, contexts)
            return contexts
    raise CaviaError(
        f"contexts must be a floating-point tensor [{len(ids)}, {size or 'C'}], one row per id; got {got}, and "
        f"{len(ids)} ids"
    )


def has_numbers(tensor: Tensor) -> bool:
    """Whether the tensor is an ordinary one, neither sparse nor on the meta device."""
    return tensor.layout == torch.strided and not tensor.is_meta


def _check_finite(ids: Sequence[Any], contexts: Tensor) -> None:
    finite = contexts.isfinite().all(1)
    if not finite.all():
        wrong = [one for one, fine in zip(ids, finite.tolist(), strict=True) if not fine]
        raise CaviaError(f"{len(wrong)} of {len(ids)} contexts are not finite, those of {first_few(wrong)}")
