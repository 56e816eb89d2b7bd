"""Describes how a table was read: one line for each column."""

import numpy as np

from cavia.tables.cells import shown_cell
from cavia.tables.columns import Category, Column, Date
from cavia.tables.encoding import Encoding
from cavia.tables.reading import Table
from cavia.tables.values import dates, labels, numbers

SHOWN = 5  # categories


def describe_columns(encoding: Encoding, table: Table) -> str:
    """Name, use and type of each column that is used, and what it holds: a range, or how many categories."""
    lines = [(encoding.task, "task", f"{len(set(table.names(encoding.task)))} of them in {table.rows} rows")]
    lines += [(one.name, one.kind, _held(one, table)) for one in encoding.inputs]
    for one in encoding.targets:
        lines.append((one.name, f"target, {one.kind}", _held(one, table) + _advice(one, table)))
    lines = [(shown_cell(name)[1:-1], kind, held) for name, kind, held in lines]
    wide, wider = (max(len(line[i]) for line in lines) for i in (0, 1))
    return "\n".join(f"  {name:{wide}}  {kind:{wider}}  {held}" for name, kind, held in lines)


def _held(column: Column, table: Table) -> str:
    if isinstance(column, Category):
        column_labels = labels(table[column.name])
        missing = sum(label is None for label in column_labels)
        count = len({label for label in column_labels if label is not None})
        some = ", ".join(
            shown_cell(level)[1:-1] for level in sorted({label for label in column_labels if label})[:SHOWN]
        )
        held = f"{count} categories: {some}{', …' * (count > SHOWN)}"
    elif isinstance(column, Date):
        known = [date for date in dates(table, column.name) if date]
        missing = table.rows - len(known)
        form = "%Y-%m-%d %H:%M" if column.has_time else "%Y-%m-%d"
        held = f"{min(known).strftime(form)} to {max(known).strftime(form)}" if known else "none"
    else:
        values = numbers(table, column.name)
        missing = int(np.isnan(values).sum())
        held = f"{np.nanmin(values):g} to {np.nanmax(values):g}" if missing < table.rows else "none"
    return held + (f"; {missing} missing" if missing else "")


def _advice(target: Column, table: Table) -> str:
    is_numbers = isinstance(target, Category) and set(target.levels) == {"0", "1"}
    return "; 0 and 1 are classes, --regression makes them numbers" if is_numbers else ""
