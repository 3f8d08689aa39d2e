"""What a class and a cause leave open: echoes, the assignment, and the fault behind it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns, Flags, match
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.causes.classify import HOLDER, PER_GROUP
from failback.analytics.analysis.causes.coverage import assigned_table
from failback.analytics.run.history import History, Row
from failback.client.consumelog.schema import schema_of
from failback.protocol.message import RETRY_PREFIX

PROVED: Final = schema_of(
    "layer l, grp s, broker s, ptopic s, qid l, since l, until l, lo l, hi l, cause s"
)
"""A cause of what was re-consumed of ``[lo, hi)`` of a queue and began in ``[since, until)``, ns.

A queue has at most one row in each ``layer``.
"""
_QUEUE: Final = ("grp", "broker", "ptopic", "qid")
Message = tuple[str, int, int]
"""Group, lane and lseq."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What is known of a run beside its deliveries, as far as it completes their causes.

    Sent to Spark's workers: small and picklable. It is applied to classified candidates in any
    number of parts, as long as all deliveries of a message are in one.
    """

    assigned: pa.Table
    """``tables.ASSIGNED``."""
    partial_view: Flags
    """Of each assignment, whether it was made of a partial list of members."""
    zero_ms: int
    """Wall clock's ms at run zero."""
    fault_times: Ints
    """Instants of the faults' steps, ascending."""
    fault_ids: Sequence[str]
    """The fault of each step."""
    window_ns: int | None
    proves_causes: bool
    """Whether what the run recorded can prove a cause."""
    proved: pa.Table
    """Causes that were proved otherwise, :data:`PROVED`."""

    @classmethod
    def of(cls, history: History, *, proves_causes: bool, proved: pa.Table | None = None) -> Self:
        return cls(
            assigned=assigned_table(history.assignments),
            partial_view=np.array([a.partial_view for a in history.assignments], bool),
            zero_ms=history.folder.zero_wall_ns // 1_000_000,
            fault_times=np.array([step.t for step in history.faults], np.int64),
            fault_ids=[step.fid for step in history.faults],
            window_ns=history.folder.definitions.window_ns,
            proves_causes=proves_causes,
            proved=PROVED.empty_table() if proved is None else proved,
        )

    def to(self, classified: pa.Table, send_backs: pa.Table) -> pa.Table:
        """Candidates (``tables.CLASSIFIED``) as ``tables.ATTRIBUTED``.

        ``send_backs`` (``send_backs.SEND_BACKS``) are those of their messages.
        """
        if not self.proves_causes:
            classified = unattributed(classified, self.assigned.column("grp"))
            classified = _with_proved(classified, self.proved)
        if self.window_ns is not None:
            classified = _within(classified, self.window_ns)
        cause, inherited = _inherit(send_backs, classified)
        c = Columns(classified)
        assigned = Columns(self.assigned)
        a_no = match(c, HOLDER, assigned, HOLDER)
        known = a_no >= 0
        dup = c.one_of("cls", ["DUP"])
        same_copy = dup & (c.ints("nth_of_copy") > 1)
        partial = np.append(self.partial_view, False)[a_no]
        taken = np.append(assigned.ints("t"), 0)[a_no]
        stored = (c.ints("store_ms") - self.zero_ms) * 1_000_000
        since = np.where(same_copy, np.where(known, taken, c.ints("bt")), stored)
        at = classified.schema.get_field_index("cause")
        table = classified.set_column(at, "cause", cause)
        for name, values in (
            ("inherited", pa.array(inherited)),
            ("partial_view", pa.array(same_copy & known & partial)),
            ("fid", self._faults_at(since, dup)),
            ("a_no", pa.array(a_no, mask=~known)),
        ):
            table = table.append_column(name, values)
        return table

    def _faults_at(self, t: Ints, asked: Flags) -> pa.Array:
        """The fault whose latest step is the latest at or before each instant."""
        at = np.searchsorted(self.fault_times, t, "right") - 1
        fids = pa.array(self.fault_ids, pa.utf8())
        return fids.take(pa.array(at, mask=(at < 0) | ~asked))


def _with_proved(classified: pa.Table, proved: pa.Table) -> pa.Table:
    """Name the causes of copies that were re-consumed where they are proved."""
    if not proved.num_rows or not classified.num_rows:
        return classified
    c = Columns(classified)
    again = c.one_of("cls", ["DUP"]) & (c.ints("nth_of_copy") > 1)
    bt, qoff = c.ints("bt"), c.ints("qoff")
    cause = classified.column("cause")
    for layer in pc.unique(proved.column("layer")).to_pylist():
        rows = proved.filter(pc.equal(proved.column("layer"), layer))
        known = Columns(rows)
        at = match(c, _QUEUE, known, _QUEUE)
        since, until, lo, hi = (known.ints(name)[at] for name in ("since", "until", "lo", "hi"))
        hit = again & (at >= 0) & (since <= bt) & (bt < until) & (lo <= qoff) & (qoff < hi)
        named = rows.column("cause").take(pa.array(np.maximum(at, 0)))
        cause = pc.if_else(pa.array(hit), named, cause)
    where = classified.schema.get_field_index("cause")
    return classified.set_column(where, classified.schema.field(where), cause)


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


def _inherit(send_backs: pa.Table, classified: pa.Table) -> tuple[pa.ChunkedArray, Flags]:
    """Causes, with retry copies of a repeated handling given that repeat's cause; and which were.

    The k-th copy of a message at one retry count, by begin, comes from the k-th stored send-back,
    by time. If the handling that was sent back was itself a DUP, its retry copy is that DUP's echo.
    """
    inherited = np.zeros(classified.num_rows, bool)
    sent, numbers = _echoes(send_backs, classified)
    if not sent:
        return classified.column("cause"), inherited
    cause: list[str | None] = classified.column("cause").to_pylist()
    of_message: dict[Message, list[Row]] = defaultdict(list)
    for number, row in zip(
        numbers.tolist(), classified.take(pa.array(numbers)).to_pylist(), strict=True
    ):
        of_message[row["grp"], row["lane"], row["lseq"]].append({**row, "number": number})
    for message, rows in of_message.items():
        mine = sorted(rows, key=lambda row: (row["bt"], row["did"]))
        for rt, backs in sorted(sent[message].items()):  # ascending: an echo may have an echo
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


def _echoes(
    send_backs: pa.Table, classified: pa.Table
) -> tuple[dict[Message, dict[int, list[Row]]], Ints]:
    """Of messages with several DUPs, of which one may be another's echo: what was sent back, by
    message and next attempt, and the numbers of their rows."""
    c = Columns(classified)
    message = c.dense(*PER_GROUP)
    dup = c.one_of("cls", ["DUP"])
    several = np.flatnonzero((np.bincount(message[dup], minlength=c.count) > 1)[message])
    wanted = Columns(classified.take(pa.array(several)).select(PER_GROUP))
    stored = send_backs.filter(send_backs.column("ok"))
    known = Columns(stored)
    chosen = np.flatnonzero(match(known, PER_GROUP, wanted, PER_GROUP) >= 0)
    sent: dict[Message, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for back in stored.take(pa.array(chosen)).to_pylist():
        sent[back["grp"], back["lane"], back["lseq"]][back["rt_next"]].append(back)
    rows = several[match(wanted, PER_GROUP, known, PER_GROUP) >= 0]
    return sent, rows


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


def unattributed(classified: pa.Table, recorded: pa.ChunkedArray | None = None) -> pa.Table:
    """Classified deliveries (``tables.CLASSIFIED``) with every cause null.

    Causes of groups that are ``recorded``, whose clients wrote a log, stay. Commits and assignments
    alone prove a cause of a copy delivered again, send-backs one in a retry topic, and all
    attempts, the failed ones too, one of a message stored twice. The brokers' offsets do not
    replace them. An offset above a copy proves that it was committed, but not that this was before
    the queue was assigned again. That order alone separates a rollback from an overlap.
    """
    at = classified.schema.get_field_index("cause")
    causes = pa.nulls(classified.num_rows, pa.utf8())
    if recorded is not None and len(recorded):
        groups = classified.column("grp").cast(pa.utf8())
        is_recorded = pc.is_in(groups, value_set=recorded.combine_chunks())
        causes = pc.if_else(is_recorded, classified.column("cause").cast(pa.utf8()), causes)
    return classified.set_column(at, "cause", causes)
