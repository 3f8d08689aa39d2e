"""Decides the class of every candidate, PRIMARY, RETRY or DUP, and one cause per DUP. Pure.

Works on candidates: deliveries of messages that a group got more than once. Definitions:

* D(L) = deliveries of message L to a group, ordered by begin, ties by did.
* PRIMARY is the first of D(L). RETRY has rt = r > 0, is the first of L at r, and a delivery at r-1
  had *ended* with LATER, EXC, NULL or SUSPEND by its begin. Everything else is DUP.
* ok(L) = earliest end of a SUCCESS, a repeat's own end left out; a DUP that begins at or after it
  is ``after_success``: provably useless work. Begins too close to ok(L) on another host to be
  ordered are ambiguous, and ``after_success`` is null.
* Causes: the first rule that matches; inputs that a rule needs and that are missing make the cause
  null (*unattributed*), never a default.

The class is written twice: ``lake/views/classified.sql`` has it for queries.

All deliveries of a message are classified together; beyond that, candidates may be classified in
any number of parts, before :func:`joined` finds the causes that lie in what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns, Flags, Ordered, dense_of, match
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting import tables
from failback.analytics.run.align import Clocks
from failback.client.consumelog.schema import FAILED_STATUSES
from failback.protocol.message import RETRY_PREFIX

PER_GROUP: Final = ("grp", "lane", "lseq")
HOLDER: Final = ("grp", "broker", "ptopic", "qid", "inc", "pqe")
CLASSES: Final = ("PRIMARY", "RETRY", "DUP")
_NEVER: Final = (1 << 63) - 1
_ABSENT: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class CauseInputs:
    """The small tables that the rules look into, in the shapes of ``tables``."""

    assigned: pa.Table
    cover: pa.Table
    reset: pa.Table


Produced = Callable[[], pa.Table]
"""The send attempts of the messages, as ``tables.PRODUCED``."""


def classify(
    candidates: list[pa.Table], inputs: CauseInputs, sent_back: pa.Table, clocks: Clocks
) -> pa.Table:
    """Add class, cause and harm flags to candidates (``tables.CODED``).

    There may be gigabytes of them: they are taken out of the list. ``sent_back``
    (``tables.SENT_BACK``) is of their messages. Causes of another copy in a message's own topic are
    missing yet: the flag ``resent`` tells which rows are such.
    """
    whole = pa.concat_tables([tables.CODED.empty_table(), *candidates]).unify_dictionaries()
    columns = tables.columns_of(whole)
    del whole
    candidates.clear()
    for name in columns:
        columns[name] = tables.contiguous(columns[name])
    columns |= _found(Columns(pa.table(columns)), inputs, sent_back, clocks)
    return pa.table(columns)


def joined(parts: list[pa.Table], produced: Produced) -> pa.Table:
    """Classified candidates with all their causes, sorted (``tables.CLASSIFIED``).

    They are taken out of the list. ``produced`` is asked only if some row is ``resent``.
    """
    if not parts:
        return tables.CLASSIFIED.empty_table()
    whole = pa.concat_tables(parts).unify_dictionaries()
    columns = tables.columns_of(whole)
    del whole
    parts.clear()
    resent = np.asarray(columns.pop("resent").to_numpy(), bool)
    if resent.any():
        columns["cause"] = _with_producer_causes(columns, resent, produced)
    return tables.sorted_away(columns, tables.CLASSIFIED)


def _with_producer_causes(
    columns: Mapping[str, pa.ChunkedArray], resent: Flags, produced: Produced
) -> pa.ChunkedArray:
    """The causes, with those of rows that are another copy in the message's own topic."""
    rows = pa.array(np.flatnonzero(resent))
    again = pa.table({name: columns[name].take(rows) for name in PER_GROUP})
    found = _producer_causes(Columns(again), Columns(produced()))
    known = columns["cause"].combine_chunks()
    return pa.chunked_array([pc.replace_with_mask(known, pa.array(resent), found)])


def _found(
    c: Columns, inputs: CauseInputs, sent_back: pa.Table, clocks: Clocks
) -> dict[str, pa.Array]:
    """What candidates do not say themselves: the further columns, and ``resent``."""
    message = c.dense("grp", "lane", "lseq", "fkey")
    copy = c.dense("grp", "broker", "ptopic", "qid", "qoff", "omid")
    bt, et, did, rt = c.ints("bt"), c.ints("et"), c.ints("did"), c.ints("rt")
    ended = c.valid("et")
    order = Ordered(bt, did)
    nth, _ = order.ranks(message)
    nth_of_copy, previous = order.ranks(copy)
    at_rt = dense_of([message, rt])
    nth_at_rt, _ = order.ranks(at_rt)
    failed = ended & c.one_of("status", FAILED_STATUSES)
    failed_before = _earliest(_pair(message, rt - 1), _pair(message, rt), et, failed)
    retry = (nth > 1) & (rt > 0) & (nth_at_rt == 1) & (failed_before <= bt)
    dup = (nth > 1) & ~retry
    ok_end, ambiguous = _success(c, message, ended & c.one_of("status", ["SUCCESS"]), clocks)
    after = (nth > 1) & (bt >= ok_end)
    undecided = (nth > 1) & ambiguous
    cause = Causes(c.count)
    same_holder, _ = order.ranks(c.dense_with(copy, "inc", "pqe"))
    del order, copy, at_rt, failed_before
    todo = dup.copy()
    cause.set(todo, same_holder > 1, "CLIENT_BUG")
    _same_copy_causes(c, cause, todo, nth_of_copy > 1, previous, inputs)
    _retry_causes(c, cause, todo, nth_at_rt, sent_back)
    known_previous = previous >= 0
    where = np.maximum(previous, 0)
    return {
        "nth": pa.array(nth),
        "nth_of_copy": pa.array(nth_of_copy),
        "prev_inc": pa.array(c.ints("inc")[where], mask=~known_previous),
        "prev_pqe": pa.array(c.ints("pqe")[where], mask=~known_previous),
        "cls": _named(np.where(nth == 1, 0, np.where(retry, 1, 2)), CLASSES),
        "cause": cause.array(),
        "after_success": pa.array(after, mask=undecided),
        "ambiguous": pa.array(undecided),
        "ok_end": pa.array(ok_end, mask=ok_end == _NEVER),
        "resent": pa.array(todo),
    }


def _pair(message: Ints, rt: Ints) -> Ints:
    """A number for (message, rt) that can also be computed for an rt that no message has."""
    return (message << 32) + rt + 1


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
        host, names = c.named("host")
        known = [clocks.error.get(name, 0) for name in names.to_pylist()]
        error = np.array([*known, 0], np.int64)
        here = np.flatnonzero(hit)
        other = host[rows[at[here]]]
        near = np.abs(bt[here] - ok_end[here]) <= error[host[here]] + error[other]
        ambiguous[here] = (host[here] != other) & near
    return ok_end, ambiguous


def _named(codes: Ints, names: Sequence[str]) -> pa.Array:
    return pa.array(names, pa.utf8()).take(pa.array(codes))


class Causes:
    """The cause of each row, so far; without one the row is unattributed or no DUP."""

    def __init__(self, count: int) -> None:
        self._codes = np.full(count, -1, np.int64)
        self._names: list[str] = []

    def set(self, todo: Flags, matches: Flags, label: str | None) -> None:
        """Name the rows of ``todo`` that match, and take them off it."""
        hit = todo & matches
        if label is not None:
            if label not in self._names:
                self._names.append(label)
            self._codes[hit] = self._names.index(label)
        todo &= ~hit

    def array(self) -> pa.Array:
        codes = pa.array(self._codes, mask=self._codes < 0)
        return pa.array(self._names, pa.utf8()).take(codes)


def _same_copy_causes(
    c: Columns,
    cause: Causes,
    todo: Flags,
    again: Flags,
    previous: Ints,
    inputs: CauseInputs,
) -> None:
    """Rules for a copy that was delivered before: resets, rollbacks, overlaps, tails."""
    inc, pqe = c.ints("inc"), c.ints("pqe")
    before = np.maximum(previous, 0)
    a = Columns(inputs.assigned)
    mine = match(c, HOLDER, a, HOLDER)
    # The same copy has the same group and queue: what held it before is the previous row's own.
    prev = np.where(previous >= 0, mine[before], -1)
    active = todo & again
    cause.set(todo, active & ((mine < 0) | (prev < 0)), None)
    active &= todo
    if not active.any():
        return
    at, was = np.maximum(mine, 0), np.maximum(prev, 0)
    reset = _was_reset(c, active, mine, inc[before], pqe[before], before, inputs.reset)
    cause.set(todo, reset, "OFFSET_RESET")
    active &= todo
    covered, same_inc, same_bid, other_bid = _covers(c, active, at, inputs)
    rolled = active & covered
    bid, bid_known = a.ints("src_bid")[at], a.valid("src_bid")[at]
    binc_known = a.valid("src_binc")[at]
    cause.set(todo, rolled & a.one_of("src", ["NO_ENTRY"])[at], "ROLLBACK_NO_ENTRY")
    cause.set(todo, rolled & ~bid_known, None)
    cause.set(todo, rolled & same_inc, "ROLLBACK_OVERWRITTEN")
    cause.set(todo, rolled & same_bid & ~binc_known, None)
    # A commit reached an earlier life of the broker that answered, and not this one.
    cause.set(todo, rolled & same_bid, "ROLLBACK_RESTART")
    cause.set(todo, rolled & ~other_bid, None)
    # Commits reached only other members: where the master answered, only its slaves had them.
    cause.set(todo, rolled & (bid == 0), "ROLLBACK_SLAVE_ONLY_PROGRESS")
    cause.set(todo, rolled, "ROLLBACK_STALE_SLAVE")
    active &= todo
    ended, end_t = a.valid("end_t")[was], a.ints("end_t")[was]
    cause.set(todo, active & (~ended | (end_t > a.ints("t")[at])), "OVERLAP")
    codes, names = a.named("end_reason")
    for code, label in enumerate(names.to_pylist()):
        cause.set(todo, active & (codes[was] == code), f"TAIL_{label}")
    cause.set(todo, active, None)


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
    c: Columns, cause: Causes, todo: Flags, nth_at_rt: Ints, sent_back: pa.Table
) -> None:
    """Rules for another copy in a retry topic."""
    active = todo & c.starts_with("ptopic", RETRY_PREFIX)
    if not active.any():
        return
    known = Columns(sent_back)
    key = ("grp", "lane", "lseq", "rt")
    at = match(c, key, known, key)
    stored, expired = np.zeros(c.count, np.int64), np.zeros(c.count, bool)
    if known.count:
        stored = np.where(at >= 0, known.ints("stored")[at], 0)
        expired = (at >= 0) & known.flags("expired")[at]
    cause.set(todo, active & (nth_at_rt > 1) & (stored > 1), "SENDBACK_DUP")
    cause.set(todo, active & (nth_at_rt > 1), "DELAY_REPLAY")
    cause.set(todo, active & expired, "CONSUME_TIMEOUT")
    cause.set(todo, active, "SENDBACK_ORPHAN")


def _producer_causes(c: Columns, sent: Columns) -> pa.Array:
    """Rules for another copy in the topic itself: by what is known of its message's sends."""
    cause = Causes(c.count)
    if sent.count:
        key = ("lane", "lseq") if not sent.valid("grp").all() else PER_GROUP
        at = match(c, key, sent, key)
        todo = at >= 0
        cause.set(todo, sent.ints("ukeys")[at] > 1, "APP_RESEND")
        cause.set(todo, sent.flags("doubtful")[at], "SEND_TIMEOUT_DUP")
        cause.set(todo, sent.flags("degraded_then_more")[at], "NOT_STORE_OK_RESEND")
        cause.set(todo, todo.copy(), "BROKER_COPY")
    return cause.array()
