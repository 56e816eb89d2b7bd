"""The rows of a store: an id, its context, and a checksum of both that is compared whenever they are read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from torch import Tensor

from cavia.errors import CaviaError, shown
from cavia.store.ids import first_few
from cavia.store.layout import DTYPES, Layout

Row: TypeAlias = tuple[Any, Any, Any]  # id, context, checksum
KINDS = ("int", "str")  # of ids
FIRST_ROW, LAST_ROW = -(2**63), 2**63 - 1


class Rows(NamedTuple):
    """The content of a store's rows, and how damage is detected.

    version: of the learner. It is part of every checksum, as are the type and the size of contexts.
    where:   the store, for messages.
    summed:  whether rows have checksums: those of files that earlier versions wrote have none until the next write.
    """

    layout: Layout
    version: str
    where: Path | str
    summed: bool

    @classmethod
    def of(cls, about: dict[str, Any], where: Path | str, summed: bool) -> "Rows | None":
        """From the store's metadata; None until something was put."""
        if "kind" not in about:
            return None
        kind, dtype, size = about["kind"], about.get("dtype"), about.get("size")
        if kind not in KINDS or dtype not in DTYPES or not isinstance(size, int) or size < 1:
            wrong = {name: value for name, value in about.items() if name != "version"}
            raise CaviaError(f"{where} is damaged: it says of its contexts {shown(wrong)}; restore it from a copy")
        return cls(Layout(kind, DTYPES[dtype], size), about["version"], where, summed)

    def packed(self, ids: Sequence[Any], contexts: Tensor) -> Iterator[Row]:
        """T rows to write, of contexts [T, C] on the CPU, in one block of memory."""
        start = self._start
        for one, context in zip(ids, self.layout.pack(contexts), strict=True):
            yield one, context, _checksum(one, context, start)

    def contexts(self, rows: Sequence[Row]) -> Tensor:
        """The contexts [T, C] of T rows, if they are what was put."""
        length, start, summed = self.layout.length, self._start, self.summed
        wrong = [
            one
            for one, context, checksum in rows
            if type(context) is not bytes
            or len(context) != length
            or (summed and checksum != _checksum(one, context, start))
        ]
        if wrong:
            raise self.damaged(wrong)
        return self.layout.unpack([context for _, context, _ in rows])

    def checksum(self, id: Any, context: bytes) -> int:
        """What is kept next to a context."""
        return _checksum(id, context, self._start)

    def damaged(self, ids: Sequence[Any]) -> CaviaError:
        return CaviaError(
            f"{self.where} is damaged: the contexts of {len(ids)} ids differ from those put, {first_few(ids)}; "
            "adapt to these tasks again and put them, or restore the file from a copy"
        )

    @property
    def _start(self) -> int:
        """What all checksums begin with."""
        return crc32(f"{self.version} {self.layout.dtype} {self.layout.size} ".encode())


def _checksum(id: Any, context: bytes | memoryview, start: int) -> int:
    return crc32(context, crc32(str(id).encode(errors="surrogatepass"), start))
