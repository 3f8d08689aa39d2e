"""How a file of the lake is written that does not fit into memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from failback.client.consumelog.upload.lake_files import ZSTD_LEVEL


def lake_writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """What writes rows of this schema as ``parquet_bytes`` does."""
    names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=names,
        write_page_index=True,
        store_schema=True,
    )
