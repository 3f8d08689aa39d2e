"""Stage B in numpy: PRIMARY, RETRY or DUP, and one cause for every DUP. Pure.

Works on candidates: deliveries of messages that a group got more than once. Definitions:

* D(L) = deliveries of message L to a group, ordered by begin, ties by did.
* PRIMARY is the first of D(L). RETRY has rt = r > 0, is the first of L at r, and a delivery at r-1
  had *ended* with LATER, EXC, NULL or SUSPEND by its begin. Everything else is DUP.
* ok(L) = earliest end of a SUCCESS, a repeat's own end left out; a DUP that begins at or after it
  is ``after_success``: provably useless work. Begins too close to ok(L) on another host to be
  ordered are ambiguous, and ``after_success`` is null.
* Causes: the first rule that matches; inputs that a rule needs and that are missing make the cause
  null (*unattributed*), never a default.

The Spark engine says the same in SQL, ``engines/stage_b_*.sql``; tests hold both against an oracle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from failback.analytics import tables
from failback.analytics.align import Clocks
from failback.analytics.intervals import Ints
from failback.client.consumelog.schema import FAILED_STATUSES

Flags = NDArray[np.bool_]

RETRY_PREFIX: Final = "%RETRY%"
_NEVER: Final = (1 << 63) - 1
_ABSENT: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class CauseInputs:
    """The small tables that the rules look into, in the shapes of ``tables``."""

    assigned: pa.Table
    cover: pa.Table
    reset: pa.Table
    sent_back: pa.Table
    produced: pa.Table


def classify(candidates: pa.Table, inputs: CauseInputs, clocks: Clocks) -> pa.Table:
    """Add class, cause and harm flags to candidates (``tables.DELIVERY``)."""
    c = Columns(candidates)
    if not c.count:
        return tables.CLASSIFIED.empty_table()
    message = c.dense("grp", "lane", "lseq", "fkey")
    copy = c.dense("grp", "broker", "ptopic", "qid", "qoff", "omid")
    bt, et, did, rt = c.ints("bt"), c.ints("et"), c.ints("did"), c.ints("rt")
    ended, status = c.valid("et"), c.texts("status")
    nth, _ = _ranks(message, bt, did)
    nth_of_copy, previous = _ranks(copy, bt, did)
    nth_at_rt, _ = _ranks(_pair(message, rt), bt, did)
    failed = ended & np.isin(status, FAILED_STATUSES)
    failed_before = _earliest(_pair(message, rt - 1), _pair(message, rt), et, failed)
    retry = (nth > 1) & (rt > 0) & (nth_at_rt == 1) & (failed_before <= bt)
    dup = (nth > 1) & ~retry
    ok_end, ambiguous = _success(c, message, ended & (status == "SUCCESS"), clocks)
    after = (nth > 1) & (bt >= ok_end)
    undecided = (nth > 1) & ambiguous
    cause = np.full(c.count, None, object)
    same_holder, _ = _ranks(c.dense_with(copy, "inc", "pqe"), bt, did)
    todo = dup.copy()
    _set(cause, todo, same_holder > 1, "CLIENT_BUG")
    _same_copy_causes(c, cause, todo, nth_of_copy > 1, previous, inputs)
    _retry_causes(c, cause, todo, nth_at_rt, inputs.sent_back)
    _producer_causes(c, cause, todo, inputs.produced)
    known_previous = previous >= 0
    where = np.maximum(previous, 0)
    found = {
        "nth": nth,
        "nth_of_copy": nth_of_copy,
        "prev_inc": pa.array(c.ints("inc")[where], mask=~known_previous),
        "prev_pqe": pa.array(c.ints("pqe")[where], mask=~known_previous),
        "cls": np.where(nth == 1, "PRIMARY", np.where(retry, "RETRY", "DUP")),
        "cause": pa.array(cause, pa.utf8()),
        "after_success": pa.array(after, mask=undecided),
        "ambiguous": undecided,
        "ok_end": pa.array(ok_end, mask=ok_end == _NEVER),
    }
    whole = {name: candidates.column(name) for name in tables.DELIVERY.names} | found
    return tables.sorted_table(pa.table(whole), tables.CLASSIFIED)


class Columns:
    """Columns of a table as numpy arrays."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.combine_chunks()
        self.count: int = table.num_rows

    def ints(self, name: str) -> Ints:
        """Nulls are 0: ask :meth:`valid` beside it."""
        column = self._table.column(name).fill_null(0)
        return np.asarray(column.to_numpy(), np.int64)

    def valid(self, name: str) -> Flags:
        return np.asarray(self._table.column(name).is_valid().to_numpy(), bool)

    def texts(self, name: str) -> NDArray[np.object_]:
        column = self._table.column(name)
        return np.array(column.to_pylist(), object)

    def codes(self, name: str) -> Ints:
        """Numbers that are equal where the values are."""
        column = self._table.column(name)
        if pa.types.is_integer(column.type):
            return self.ints(name)
        joined = (
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        )
        coded = joined.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        return np.asarray(coded.indices.fill_null(-1).to_numpy(), np.int64)

    def dense(self, *names: str) -> Ints:
        """One number per distinct combination."""
        return _dense([self.codes(name) for name in names])

    def dense_with(self, code: Ints, *names: str) -> Ints:
        return _dense([code, *(self.codes(name) for name in names)])


def _dense(columns: list[Ints]) -> Ints:
    order = np.lexsort(columns[::-1])
    new = np.zeros(order.size, bool)
    for column in columns:
        new[1:] |= np.diff(column[order]) != 0
    found = np.empty(order.size, np.int64)
    found[order] = np.cumsum(new)
    return found


def _pair(message: Ints, rt: Ints) -> Ints:
    """A number for (message, rt) that can be computed for an rt nobody has, too."""
    return (message << 32) + rt + 1


def _ranks(key: Ints, bt: Ints, did: Ints) -> tuple[Ints, Ints]:
    """Place of each row inside its key by (bt, did), from 1; and the row before it, or -1."""
    order = np.lexsort((did, bt, key))
    new = np.ones(order.size, bool)
    new[1:] = np.diff(key[order]) != 0
    position = np.arange(order.size)
    start = np.maximum.accumulate(np.where(new, position, 0))
    rank, previous = np.empty(order.size, np.int64), np.full(order.size, -1, np.int64)
    rank[order] = position - start + 1
    previous[order[1:]] = np.where(new[1:], -1, order[:-1])
    return rank, previous


def _earliest(wanted: Ints, key: Ints, value: Ints, chosen: Flags) -> Ints:
    """For each wanted key the least value of chosen rows that have it, else never."""
    found = np.full(wanted.size, _NEVER, np.int64)
    if not chosen.any():
        return found
    order = np.lexsort((value[chosen], key[chosen]))
    keys, values = key[chosen][order], value[chosen][order]
    at = np.searchsorted(keys, wanted)  # leftmost: the least value
    hit = at < keys.size
    hit[hit] = keys[at[hit]] == wanted[hit]
    found[hit] = values[at[hit]]
    return found


def _success(c: Columns, message: Ints, good: Flags, clocks: Clocks) -> tuple[Ints, Flags]:
    """ok(L) without the row itself, and whether its order to the row's begin is open."""
    ok_end = np.full(c.count, _NEVER, np.int64)
    ambiguous = np.zeros(c.count, bool)
    rows = np.flatnonzero(good)
    if not rows.size:
        return ok_end, ambiguous
    et, did, bt = c.ints("et"), c.ints("did"), c.ints("bt")
    rows = rows[np.lexsort((did[rows], et[rows], message[rows]))]
    first = np.searchsorted(message[rows], message)
    own = np.zeros(c.count, bool)
    inside = first < rows.size
    own[inside] = rows[first[inside]] == np.flatnonzero(inside)
    at = first + own
    hit = at < rows.size
    hit[hit] = message[rows[at[hit]]] == message[hit]
    ok_end[hit] = et[rows[at[hit]]]
    if len(clocks.error) > 1:
        host = c.texts("host")
        for row in np.flatnonzero(hit).tolist():
            other = rows[at[row]]
            error = clocks.error.get(host[row], 0) + clocks.error.get(host[other], 0)
            far = abs(int(bt[row]) - int(ok_end[row])) > error
            ambiguous[row] = host[row] != host[other] and not far
    return ok_end, ambiguous


def _set(cause: NDArray[np.object_], todo: Flags, matches: Flags, label: str | None) -> None:
    hit = todo & matches
    cause[hit] = label
    todo &= ~hit


def _same_copy_causes(
    c: Columns,
    cause: NDArray[np.object_],
    todo: Flags,
    again: Flags,
    previous: Ints,
    inputs: CauseInputs,
) -> None:
    """Rules for a copy that was delivered before: resets, rollbacks, overlaps, tails."""
    inc, pqe = c.ints("inc"), c.ints("pqe")
    before = np.maximum(previous, 0)
    queue = list(
        zip(c.texts("grp"), c.texts("broker"), c.texts("ptopic"), c.ints("qid"), strict=True)
    )
    numbers = _lookup_assignments(inputs.assigned)
    rows = np.flatnonzero(todo & again)
    mine = np.full(c.count, -1, np.int64)
    prev = np.full(c.count, -1, np.int64)
    for row in rows.tolist():
        p = before[row]
        mine[row] = numbers.get((*queue[row], inc[row], pqe[row]), -1)
        prev[row] = numbers.get((*queue[row], inc[p], pqe[p]), -1)
    active = todo & again
    _set(cause, todo, active & ((mine < 0) | (prev < 0)), None)
    active &= todo
    if not active.any():
        return
    a = Columns(inputs.assigned)
    at, was = np.maximum(mine, 0), np.maximum(prev, 0)
    reset = _was_reset(c, active, mine, inc[before], pqe[before], before, inputs.reset)
    _set(cause, todo, reset, "OFFSET_RESET")
    active &= todo
    covered, same_inc, same_bid, other_bid = _covers(c, active, at, inputs)
    rolled = active & covered
    bid, bid_known = a.ints("src_bid")[at], a.valid("src_bid")[at]
    binc_known = a.valid("src_binc")[at]
    _set(cause, todo, rolled & (a.texts("src")[at] == "NO_ENTRY"), "ROLLBACK_NO_ENTRY")
    _set(cause, todo, rolled & ~bid_known, None)
    _set(cause, todo, rolled & same_inc, "ROLLBACK_OVERWRITTEN")
    _set(cause, todo, rolled & same_bid & ~binc_known, None)
    _set(cause, todo, rolled & same_bid, "ROLLBACK_RESTART")
    _set(cause, todo, rolled & ~other_bid, None)
    _set(cause, todo, rolled & (bid == 0), "ROLLBACK_SLAVE_ONLY_PROGRESS")
    _set(cause, todo, rolled, "ROLLBACK_STALE_SLAVE")
    active &= todo
    ended, end_t = a.valid("end_t")[was], a.ints("end_t")[was]
    _set(cause, todo, active & (~ended | (end_t > a.ints("t")[at])), "OVERLAP")
    reason = a.texts("end_reason")[was]
    for label in sorted({text for text in reason[active & todo] if text is not None}):
        _set(cause, todo, active & (reason == label), f"TAIL_{label}")
    _set(cause, todo, active, None)


def _lookup_assignments(assigned: pa.Table) -> dict[tuple[Any, ...], int]:
    names = ("grp", "broker", "ptopic", "qid", "inc", "pqe", "a_no")
    columns = (assigned.column(name).to_pylist() for name in names)
    return {tuple(key): number for *key, number in zip(*columns, strict=True)}


def _was_reset(
    c: Columns,
    active: Flags,
    mine: Ints,
    prev_inc: Ints,
    prev_pqe: Ints,
    before: Ints,
    reset: pa.Table,
) -> Flags:
    """A reset between the previous delivery and this assignment, and no later commit past it."""
    found = np.zeros(c.count, bool)
    qoff, bt = c.ints("qoff"), c.ints("bt")
    for row in reset.to_pylist():
        hit = active & (mine == row["a_no"]) & (row["taken"] <= qoff) & (bt[before] <= row["r_t"])
        if row["r_off"] is None:
            hit &= (prev_inc == row["by_inc"]) & (prev_pqe == row["by_pqe"])
        else:
            hit &= row["r_off"] <= qoff
        found |= hit
    return found


def _covers(
    c: Columns, active: Flags, at: Ints, inputs: CauseInputs
) -> tuple[Flags, Flags, Flags, Flags]:
    """Whether commits cover the copy: any; to the answering incarnation, its id, another id."""
    covered, same_inc, same_bid, other_bid = (np.zeros(c.count, bool) for _ in range(4))
    a, cover = Columns(inputs.assigned), Columns(inputs.cover)
    qoff, epoch, epoch_end = c.ints("qoff"), c.ints("epoch"), c.ints("epoch_end")
    bids = np.where(a.valid("src_bid"), a.ints("src_bid"), _ABSENT)
    bincs = np.where(a.valid("src_binc"), a.ints("src_binc"), _ABSENT)
    order = np.argsort(np.where(active, at, -1), kind="stable")
    sorted_at = np.where(active, at, -1)[order]
    columns = [cover.ints(name) for name in ("a_no", "bid", "binc", "epoch", "off")]
    valid = [cover.valid("bid"), cover.valid("binc")]
    for index in range(cover.count):
        number, bid, binc, of_epoch, off = (int(column[index]) for column in columns)
        lo, hi = np.searchsorted(sorted_at, [number, number + 1])
        rows = order[lo:hi]
        hit = rows[(off > qoff[rows]) & (epoch[rows] <= of_epoch) & (of_epoch <= epoch_end[rows])]
        covered[hit] = True
        if not valid[0][index]:
            continue
        if bid == bids[number]:
            same_bid[hit] = True
            if valid[1][index] and binc == bincs[number]:
                same_inc[hit] = True
        else:
            other_bid[hit] = True
    return covered, same_inc, same_bid, other_bid


def _retry_causes(
    c: Columns, cause: NDArray[np.object_], todo: Flags, nth_at_rt: Ints, sent_back: pa.Table
) -> None:
    """Rules for another copy in a retry topic."""
    active = todo & np.array([text.startswith(RETRY_PREFIX) for text in c.texts("ptopic")], bool)
    if not active.any():
        return
    known = {
        (row["grp"], row["lane"], row["lseq"], row["rt"]): (row["stored"], row["expired"])
        for row in sent_back.to_pylist()
    }
    stored, expired = np.zeros(c.count, np.int64), np.zeros(c.count, bool)
    grp, lane, lseq, rt = c.texts("grp"), c.ints("lane"), c.ints("lseq"), c.ints("rt")
    for row in np.flatnonzero(active).tolist():
        key = (grp[row], int(lane[row]), int(lseq[row]), int(rt[row]))
        stored[row], expired[row] = known.get(key, (0, False))
    _set(cause, todo, active & (nth_at_rt > 1) & (stored > 1), "SENDBACK_DUP")
    _set(cause, todo, active & (nth_at_rt > 1), "DELAY_REPLAY")
    _set(cause, todo, active & expired, "CONSUME_TIMEOUT")
    _set(cause, todo, active, "SENDBACK_ORPHAN")


def _producer_causes(
    c: Columns, cause: NDArray[np.object_], todo: Flags, produced: pa.Table
) -> None:
    """Rules for another copy in the topic itself."""
    if not todo.any():
        return
    known = {(row["lane"], row["lseq"]): row for row in produced.to_pylist()}
    lane, lseq = c.ints("lane"), c.ints("lseq")
    for row in np.flatnonzero(todo).tolist():
        sent = known.get((int(lane[row]), int(lseq[row])))
        if sent is None:
            continue  # nothing is known about its sends: unattributed
        if sent["ukeys"] > 1:
            cause[row] = "APP_RESEND"
        elif sent["doubtful"]:
            cause[row] = "SEND_TIMEOUT_DUP"
        elif sent["degraded_then_more"]:
            cause[row] = "NOT_STORE_OK_RESEND"
        else:
            cause[row] = "BROKER_COPY"
    todo[:] = False
