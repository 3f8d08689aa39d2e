"""Counts deliveries that occur more than once: everything that a report says of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import NULL_NUMBER, Columns, Flags, packed_of
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.arrays.xxh64 import surrogates_of
from failback.analytics.analysis.causes.attribution import Attribution
from failback.analytics.analysis.causes.windows import cause_number
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.resolution import Resolution
from failback.analytics.analysis.counting.partials.rows import Codes
from failback.analytics.analysis.counting.partials.seconds import NS, Seconds
from failback.analytics.analysis.counting.partials.sums import Key, Partials

_QUEUE: Final = ("grp", "broker", "ptopic", "qid")
_COPY: Final = ("broker", "ptopic", "qid", "epoch", "qoff")
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class RepeatsReduction:
    """Makes partial rows of classified candidates. Sent to Spark's workers: small and picklable.

    All deliveries of a message, to any group, are in one part. Beyond that the candidates may come
    in any number of parts and in any order: the joined rows are the same.
    """

    attribution: Attribution
    warmup_end_ns: int
    until_ns: int
    ok_bin_ns: int
    seconds: Seconds
    killed: Sequence[int]
    """When each outage began, ascending; ns after run zero."""
    instants: Sequence[int]
    """Since when first repeats are asked for, ascending."""
    committed: Sequence[int]
    """Per assignment the offset that had been committed, or -1."""
    processed: Sequence[int | None]
    """Per assignment what had been processed when its queue was taken."""
    fault_ids: Sequence[str]
    """The faults, by number."""
    resolution: Resolution

    def attributed(self, classified: pa.Table, send_backs: pa.Table) -> pa.Table:
        """A part (``tables.CLASSIFIED``) with complete causes (``tables.ATTRIBUTED``)."""
        return self.attribution.to(classified, send_backs)

    def counted(self, attributed: pa.Table) -> pa.Table:
        """Partial rows of it (``sums.SCHEMA``)."""
        out = Partials()
        if not attributed.num_rows:
            return out.table()
        c = Columns(attributed)
        begin = c.ints("bt")
        shown = (begin >= self.warmup_end_ns) & (begin < self.until_ns)
        _add_rows(out, c, shown)
        _add_successes_again(out, c, self.ok_bin_ns)
        _add_redelivered(out, c)
        _add_identities(out, c, self.resolution)
        dup = shown & c.one_of("cls", ["DUP"])
        dups = Columns(attributed.filter(pa.array(dup)))
        if dups.count:
            self._add_dups(out, dups)
        return out.table()

    def _add_dups(self, out: Partials, c: Columns) -> None:
        cause = _numbers(c, "cause", cause_number)
        self._add_counts(out, c, cause)
        self._add_times(out, c, cause)
        self._add_reach(out, c)
        self._add_useless(out, c)
        self._add_store_times(out, c)
        self._add_windows(out, c, cause)

    def _add_counts(self, out: Partials, c: Columns, cause: Ints) -> None:
        ones, grp = np.ones(c.count, np.int64), Key(grp=_codes(c, "grp"))
        order = c.valid("after_success").astype(np.int64) + c.flags("after_success")
        out.values(families.DUPS, _queue_key(c).and_(cause=cause, success_order=order), ones)
        for family, chosen in (
            (families.INHERITED, c.flags("inherited")),
            (families.PARTIAL_VIEWS, c.flags("partial_view")),
            (families.AMBIGUOUS, c.flags("ambiguous")),
        ):
            out.values(family, grp.at(chosen), ones[chosen])

    def _add_times(self, out: Partials, c: Columns, cause: Ints) -> None:
        begin, ones = c.ints("bt"), np.ones(c.count, np.int64)
        second, caused = self.seconds.last(begin), Key(grp=_codes(c, "grp"), cause=cause)
        out.values(families.DUP_SECONDS, _queue_key(c).and_(second=second), ones)
        out.values(families.CAUSE_SECONDS, caused.and_(second=second), ones)
        outage = np.searchsorted(np.array(self.killed, np.int64), begin, "right") - 1
        some = outage >= 0
        out.values(families.CAUSE_OUTAGES, caused.and_(since_outage=outage).at(some), ones[some])
        instant = np.searchsorted(np.array(self.instants, np.int64), begin, "right") - 1
        some = instant >= 0
        out.values(families.FIRST_DUPS, Key(instant=instant[some]), begin[some])

    def _add_reach(self, out: Partials, c: Columns) -> None:
        grp, ones = Key(grp=_codes(c, "grp")), np.ones(c.count, np.int64)
        once = _first_of_each(c, "grp", "lane", "lseq", "fkey")
        out.values(families.DUP_MESSAGES, grp.at(once), np.ones(once.size, np.int64))
        out.values(families.DUP_MEMBERS, grp.and_(client_id=_codes(c, "client_id")), ones)
        rows = np.flatnonzero(c.valid("okey"))
        codes, names = c.named("okey")
        number, value = self.resolution.keys(surrogates_of(names))
        at = codes[rows]
        out.values(families.DUP_KEYS, grp.at(rows).and_(key_hash=number[at]), value[at])

    def _add_useless(self, out: Partials, c: Columns) -> None:
        """Of duplicates that begin after a success."""
        rows = np.flatnonzero(c.flags("after_success"))
        grp, ones = Key(grp=_codes(c, "grp")).at(rows), np.ones(rows.size, np.int64)
        begin, end = c.ints("bt")[rows], c.ints("ok_end")[rows]
        age = self.resolution.ages(begin - end)
        out.values(families.DUP_AGES, grp.and_(age=age), ones)
        width = self.ok_bin_ns * self.resolution.bins
        bins = grp.and_(begin_bin=begin // width, end_bin=end // width)
        out.values(families.DUP_BINS, bins, ones)
        ended = np.flatnonzero(c.valid("et")[rows])
        worked = c.ints("et")[rows][ended] - begin[ended]
        for unit, value in enumerate((worked // NS, worked % NS)):
            key = grp.at(ended).and_(unit=np.full(ended.size, unit, np.int64))
            out.values(families.WASTED, key, value)

    def _add_store_times(self, out: Partials, c: Columns) -> None:
        """Of re-consumed copies under an assignment, below what was committed before it."""
        rows = np.flatnonzero(c.valid("a_no") & (c.ints("nth_of_copy") > 1))
        holder = c.ints("a_no")[rows]
        below = c.ints("qoff")[rows] < np.array(self.committed, np.int64)[holder]
        key, stored = Key(holder=holder[below]), c.ints("store_ms")[rows[below]]
        out.values(families.OLDEST_AGAIN, key, stored)
        out.values(families.NEWEST_AGAIN, key, stored)

    def _add_windows(self, out: Partials, c: Columns, cause: Ints) -> None:
        again = np.flatnonzero(_again(c))
        held = c.valid("a_no")
        key = _queue_key(c).and_(
            inc=c.ints("inc"),
            holder=np.where(held, c.ints("a_no"), NULL_NUMBER),
            cause=cause,
            prev_inc=c.ints("prev_inc"),
            fault=_numbers(
                c, "fid", lambda fid: NULL_NUMBER if fid is None else self.fault_ids.index(fid)
            ),
        )
        qoff = c.ints("qoff")[again]
        out.intervals(families.WINDOWS, key.at(again), qoff, np.ones(qoff.size, bool))
        loose = again[~held[again]]
        out.values(families.WINDOW_BEGINS, key.at(loose), c.ints("bt")[loose])


def _add_rows(out: Partials, c: Columns, shown: Flags) -> None:
    nothing = Key()
    for family, count in (
        (families.CANDIDATES, c.count),
        (families.OUTSIDE, int((shown & ~c.valid("a_no")).sum())),
    ):
        out.values(family, nothing, np.array([count], np.int64))
    retry = np.flatnonzero(shown & c.one_of("cls", ["RETRY"]))
    grp = Key(grp=_codes(c, "grp"))
    out.values(families.RETRIES, grp.at(retry), np.ones(retry.size, np.int64))


def _add_successes_again(out: Partials, c: Columns, width_ns: int) -> None:
    """Successes of a message in a group behind its first one, by end."""
    good = np.flatnonzero(c.one_of("status", ["SUCCESS"]))
    if not good.size:
        return
    message = c.dense("grp", "lane", "lseq", "fkey")[good]
    end, did = c.ints("et")[good], c.ints("did")[good]
    order = np.lexsort((did, end, message))
    later = order[1:][message[order[1:]] == message[order[:-1]]]
    key = Key(grp=_codes(c, "grp")).at(good[later]).and_(bin=end[later] // width_ns)
    out.values(families.SUCCESSES_AGAIN, key, np.ones(later.size, np.int64))


def _add_redelivered(out: Partials, c: Columns) -> None:
    rows = np.flatnonzero(_again(c) & c.valid("a_no"))
    qoff = c.ints("qoff")[rows]
    key = Key(holder=c.ints("a_no")[rows])
    out.intervals(families.REDELIVERED, key, qoff, np.ones(qoff.size, bool))


def _add_identities(out: Partials, c: Columns, resolution: Resolution) -> None:
    """What messages an offset has named, and which places a message id of a broker."""
    named = _first_of_each(c, *_COPY, "omid", "lane", "lseq", "fkey")
    queue = Key(
        broker=_codes(c, "broker"),
        topic=_codes(c, "ptopic"),
        qid=c.ints("qid"),
        epoch=c.ints("epoch"),
    )
    qoff = c.ints("qoff")
    out.intervals(families.NAMED, queue.at(named), qoff[named], np.ones(named.size, bool))
    codes, omids = c.named("omid")
    number, chosen = resolution.omids(surrogates_of(omids))
    rows = np.flatnonzero(np.append(chosen, False)[codes])
    places = [_hashes(c, "broker")[rows], _hashes(c, "ptopic")[rows], c.ints("qid")[rows]]
    key, place = Key(omid_hash=number[codes[rows]]), _mixed([*places, qoff[rows]])
    out.values(families.PLACED_LEAST, key, place)
    out.values(families.PLACED_MOST, key, place)


def _again(c: Columns) -> Flags:
    """Which deliver a copy that another holder had delivered before."""
    other = (c.ints("prev_inc") != c.ints("inc")) | (c.ints("prev_pqe") != c.ints("pqe"))
    known = c.valid("prev_inc") & c.valid("prev_pqe")
    again: Flags = (c.ints("nth_of_copy") > 1) & known & other
    return again


def _queue_key(c: Columns) -> Key:
    grp, broker, topic = (_codes(c, name) for name in _QUEUE[:3])
    return Key(grp=grp, broker=broker, topic=topic, qid=c.ints("qid"))


def _codes(c: Columns, name: str) -> Codes:
    codes, names = c.named(name)
    texts = names.to_pylist()
    return Codes(np.where(codes < 0, len(texts), codes).astype(np.int64), [*texts, ""])


def _numbers(c: Columns, name: str, number: Callable[[str | None], int]) -> Ints:
    """What each row's text, or none, is numbered."""
    codes, names = c.named(name)
    return np.array([*map(number, names.to_pylist()), number(None)], np.int64)[codes]


def _first_of_each(c: Columns, *names: str) -> Ints:
    """A row of each distinct combination."""
    _, first = np.unique(packed_of([c.codes(name) for name in names]), return_index=True)
    return first


def _hashes(c: Columns, name: str) -> Ints:
    codes, names = c.named(name)
    return np.append(surrogates_of(names), 0)[codes]


def _mixed(columns: Sequence[Ints]) -> Ints:
    """One number of several, the same in every part; different ones for nearly all."""
    found = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) * _MIX
        found ^= found >> np.uint64(29)
    return (found >> np.uint64(2)).astype(np.int64)
