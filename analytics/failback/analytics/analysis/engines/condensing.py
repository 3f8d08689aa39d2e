"""Ranges that are too many to be told one by one, as what a report says of them. Pure.

A history is a few ranges while its numbers are dense. Repeats scattered one by one are a range
each, and so is every message that is known by the hash of a text. So ranges are cut into blocks of
numbers, the same ones wherever that is done, and a block of one history with more ranges than
``MOST_RANGES`` becomes partial rows: sums, and sets without the times that their members came. How
many ranges stay depends on the blocks, not on the rows in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns, Flags, dense_of
from failback.analytics.analysis.arrays.intervals import IntervalSet, Ints, joined
from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.counting.families import Family
from failback.analytics.analysis.counting.partials.rows import Codes
from failback.analytics.analysis.counting.partials.sums import SCHEMA, Key, Partials

BLOCK_BITS: Final = 18
HASH_BITS: Final = 54
"""The same of hashes, which have 62 bits: they are of lanes below 0."""
MOST_RANGES: Final = 2_048
MOST_OF_HASHES: Final = 512
_SENT_STATES: Final = (families.ACKED.name, families.DEGRADED.name, families.DOUBTFUL.name)
_QUEUE: Final = ("grp", "broker", "topic")
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)


def block_bits(number: Ints) -> Ints:
    """How many bits of a value tell where in its block it is; ``number`` is a key's first one."""
    found: Ints = np.where(number < 0, HASH_BITS, BLOCK_BITS).astype(np.int64)
    return found


def cut(ranges: pa.Table) -> pa.Table:
    """Ranges, one for each block that they reach into; with ``n1``, ``lo`` and ``hi``."""
    c = Columns(ranges)
    lo, hi, bits = c.ints("lo"), c.ints("hi"), block_bits(c.ints("n1"))
    first, last = lo >> bits, (hi - 1) >> bits
    if (first == last).all():
        return ranges
    count = last - first + 1
    at = np.repeat(np.arange(c.count), count)
    step = np.arange(at.size) - np.repeat(np.cumsum(count) - count, count)
    begins = (first[at] + step) << bits[at]
    found = ranges.take(pa.array(at))
    ends = begins + (np.int64(1) << bits[at])
    return _with_columns(found, lo=np.maximum(lo[at], begins), hi=np.minimum(hi[at], ends))


def buckets(ranges: pa.Table, count: int) -> Ints:
    """A number below ``count`` for each range of :func:`cut`: equal ones for one block."""
    c = Columns(ranges)
    number = c.ints("n1")
    block = c.ints("lo") >> block_bits(number)
    mixed = (block.astype(np.uint64) * np.uint64(31) + number.astype(np.uint64)) * _MIXER
    return np.asarray((mixed >> np.uint64(32)) % np.uint64(count), np.int64)


@dataclass(frozen=True, slots=True)
class Condensing:
    """Makes partial rows of depths. Sent to Spark's workers: small and picklable."""

    by_lid: bool = True
    """Whether what was delivered of a message is told by ``families.MESSAGE``."""
    processed: Sequence[int | None] = ()
    """Per assignment what had been processed when its queue was taken."""

    def __call__(self, depths: pa.Table) -> pa.Table:
        """Partial rows (``sums.SCHEMA``) of depths (``tables.DEPTHS``).

        All ranges of a block are there; which other blocks are makes no difference.
        """
        depths = cut(depths)
        c = Columns(depths)
        unit, crowded = _crowded_blocks(c)
        if not crowded.any():
            return as_partial(depths)
        found = [as_partial(depths.filter(pa.array(~crowded)))]
        for family, condense in self._condensers().items():
            mine = np.flatnonzero(crowded & c.one_of("fam", [family]))
            if mine.size:
                found.append(condense(depths.take(pa.array(mine)), unit[mine]))
        states = np.flatnonzero(crowded & c.one_of("fam", _SENT_STATES))
        if states.size:
            found.append(_acked_and_doubtful(depths.take(pa.array(states))))
        return pa.concat_tables(found)

    def _condensers(self) -> dict[str, Callable[[pa.Table, Ints], pa.Table]]:
        return {
            families.COPY.name: _copy_sums,
            families.MESSAGE.name: self._messages,
            families.HANDED.name: _messages_with_lab_id,
            families.DONE.name: _messages_with_lab_id,
            families.SENT.name: _figures_sent,
            families.STORED.name: _messages_with_lab_id,
            families.NAMED.name: _key_sums,
            families.REDELIVERED.name: self._redelivered,
            families.WINDOWS.name: _largest_windows,
        }

    def _messages(self, rows: pa.Table, unit: Ints) -> pa.Table:
        """How many there are, where some were re-consumed, and which were delivered at all."""
        c, out = Columns(rows), Partials()
        key = Key(grp=_codes(c, "grp"), depth=c.ints("depth"), figure=c.ints("figure"))
        out.values(families.MESSAGE_TIMES, key, c.ints("hi") - c.ints("lo"))
        again = np.flatnonzero(c.ints("depth") > 1)
        spans = _range_around_each(rows.take(pa.array(again)), unit[again])
        found = [out.table(), _weight_one(families.MESSAGE_SPANS, spans)]
        if self.by_lid:
            found.append(_weight_one(families.HANDED, _joined_ranges(_with_lab_id(rows))))
        return pa.concat_tables(found)

    def _redelivered(self, rows: pa.Table, _: Ints) -> pa.Table:
        c, out = Columns(rows), Partials()
        holder, lo, hi = c.ints("n1"), c.ints("lo"), c.ints("hi")
        done = np.array([-1 if each is None else each for each in self.processed], np.int64)
        key = Key(holder=holder)
        out.values(families.REDELIVERED_COUNT, key, hi - lo)
        out.values(families.REDELIVERED_LEAST, key, lo)
        out.values(families.REDELIVERED_END, key, hi)
        finished = np.maximum(np.minimum(hi, done[holder]) - lo, 0)
        out.values(families.REDELIVERED_FINISHED, key, finished)
        return out.table()


def _crowded_blocks(c: Columns) -> tuple[Ints, Flags]:
    """The block and history of each range as one number, and whether that has too many."""
    number = c.ints("n1")
    kind = np.where(c.one_of("fam", _SENT_STATES), -1, c.codes("fam"))
    rest = [c.codes(name) for name in tables.KEY if name != "fam"]
    unit = dense_of([kind, *rest, c.ints("lo") >> block_bits(number)])
    most = np.where(number < 0, MOST_OF_HASHES, MOST_RANGES)
    return unit, (np.bincount(unit)[unit] > most if unit.size else np.zeros(0, bool))


def _copy_sums(rows: pa.Table, _: Ints) -> pa.Table:
    c, out = Columns(rows), Partials()
    queue = Key(**{name: _codes(c, name) for name in _QUEUE}, qid=c.ints("n1"))
    depth, figure = c.ints("depth"), c.ints("figure")
    times = queue.and_(epoch=c.ints("n2"), depth=depth, figure=figure)
    out.values(families.COPY_TIMES, times, c.ints("hi") - c.ints("lo"))
    shown = np.flatnonzero((depth > 1) & (figure > 0))
    ones = np.ones(shown.size, np.int64)
    out.values(families.COPY_RANGES_LEFT_OUT, queue.at(shown), ones)
    return out.table()


def _key_sums(rows: pa.Table, _: Ints) -> pa.Table:
    c, out = Columns(rows), Partials()
    out.values(families.NAMED_TIMES, Key(depth=c.ints("depth")), c.ints("hi") - c.ints("lo"))
    return out.table()


def _largest_windows(rows: pa.Table, unit: Ints) -> pa.Table:
    """The largest of each history and block; of the others how many there are in each queue."""
    rows, unit = _joined_ranges_and_units(rows, unit)
    c = Columns(rows)
    lo, hi = c.ints("lo"), c.ints("hi")
    order = np.lexsort((lo, lo - hi, unit))
    begins = np.flatnonzero(np.diff(unit[order], prepend=-1))
    place = np.arange(c.count) - np.repeat(begins, np.diff(begins, append=c.count))
    left_out = order[place >= MOST_RANGES]
    kept = np.sort(order[place < MOST_RANGES])
    queue = Key(**{name: _codes(c, name) for name in _QUEUE}, qid=c.ints("n1"))
    out = Partials()
    ones = np.ones(left_out.size, np.int64)
    out.values(families.WINDOWS_LEFT_OUT, queue.at(left_out), ones)
    return pa.concat_tables([_weight_one(families.WINDOWS, rows.take(pa.array(kept))), out.table()])


def _messages_with_lab_id(rows: pa.Table, _: Ints) -> pa.Table:
    """The set of messages with a LAB_ID; no figure reads the others one by one."""
    return _weight_one(None, _joined_ranges(_with_lab_id(rows)))


def _figures_sent(rows: pa.Table, _: Ints) -> pa.Table:
    """The set of messages that were sent while the run measured."""
    return _weight_one(None, _joined_ranges(rows.filter(pc.greater(rows.column("figure"), 0))))


def _acked_and_doubtful(rows: pa.Table) -> pa.Table:
    """Messages that were acknowledged with any result, and those of open outcome that were not."""
    c = Columns(rows)
    lo, hi, history = c.ints("lo"), c.ints("hi"), c.dense("topic", "n1")
    doubt = c.one_of("fam", [families.DOUBTFUL.name])
    found = []
    for one in np.unique(history).tolist():
        here = history == one
        acked = IntervalSet.of(lo[here & ~doubt], hi[here & ~doubt])
        doubtful = IntervalSet.of(lo[here & doubt], hi[here & doubt]) - acked
        for family, members in ((families.ACKED, acked), (families.DOUBTFUL, doubtful)):
            example = rows.take(pa.array(np.full(members.lo.size, np.flatnonzero(here)[0])))
            found.append(_weight_one(family, _with_columns(example, lo=members.lo, hi=members.hi)))
    return pa.concat_tables(found)


def _with_lab_id(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.greater_equal(rows.column("n1"), 0))


def _range_around_each(rows: pa.Table, unit: Ints) -> pa.Table:
    """One range for each unit, around all of it."""
    if not unit.size:
        return rows
    c = Columns(rows)
    order = np.argsort(unit, kind="stable")
    starts = np.flatnonzero(np.diff(unit[order], prepend=-1))
    lo = np.minimum.reduceat(c.ints("lo")[order], starts)
    hi = np.maximum.reduceat(c.ints("hi")[order], starts)
    return _with_columns(rows.take(pa.array(order[starts])), lo=lo, hi=hi)


def _joined_ranges(rows: pa.Table) -> pa.Table:
    return _joined_ranges_and_units(rows, np.zeros(rows.num_rows, np.int64))[0]


def _joined_ranges_and_units(rows: pa.Table, unit: Ints) -> tuple[pa.Table, Ints]:
    """Ranges of one history that touch each other as one, however deep they are."""
    c = Columns(rows)
    if not c.count:
        return rows, unit
    kept, lo, hi = joined(dense_of([c.dense(*tables.KEY), unit]), c.ints("lo"), c.ints("hi"))
    return _with_columns(rows.take(pa.array(kept)), lo=lo, hi=hi), unit[kept]


def _with_columns(rows: pa.Table, **columns: Ints) -> pa.Table:
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    return rows


def _weight_one(family: Family | None, rows: pa.Table) -> pa.Table:
    """Ranges as partial rows of weight one, of a family with the same key, or of their own."""
    ones = np.ones(rows.num_rows, np.int64)
    rows = _with_columns(rows, depth=ones, figure=ones)
    if family is not None:
        names = pa.array([family.name] * rows.num_rows, pa.utf8())
        rows = rows.set_column(rows.schema.get_field_index("fam"), "fam", names)
    return as_partial(rows)


def as_partial(depths: pa.Table) -> pa.Table:
    """Depths (``tables.DEPTHS``) as partial rows that add up to them."""
    op = np.full(depths.num_rows, families.INTERVAL, np.int8)
    columns = [depths.column(name) for name in tables.DEPTHS.names]
    return pa.table([op, *columns], names=SCHEMA.names).cast(SCHEMA)


def _codes(c: Columns, name: str) -> Codes:
    codes, names = c.named(name)
    return Codes(codes, names.to_pylist())
