"""What a class and a cause leave open: echoes, the assignment, and the fault behind it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns, match
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.causes.classify import HOLDER
from failback.analytics.analysis.causes.coverage import assigned_table, messages_sent_back
from failback.analytics.run.definitions import Definitions
from failback.analytics.run.history import History, Row
from failback.protocol.message import RETRY_PREFIX


def attributed(history: History, classified: pa.Table, links: pa.Table) -> pa.Table:
    """Add inherited causes, the assignment, its partial view, and the fault behind each repeat."""
    cause, inherited = _inherit(history, classified, links)
    c = Columns(classified)
    assigned = Columns(assigned_table(history.assignments))
    a_no = match(c, HOLDER, assigned, HOLDER)
    known = a_no >= 0
    dup = c.one_of("cls", ["DUP"])
    same_copy = dup & (c.ints("nth_of_copy") > 1)
    partial = np.array([a.partial_view for a in history.assignments] + [False], bool)[a_no]
    taken = np.array([a.t for a in history.assignments] + [0], np.int64)[a_no]
    zero_ms = history.folder.zero_wall_ns // 1_000_000
    stored = (c.ints("store_ms") - zero_ms) * 1_000_000
    since = np.where(same_copy, np.where(known, taken, c.ints("bt")), stored)
    at = classified.schema.get_field_index("cause")
    table = classified.set_column(at, "cause", cause)
    for name, values in (
        ("inherited", pa.array(inherited)),
        ("partial_view", pa.array(same_copy & known & partial)),
        ("fid", _faults_at(history, since, dup)),
        ("a_no", pa.array(a_no, mask=~known)),
    ):
        table = table.append_column(name, values)
    return table


def as_defined(classified: pa.Table, definitions: Definitions) -> pa.Table:
    """What other definitions than the default ones make of classes and causes."""
    if definitions.window_ns is not None:
        classified = _within(classified, definitions.window_ns)
    return classified


def _within(classified: pa.Table, window_ns: int) -> pa.Table:
    """A duplicate that begins too long after the delivery before it is a first one again."""
    c = Columns(classified)
    if not c.count:
        return classified
    bt, message = c.ints("bt"), c.dense("grp", "lane", "lseq", "fkey")
    order = np.lexsort((c.ints("did"), bt, message))
    apart = np.zeros(c.count, bool)
    apart[order[1:]] = (np.diff(message[order]) == 0) & (np.diff(bt[order]) > window_ns)
    first = pa.array(apart & c.one_of("cls", ["DUP"]))
    for name, value in (
        ("cls", pa.scalar("PRIMARY")),
        ("cause", pa.scalar(None, pa.utf8())),
        ("after_success", pa.scalar(False)),
        ("ambiguous", pa.scalar(False)),
    ):
        changed = pc.if_else(first, value, classified.column(name))
        at = classified.schema.get_field_index(name)
        classified = classified.set_column(at, name, changed)
    return classified


def _faults_at(history: History, t: Ints, asked: Any) -> pa.Array:
    """The fault whose latest step is the latest at or before each instant."""
    times = np.array([step.t for step in history.faults], np.int64)  # steps come sorted
    at = np.searchsorted(times, t, "right") - 1
    fids = pa.array([step.fid for step in history.faults], pa.utf8())
    return fids.take(pa.array(at, mask=(at < 0) | ~asked))


def columns_of(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of some columns, as tuples."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _inherit(
    history: History, classified: pa.Table, links: pa.Table
) -> tuple[pa.ChunkedArray, Any]:
    """Causes, with retry copies of a repeated handling given that repeat's cause; and which were.

    The k-th copy of a message at one retry count, by begin, comes from the k-th stored send-back,
    by time. If the handling that was sent back was itself a DUP, its retry copy is that DUP's echo.
    """
    inherited = np.zeros(classified.num_rows, bool)
    sent: dict[tuple[Any, ...], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    stored = [back for back in history.sendbacks if back["ok"]]
    for back, message in messages_sent_back(stored, history.folder.definitions.key, links):
        sent[back["grp"], *message][back["rt_next"]].append(back)
    if not sent:
        return classified.column("cause"), inherited
    cause: list[str | None] = classified.column("cause").to_pylist()
    of_message: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for number, row in _of_messages(classified, list(sent)):
        of_message[row["grp"], row["lane"], row["lseq"]].append({**row, "number": number})
    for message, by_rt in sent.items():
        mine = sorted(of_message[message], key=lambda row: (row["bt"], row["did"]))
        for rt, backs in sorted(by_rt.items()):  # ascending: an echo may have an echo
            copies = [
                row
                for row in mine
                if row["rt"] == rt
                and row["nth_of_copy"] == 1
                and row["ptopic"].startswith(RETRY_PREFIX)
            ]
            for row, source in zip(copies, _last_of_each_way(backs, mine), strict=False):
                if row["cls"] == "DUP" and source and source["cls"] == "DUP":
                    cause[row["number"]] = cause[source["number"]]
                    inherited[row["number"]] = True
    return pa.chunked_array([pa.array(cause, pa.utf8())]), inherited


def _of_messages(
    classified: pa.Table, messages: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Row]]:
    """Rows of some messages, with their numbers."""
    key = ("grp", "lane", "lseq")
    types = (pa.utf8(), pa.int64(), pa.int64())
    columns = [
        pa.array(values, kind)
        for values, kind in zip(zip(*messages, strict=True), types, strict=True)
    ]
    wanted = Columns(pa.table(columns, names=key))
    at = np.flatnonzero(match(Columns(classified), key, wanted, key) >= 0)
    return zip(at.tolist(), classified.take(pa.array(at)).to_pylist(), strict=True)


def _last_of_each_way(backs: Sequence[Row], rows: Sequence[Row]) -> list[Row | None]:
    """Per stored send-back the handling that failed, by time of the send-backs.

    Of rows that repeat one way of sending one failed handling back only the last one counts. A
    process that handled a copy twice, under two holdings or one, sent two handlings back.
    """
    last: dict[tuple[Any, ...], tuple[Row, Row | None]] = {}
    for back in sorted(backs, key=lambda row: (row["t0"], row["seq"])):
        source = _handling_of(back, rows)
        handling = None if source is None else source["did"]
        way = (back["proc_no"], back["omid"], handling, back["reason"], back["path"])
        last[way] = (back, source)
    found = sorted(
        last.values(), key=lambda each: (each[0]["t0"], each[0]["proc_no"], each[0]["seq"])
    )
    return [source for _, source in found]


def _handling_of(back: Row, rows: Sequence[Row]) -> Row | None:
    """The delivery whose failure was sent back: same process and copy, latest begun before."""
    found = [
        row
        for row in rows
        if row["proc_no"] == back["proc_no"]
        and row["rt"] == back["rt_next"] - 1
        and row["bt"] <= back["t0"]
        and (back["omid"] is None or row["omid"] == back["omid"])
    ]
    return max(found, key=lambda row: (row["bt"], row["did"]), default=None)


def unattributed(classified: pa.Table) -> pa.Table:
    """Classified deliveries (``tables.CLASSIFIED``) with every cause null.

    Commits and assignments alone prove a cause of a copy delivered again, send-backs one in a retry
    topic, and all attempts, the failed ones too, one of a message stored twice. The brokers'
    offsets do not replace them. An offset above a copy proves that it was committed, but not that
    this was before the queue was assigned anew. That order alone separates a rollback from an
    overlap.
    """
    at = classified.schema.get_field_index("cause")
    nothing = pa.nulls(classified.num_rows, pa.utf8())
    return classified.set_column(at, "cause", nothing)
