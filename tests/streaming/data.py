"""Data sets of sine tasks in Parquet files."""

import pyarrow as pa
import pyarrow.parquet as parquet
import torch

import cavia


def sines(tasks, points=5, seed=0):
    """x and y [T, K, 1] of sine curves."""
    batch = cavia.Sine().sample(tasks, points, 1, torch.Generator().manual_seed(seed))
    return batch.support_x, batch.support_y


def write_lists(folder, tasks, files=2, rows=4, points=5):
    """One row a task, its points in lists."""
    folder.mkdir(parents=True, exist_ok=True)
    x, y = sines(tasks, points)
    table = pa.table({"task": list(range(tasks)), "x": x.tolist(), "y": y[..., 0].tolist()})
    each = -(-tasks // files)
    for i in range(files):
        parquet.write_table(table.slice(i * each, each), folder / f"{i}.parquet", row_group_size=rows)
    return x, y


def write_rows(folder, tasks, files=2, rows=7, points=5):
    """One row a point."""
    folder.mkdir(parents=True, exist_ok=True)
    x, y = sines(tasks, points)
    names = [f"user {task}" for task in range(tasks) for _ in range(points)]
    table = pa.table({"user": names, "x": x.flatten().tolist(), "y": y.flatten().tolist()})
    each = -(-tasks // files) * points
    for i in range(files):
        parquet.write_table(table.slice(i * each, each), folder / f"{i}.parquet", row_group_size=rows)
    return table
