"""A part's rows as tables of whole tasks, about a row group each."""

from collections.abc import Iterator, Sequence
from typing import Any

from cavia.streaming.files import Part, opened


def chunks(part: Part, task: str, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """pyarrow tables that hold all rows of their tasks, in the order of the file; two row groups are in memory.

    task:    the column that names the task.
    columns: to read, by default all.
    """
    import pyarrow as pa

    with opened(part.file) as there:
        rest, is_skipping = None, part.skip is not None
        for group in range(part.first, there.num_row_groups):
            table = there.read_row_group(group, columns=columns)
            if is_skipping:
                begun_before = _leading(table.column(task), part.skip)
                is_skipping = begun_before == len(table)
                table = table.slice(begun_before)
            if group >= part.last:  # what belongs to the last task
                if rest is None:
                    return
                count = _leading(table.column(task), rest.column(task)[-1])
                rest = pa.concat_tables([rest, table.slice(0, count)])
                if count < len(table):
                    break
                continue
            whole = table if rest is None else pa.concat_tables([rest, table])
            cut = 0 if group == part.last - 1 else _last_begin(whole.column(task))
            if cut:
                yield whole.slice(0, cut)
            rest = whole.slice(cut) if len(whole) > cut else None
        if rest is not None:
            yield rest


def _leading(names: Any, name: Any) -> int:
    """How many of the first rows are of that task."""
    from pyarrow import compute

    other = compute.index(compute.equal(names, name), False).as_py()
    return len(names) if other == -1 else other


def _last_begin(names: Any) -> int:
    """The row at which the last task begins."""
    from pyarrow import compute

    if len(names) < 2:
        return 0
    changes = compute.indices_nonzero(compute.not_equal(names[1:], names[:-1]))
    return changes[-1].as_py() + 1 if len(changes) else 0
