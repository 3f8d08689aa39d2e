"""Seals finished hot log files into Parquet files of the lake.

    lake/table=<t>/run=<id>/part-<proc_no>-<index>.parquet

A file is finished once nobody holds its lock: the writer rotated, or it is dead. Sealing is a pure
function of the hot file, and the hot file is deleted last, so a shipper killed anywhere starts over
and writes equal bytes under equal names. Each Parquet file says in its metadata how many hot
records went into it (``records``): a process is complete when they add up to its highest ``seq``.

Run as ``python -m failback.client.consumelog.ship --hot DIR --lake DIR``, or use :class:`Shipper`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from failback.client.consumelog import hot_format
from failback.client.consumelog.errors import BadHotLog
from failback.client.consumelog.reader import Head, HotLog, Record, read_hot
from failback.client.consumelog.schema import (
    ASSIGN_END_COLUMNS,
    DELIVER_END_COLUMNS,
    SCHEMA_ID,
    SCHEMA_KEY,
    TABLE_OF_CODE,
    TABLES,
    arrow_schema,
    order,
)

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# Begin table: its end table, how many columns the end fills, and what stands there without one.
_JOINS: Final = {
    "deliver": ("deliver_end", DELIVER_END_COLUMNS, (None, "ABANDONED", None, None)),
    "assign": ("assign_end", ASSIGN_END_COLUMNS, (None, None)),
}
_PQE: Final = {
    TABLES[name].code: 4 + [column.name for column in TABLES[name].own].index("pqe")
    for name in ("assign", "assign_end")
}
_ROW_GROUP_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one table from one hot file."""

    table: str
    head: Head
    rows: list[list[Any]]
    """Own columns only, preceded by seq, wall_ns, mono_ns; in order of seq."""
    seqs: list[int]
    """``seq`` of the hot records that went into the rows: a joined begin and end are two."""
    torn: bool

    @property
    def path(self) -> str:
        """Path below the lake's root."""
        head = self.head
        name = f"part-{head.proc_no:05d}-{head.index:08d}.parquet"
        return f"table={self.table}/run={head.run}/{name}"

    @property
    def metadata(self) -> dict[str, str]:
        """What the Parquet footer says about this segment."""
        head = self.head
        return {
            SCHEMA_KEY: SCHEMA_ID,
            "failback.segment": json.dumps(
                {
                    "run": head.run,
                    "proc": head.proc.hex(),
                    "proc_no": head.proc_no,
                    "role": head.role,
                    "host": head.host,
                    "index": head.index,
                    "seq_lo": min(self.seqs),
                    "seq_hi": max(self.seqs),
                    "rows": len(self.rows),
                    "records": len(self.seqs),
                    "torn": int(self.torn),
                },
                separators=(",", ":"),
            ),
        }


def segments_of(log: HotLog) -> list[Segment]:
    """Split one hot file into its tables, begin and end records joined; pure.

    An end whose begin is not in this file becomes a row of ``deliver_end`` or ``assign_end``.
    """
    by_table: dict[str, list[Record]] = defaultdict(list)
    for record in log.records:
        by_table[TABLE_OF_CODE[record[0]].name].append(record)
    seqs = {name: [record[1] for record in records] for name, records in by_table.items()}
    for begin, (end, width, absent) in _JOINS.items():
        if begin in by_table:
            by_table[begin], by_table[end], joined = _join(
                by_table[begin], by_table[end], end, width, absent
            )
            seqs[begin] = sorted(seqs[begin] + joined)
            seqs[end] = [record[1] for record in by_table[end]]
    return [
        Segment(
            name,
            log.head,
            [_padded(record, name) for record in by_table[name]],
            seqs[name],
            log.torn,
        )
        for name in TABLES
        if by_table[name]
    ]


def _padded(record: Record, table: str) -> list[Any]:
    """The record without its code, as wide as the table: what was not known is null."""
    width = 3 + len(TABLES[table].own)
    return [*record[1:], *[None] * (width + 1 - len(record))]


def _end_key(record: Record, end_table: str) -> Any:
    """What a begin and its end share: the did, or the pqe (unique in a process)."""
    return record[4] if end_table == "deliver_end" else record[_PQE[record[0]]]


def _join(
    begins: list[Record],
    ends: list[Record],
    end_table: str,
    end_columns: int,
    absent: Sequence[Any],
) -> tuple[list[Record], list[Record], list[int]]:
    """Begin records with their end columns, ends without a begin, and the seqs of the others."""
    by_key = {_end_key(record, end_table): record for record in ends}
    width = 4 + len(TABLE_OF_CODE[begins[0][0]].own) - end_columns
    rows: list[Record] = []
    joined = []
    for begin in begins:
        known = [*begin, *[None] * (width - len(begin))]
        end = by_key.pop(_end_key(begin, end_table), None)
        if end is not None:
            joined.append(end[1])
        rows.append([*known, *(absent if end is None else end[-end_columns:])])
    return rows, list(by_key.values()), joined


def arrow_table(segment: Segment) -> pa.Table:
    """The segment as an Arrow table in the lake's schema, its metadata included."""
    import pyarrow as pa

    schema = arrow_schema(segment.table)
    head, count = segment.head, len(segment.rows)
    constants = {"run": head.run, "proc": head.proc, "proc_no": head.proc_no, "host": head.host}
    names = ("seq", "wall_ns", "mono_ns", *order(segment.table))
    varying = dict(zip(names, zip(*segment.rows, strict=True), strict=True))
    arrays = [
        _array(varying[field.name], field.type)
        if field.name in varying
        else _constant(constants[field.name], count, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema.with_metadata(segment.metadata))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def _constant(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        indices = pa.array([0] * count, kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, pa.array([value], kind.value_type))
    return pa.array([value] * count, kind)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write one lake file: temporary name, fsync, rename, fsync of the folder."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    pq.write_table(
        table,
        hidden,
        compression="zstd",
        compression_level=3,
        row_group_size=_ROW_GROUP_ROWS,
        write_page_index=True,
        store_schema=True,
    )
    _fsync(hidden)
    hidden.rename(path)
    _fsync(path.parent)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class SealReport:
    """What one pass of the shipper did."""

    sealed: tuple[Path, ...]
    """Hot files that are in the lake now, and deleted."""
    held: tuple[Path, ...]
    """Files whose writer lives."""
    bad: tuple[Path, ...]
    """Files without a readable head; left where they are."""


class Shipper:
    """Seals the hot logs of one folder into a lake on the same host (``--to file``)."""

    def __init__(self, hot_folder: Path, lake: Path) -> None:
        self._hot = hot_folder
        self._lake = lake

    def seal_all(self, *, final: bool = False) -> SealReport:
        """Seal every file whose lock is free, oldest first.

        Args:
            final: No writer is left, so unfinished ``*.new`` files are removed too.
        """
        sealed, held, bad = [], [], []
        for path in sorted(self._hot.glob(f"*{hot_format.SUFFIX}")):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._seal(path)
                sealed.append(path)
            except BlockingIOError:
                held.append(path)
            except BadHotLog as error:
                logger.warning("%s", error)
                bad.append(path)
            finally:
                os.close(fd)
        if final and not held:
            for hidden in self._hot.glob("*.new"):
                hidden.unlink()
        return SealReport(tuple(sealed), tuple(held), tuple(bad))

    def run(self, stop: threading.Event, *, period_seconds: float = 1.0) -> None:
        """Seal until ``stop`` is set, then once more."""
        while not stop.wait(period_seconds):
            self.seal_all()
        self.seal_all()

    def _seal(self, path: Path) -> None:
        log = read_hot(path)
        for segment in segments_of(log):
            write_parquet(arrow_table(segment), self._lake / segment.path)
        if log.torn:
            logger.info("dropped a torn record at byte %d of %s", log.used_bytes, path)
        path.unlink()


def segment_metadata(
    lake: Path, run: str, tables: Iterable[str] = TABLES
) -> Iterable[dict[str, Any]]:
    """Metadata of every segment of a run, with ``table`` and ``path`` (below the lake) added."""
    import pyarrow.parquet as pq

    for table in tables:
        for path in sorted((lake / f"table={table}" / f"run={run}").glob("*.parquet")):
            stored = pq.read_schema(path).metadata or {}
            if b"failback.segment" in stored:
                meta: dict[str, Any] = json.loads(stored[b"failback.segment"])
                yield {"table": table, "path": str(path.relative_to(lake)), **meta}


def main(argv: Sequence[str] | None = None) -> int:
    """Seal until SIGTERM or SIGINT; the last pass happens after it."""
    parser = argparse.ArgumentParser(prog="python -m failback.client.consumelog.ship")
    parser.add_argument("--hot", type=Path, required=True, help="folder of *.fblog files")
    parser.add_argument("--lake", type=Path, required=True, help="root of the Parquet lake")
    parser.add_argument("--period-seconds", type=float, default=1.0)
    parser.add_argument("--once", action="store_true", help="one pass, then leave")
    options = parser.parse_args(argv)
    shipper = Shipper(options.hot, options.lake)
    if options.once:
        return 1 if shipper.seal_all().bad else 0
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    shipper.run(stop, period_seconds=options.period_seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
