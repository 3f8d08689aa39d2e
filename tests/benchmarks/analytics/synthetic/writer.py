"""Writes lake files with the shipper's metadata; ``seq`` counts per process."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from failback.client.consumelog.schema import arrow_schema
from failback.client.consumelog.upload.lake_files import lake_rows, write_parquet
from failback.client.consumelog.upload.layout import day_of, lake_path
from failback.client.consumelog.upload.segments import SEGMENT_KEY

ZERO_WALL_NS: Final = 1_700_000_000_000_000_000
HOST: Final = "h1"
FILE_ROWS: Final = 1 << 18
"""A file is written when it has at least so many rows."""
WAITING_ROWS: Final = 1 << 20
"""No more rows than this wait; the fullest file goes first."""


class Writer:
    """The files of one generated run: as a process writes them, rows of many queues in each."""

    def __init__(self, lake: Path, run: str, hosts: Mapping[int, str]) -> None:
        """Write below ``lake``; ``hosts`` names the host of processes that are not on the first."""
        self._lake = lake
        self._run = run
        self._hosts = hosts
        self.seq: Counter[int] = Counter()
        self._index: Counter[tuple[str, int]] = Counter()
        self._waiting: dict[tuple[str, int], list[pa.Table]] = defaultdict(list)
        self._rows: Counter[tuple[str, int]] = Counter()

    def add(self, table: str, proc: int, columns: Mapping[str, Any]) -> None:
        """Add rows of one process; columns that are not given are null."""
        count = len(next(iter(columns.values())))
        if not count:
            return
        schema = arrow_schema(table)
        arrays = [
            pa.nulls(count, f.type) if f.name not in columns else _cast(columns[f.name], f.type)
            for f in schema
        ]
        key = (table, proc)
        self._waiting[key].append(pa.table(arrays, names=schema.names))
        self._rows[key] += count
        if self._rows[key] >= FILE_ROWS:
            self._write(key)
        while self._rows.total() > WAITING_ROWS:
            self._write(max(self._rows, key=lambda key: (self._rows[key], key)))

    def close(self) -> None:
        """Write what waits; until then ``seq`` is not what it will be."""
        for key in sorted(self._waiting):
            self._write(key)

    def _write(self, key: tuple[str, int]) -> None:
        table, proc = key
        rows = pa.concat_tables(self._waiting.pop(key)).unify_dictionaries().combine_chunks()
        count = self._rows.pop(key)
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
        arrays = [
            _cast(common[f.name], f.type) if f.name in common else rows.column(f.name)
            for f in schema
        ]
        index = self._index[key]
        self._index[key] += 1
        segment = {
            "run": self._run, "proc": proc_id.hex(), "proc_no": proc, "role": "bench",
            "host": host, "index": index, "seq_lo": first, "seq_hi": first + count - 1,
            "rows": count, "records": count, "torn": 0,
        }  # fmt: skip
        meta = {**(schema.metadata or {}), SEGMENT_KEY.encode(): json.dumps(segment).encode()}
        path = self._lake / lake_path(table, self._run, proc, index, day_of(ZERO_WALL_NS))
        whole = pa.table(arrays, schema=schema.with_metadata(meta))
        write_parquet(lake_rows(whole, table), path)


def repeat(text: str, count: int) -> pa.Array:
    """The same name in every row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _cast(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(array.type):
        array = array.cast(pa.utf8()).dictionary_encode()
    return array.cast(kind) if array.type != kind else array
