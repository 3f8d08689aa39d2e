"""Writes lake files with the shipper's metadata; ``seq`` counts per process."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from failback.client.consumelog.lake_files import write_parquet
from failback.client.consumelog.schema import arrow_schema
from failback.client.consumelog.segments import SEGMENT_KEY

ZERO_WALL_NS: Final = 1_700_000_000_000_000_000
HOST: Final = "h1"


class Writer:
    """The files of one generated run; one file per call of :meth:`add`."""

    def __init__(self, lake: Path, run: str, hosts: Mapping[int, str]) -> None:
        """Write below ``lake``; ``hosts`` names the host of processes that are not on the first."""
        self._lake = lake
        self._run = run
        self._hosts = hosts
        self.seq: Counter[int] = Counter()
        self._index: Counter[tuple[str, int]] = Counter()

    def add(self, table: str, proc: int, columns: Mapping[str, Any]) -> None:
        """Add rows of one process; columns that are not given are null."""
        count = len(next(iter(columns.values())))
        if not count:
            return
        schema = arrow_schema(table)
        first = self.seq[proc] + 1
        self.seq[proc] += count
        proc_id = hashlib.blake2b(f"{self._run}/{proc}".encode(), digest_size=16).digest()
        host = self._hosts.get(proc, HOST)
        common = {
            "run": repeat(self._run, count),
            "proc": pa.array([proc_id], pa.binary(16)).take(pa.array(np.zeros(count, np.int32))),
            "proc_no": np.full(count, proc, np.int32),
            "seq": np.arange(first, first + count),
            "wall_ns": np.full(count, ZERO_WALL_NS),
            "mono_ns": np.zeros(count, np.int64),
            "host": repeat(host, count),
        }
        given = {**common, **columns}
        arrays = [
            pa.nulls(count, f.type) if f.name not in given else _cast(given[f.name], f.type)
            for f in schema
        ]
        index = self._index[table, proc]
        self._index[table, proc] += 1
        segment = {
            "run": self._run, "proc": proc_id.hex(), "proc_no": proc, "role": "bench",
            "host": host, "index": index, "seq_lo": first, "seq_hi": first + count - 1,
            "rows": count, "records": count, "torn": 0,
        }  # fmt: skip
        meta = {**(schema.metadata or {}), SEGMENT_KEY.encode(): json.dumps(segment).encode()}
        path = self._lake / f"table={table}" / f"run={self._run}"
        whole = pa.table(arrays, schema=schema.with_metadata(meta))
        write_parquet(whole, path / f"part-{proc:05d}-{index:08d}.parquet")


def repeat(text: str, count: int) -> pa.Array:
    """The same name in every row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _cast(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(array.type):
        array = array.cast(pa.utf8()).dictionary_encode()
    return array.cast(kind) if array.type != kind else array
