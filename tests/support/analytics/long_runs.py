"""Runs that last: a few queues, looked at again and again, and messages sent back all the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from failback.client.consumelog.schema import TABLES, arrow_schema
from failback.client.consumelog.upload.lake_files import lake_rows
from failback.client.consumelog.upload.layout import day_of, lake_path
from tests.support.analytics.run_builder import ZERO_MONO_NS, ZERO_WALL_NS, RunBuilder

NS: Final = 1_000_000_000
QUEUES: Final = 4
FILE_ROWS: Final = 40_000
FIRST_INDEX: Final = 1
"""The builder's own rows of a process are its segment 0."""
MASTER: Final = "127.0.0.1:10911"
_COMMON: Final = {"run": "long", "wall_ns": ZERO_WALL_NS, "mono_ns": ZERO_MONO_NS, "host": "h"}


def long_run(folder: Path, looks: int, sent_back: int = 0) -> Path:
    """A run with so many looks, a second apart, into a master's table, and so many send-backs."""
    builder = RunBuilder("long")
    for number in range(QUEUES):
        builder.assign(1_000 * number, 0, proc=1, pqe=number, qid=number, src_addr=MASTER)
        builder.assign(1_000_000 + number, 0, proc=2, pqe=number, qid=number, src_addr=MASTER)
        builder.deliver(0, 10, 20, pqe=number, qid=number)
    builder.write(folder, manifest=False)
    second = np.repeat(np.arange(looks), QUEUES)
    qid = np.tile(np.arange(QUEUES), looks)
    look = {"addr": MASTER, "broker": "broker-a", "bid": 0, "binc": 1, "ptopic": "T", "qid": qid,
            "t": ZERO_MONO_NS + second * NS}  # fmt: skip
    _write(folder, "broker_offset_sample", 99,
           {**look, "source": "code43", "grp": "g", "off": 7 * second + qid})  # fmt: skip
    _write(folder, "broker_queue_sample", 99, {**look, "min": 0, "max": 9 * second})
    seconds = np.arange(looks)
    _write(folder, "rebalance", 1, {"grp": "g", "inc": 1, "ltopic": "T", "trigger": "TIMER",
           "t": ZERO_MONO_NS + 20 * seconds * NS, "members": [["c1", "c2"]] * looks, "queues": 4,
           "result": 0})  # fmt: skip
    numbers = np.arange(sent_back)
    _write(folder, "sendback", 1, {"lane": 7, "lseq": 20 * numbers, "grp": "g", "rt_next": 1,
           "reason": "FAIL", "path": "BROKER", "ok": True, "t0": ZERO_MONO_NS + numbers * NS // 10,
           "t1": ZERO_MONO_NS + numbers * NS // 10 + 1, "client_id": "c1"})  # fmt: skip
    return folder


def _write(folder: Path, table: str, proc: int, columns: dict[str, Any]) -> None:
    """Rows in files as a process writes them, one behind the other."""
    rows = max((len(value) for value in columns.values() if not isinstance(value, str | int)),
               default=0)  # fmt: skip
    schema = arrow_schema(table)
    whole = {**_COMMON, "proc": proc.to_bytes(16, "big"), "proc_no": proc, "seq": np.arange(rows)}
    whole |= columns
    for number, at in enumerate(range(0, rows, FILE_ROWS)):
        size = min(FILE_ROWS, rows - at)
        arrays = [_column(whole.get(c.name), schema.field(c.name).type, at, size)
                  for c in TABLES[table].columns]  # fmt: skip
        name = lake_path(table, "long", proc, FIRST_INDEX + number, day_of(ZERO_WALL_NS))
        path = folder / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(lake_rows(pa.table(arrays, schema=schema), table), path)


def _column(value: Any, kind: pa.DataType, at: int, size: int) -> pa.Array:
    if value is None or isinstance(value, str | bytes | int):
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.array([value], plain).take(pa.array(np.zeros(size, np.int64))).cast(kind)
    return pa.array(value[at : at + size], kind)
