"""From when to when each process of a broker was looked at, and the longest pause in between."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.run.align import Clocks
from failback.analytics.run.small_tables.columns import Columns, changes
from failback.client.consumelog.schema import schema_of

LIFE_COLUMNS: Final = ("host", "addr", "broker", "bid", "binc", "t")
LIVES: Final = schema_of("addr s, source s, binc l, broker s, bid l, first l, last l, pause l")
_LIFE: Final = ("addr", "source", "binc")


@dataclass(frozen=True, slots=True)
class IncarnationsSeen:
    """Keeps a row per address, source and incarnation: when it was seen first and last.

    ``broker`` and ``bid`` are those of the last look, ``pause`` is the longest time between looks
    that follow each other, 0 where there was one. The source of queue samples is empty.
    """

    schema: ClassVar[pa.Schema] = LIVES
    clocks: Clocks

    def __call__(self, chunk: pa.Table) -> pa.Table:
        if "source" not in chunk.schema.names:
            chunk = chunk.append_column("source", pa.repeat("", chunk.num_rows).dictionary_encode())
        c = Columns(chunk)
        if not c.count:
            return LIVES.empty_table()
        t = c.ints("t") + c.shifts(self.clocks)
        of, _ = c.key(*_LIFE)
        looks = changes(of, t)  # the rows of one look into a table lie together
        order = looks[np.lexsort((t[looks], of[looks]))]
        first = changes(of[order])
        last = np.append(first[1:], order.size) - 1
        pauses = np.diff(t[order], prepend=0)
        pauses[first] = 0
        when = {"first": t[order[first]], "last": t[order[last]]}
        lives = pa.schema([LIVES.field(name) for name in (*_LIFE, "broker", "bid")])
        found = c.rows(order[last], lives)
        for name, values in (*when.items(), ("pause", np.maximum.reduceat(pauses, first))):
            found = found.append_column(name, pa.array(values))
        return found

    def again(self, kept: pa.Table) -> pa.Table:
        by_life: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in kept.to_pylist():
            by_life[tuple(row[name] for name in _LIFE)].append(row)
        return pa.Table.from_pylist([_joined(rows) for rows in by_life.values()], LIVES)


def _joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: (row["first"], row["last"]))
    whole = dict(rows[0])
    for row in rows[1:]:
        whole["pause"] = max(whole["pause"], row["pause"], row["first"] - whole["last"])
        if row["last"] >= whole["last"]:
            whole |= {name: row[name] for name in ("last", "broker", "bid")}
    return whole


def longest_pause(lives: pa.Table) -> int | None:
    """The longest time in ns without a look into the offsets that one process answered with."""
    asked = lives.filter(pc.equal(lives.column("source"), "code43"))
    return pc.max(asked.column("pause")).as_py() or None
