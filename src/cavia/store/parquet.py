"""Contexts as a Parquet file, for other programs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cavia.errors import CaviaError, missing_package, named
from cavia.store.layout import Layout
from cavia.tensor_file import replacing


def write_parquet(path: Path, blocks: Iterable[tuple[list[Any], Tensor]], layout: Layout, version: str) -> None:
    """Write ids and contexts [B, C], block by block, to the columns `id` and `context`, atomically.

    The model's version is in the file's metadata, as `cavia_model_version`. Bfloat16, which
    Parquet does not have, becomes float32.
    """
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise CaviaError(f"a store is exported to a .parquet file, got {named(path)}; choose another name")
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_package("export to Parquet", "pyarrow", "tables") from error
    dtype = torch.float32 if layout.dtype == torch.bfloat16 else layout.dtype
    id_type = pa.int64() if layout.kind == "int" else pa.string()
    context_type = pa.list_(pa.from_numpy_dtype(torch.empty(0, dtype=dtype).numpy().dtype), layout.size)
    schema = pa.schema([("id", id_type), ("context", context_type)], {"cavia_model_version": version})
    with replacing(path) as file, pq.ParquetWriter(file, schema) as writer:
        for ids, contexts in blocks:
            numbers = pa.array(contexts.to(dtype).flatten().numpy())
            contexts_column = pa.FixedSizeListArray.from_arrays(numbers, layout.size)
            writer.write_batch(pa.record_batch([pa.array(ids, id_type), contexts_column], schema))
