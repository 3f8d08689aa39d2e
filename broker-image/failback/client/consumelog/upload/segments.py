"""The segments of a finished hot file: the rows of one table each. ``lake_files`` packs them. Pure.

A segment is called ``<run>/<proc hex>/<index, 8 digits>/<table>``. Sealing a file again gives the
same segments, so a name always stands for the same rows. Each says in its metadata how many hot
records went into it (``records``): a process is complete when they add up to its highest ``seq``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.client.consumelog.reader import Head, HotLog, Record
from failback.client.consumelog.schema import (
    ASSIGN_END_COLUMNS,
    DELIVER_END_COLUMNS,
    SCHEMA_ID,
    SCHEMA_KEY,
    TABLE_OF_CODE,
    TABLES,
)
from failback.client.consumelog.upload.layout import lake_path

SEGMENT_KEY: Final = "failback.segment"
"""Where a file of the lake, or an Arrow stream, says what it holds."""

# Begin table: its end table, how many columns the end fills, and what stands there without one.
_JOINS: Final = {
    "deliver": ("deliver_end", DELIVER_END_COLUMNS, (None, "ABANDONED", None, None)),
    "assign": ("assign_end", ASSIGN_END_COLUMNS, (None, None)),
}
_PQE: Final = {
    TABLES[name].code: 4 + [column.name for column in TABLES[name].own].index("pqe")
    for name in ("assign", "assign_end")
}


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
    def segment_id(self) -> str:
        """Its name at a collector."""
        head = self.head
        return f"{head.run}/{head.proc.hex()}/{head.index:08d}/{self.table}"

    def path(self, day: str | None) -> str:
        """Path below the lake's root; ``day`` is the run's, none while that is not known."""
        head = self.head
        return lake_path(self.table, head.run, head.proc_no, head.index, day)

    @property
    def metadata(self) -> dict[str, str]:
        """What the Parquet footer says about this segment."""
        head = self.head
        return {
            SCHEMA_KEY: SCHEMA_ID,
            SEGMENT_KEY: json.dumps(
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
