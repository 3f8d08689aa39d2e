"""Offsets that brokers held, over time: at given instants, and as curves thinned out.

Which instants and which queues is known after counting only, so samples are read again then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.run.align import Clocks
from failback.analytics.run.history import GroupQueue, Held, Series
from failback.analytics.run.small_tables.columns import Columns, Flags, Ints
from failback.analytics.run.small_tables.reductions import Read, reduced
from failback.client.consumelog.schema import schema_of

COPIES: Final = schema_of("series l, t l, off l, width l")
"""Rows by the number of their series; ``width``: of a curve, in how wide spans it is thinned."""
MAX_SPANS: Final = 4096
"""Spans of a curve that keep more than one look of each; a curve with no more looks is whole."""
_TABLE: Final = "broker_offset_sample"
_COLUMNS: Final = ("host", "source", "grp", "broker", "ptopic", "qid", "bid", "off", "t")


class OffsetLooks:
    """Reads the samples of a run again."""

    def __init__(self, read: Read, clocks: Clocks, series: Iterable[Series]) -> None:
        """Look for ``series``, all that the run has."""
        self._read = read
        self._clocks = clocks
        self._series = list(series)
        self._last: tuple[bytes, Mapping[Series, Held]] | None = None

    def held_at(self, instants: Ints) -> Mapping[Series, Held]:
        """Of every series the last look at or before each instant, as far as there is one.

        Args:
            instants: Ascending, ns after run zero.
        """
        asked = instants.tobytes()
        if self._last is None or self._last[0] != asked:
            wanted = [each for each in self._series if each[1] in ("file", "code43")]
            found = self._found(LooksBefore(self._clocks, wanted, instants), wanted)
            self._last = (asked, found)
        return self._last[1]

    def curves(
        self, queues: Collection[GroupQueue], near: Sequence[tuple[int, int]]
    ) -> Mapping[Series, Held]:
        """All looks into some queues' offsets, as they change; long curves thinned out.

        Args:
            queues: Of which all series are read.
            near: Spans of time in which every look is kept.
        """
        wanted = [each for each in self._series if each[0] in queues]
        return self._found(Curves(self._clocks, wanted, tuple(near)), wanted)

    def _found(
        self, reduction: LooksBefore | Curves, wanted: Sequence[Series]
    ) -> dict[Series, Held]:
        if not wanted:
            return {}
        kept = Columns(reduced(self._read, _TABLE, _COLUMNS, reduction))
        number, t, off = (kept.ints(name) for name in ("series", "t", "off"))
        order = np.lexsort((off, t, number))
        ends = np.searchsorted(number[order], np.arange(len(wanted) + 1))
        return {
            each: (t[order[lo:hi]], off[order[lo:hi]])
            for each, lo, hi in zip(wanted, ends[:-1], ends[1:], strict=True)
        }


@dataclass(frozen=True, slots=True)
class _OfSeries(ABC):
    """Keeps some of the looks of some series."""

    schema: ClassVar[pa.Schema] = COPIES
    clocks: Clocks
    series: Sequence[Series]

    def __call__(self, chunk: pa.Table) -> pa.Table:
        c = Columns(chunk)
        key, at = c.key("grp", "broker", "ptopic", "qid", "source", "bid")
        rows = chunk.select(["grp", "broker", "ptopic", "qid", "source", "bid"]).take(pa.array(at))
        known = {each: number for number, each in enumerate(self.series)}
        numbers = [
            known.get((GroupQueue(*queue), source, bid), -1)
            for *queue, source, bid in zip(*(one.to_pylist() for one in rows.columns), strict=True)
        ]
        number = np.array(numbers, np.int64)[key]
        t = c.ints("t") + c.shifts(self.clocks)
        columns = (number, t, c.ints("off"), np.zeros(c.count, np.int64))
        table = pa.table([pa.array(each) for each in columns], schema=COPIES)
        return self.again(table.filter(pc.greater_equal(table.column("series"), 0)))

    @abstractmethod
    def again(self, kept: pa.Table) -> pa.Table:
        """What is kept of rows by the number of their series."""


@dataclass(frozen=True, slots=True)
class LooksBefore(_OfSeries):
    """Keeps of each series the last look at or before each instant."""

    instants: Ints

    def again(self, kept: pa.Table) -> pa.Table:
        c = Columns(kept)
        number, t, off = (c.ints(name) for name in ("series", "t", "off"))
        slot = np.searchsorted(self.instants, t)
        order = np.lexsort((off, t, number))
        order = order[slot[order] < self.instants.size]
        at, of = slot[order], number[order]
        last = np.append((at[1:] != at[:-1]) | (of[1:] != of[:-1]), True)[: order.size]
        return kept.take(pa.array(order[last]))


@dataclass(frozen=True, slots=True)
class Curves(_OfSeries):
    """Keeps of each series all looks, or if they are many the ends and extremes of equal spans.

    Spans are as narrow as a power of two of ns can be with at most :data:`MAX_SPANS` that have a
    look. Which looks are kept does not depend on the chunks.
    """

    near: Sequence[tuple[int, int]]

    def again(self, kept: pa.Table) -> pa.Table:
        c = Columns(kept)
        number, t, off, width = (c.ints(name) for name in COPIES.names)
        order = np.lexsort((off, t, number))
        near = np.zeros(order.size, bool)
        for lo, hi in self.near:
            near |= (t[order] >= lo) & (t[order] < hi)
        far = order[~near]
        found = [order[near]]
        width = width.copy()
        edges = np.flatnonzero(np.diff(number[far])) + 1
        for mine in np.split(far, edges) if far.size else ():
            shift = _width(t[mine], int(width[mine].max()))
            width[mine] = shift
            found.append(mine[_ends_and_extremes(t[mine] >> shift, off[mine])])
        rows = np.concatenate(found)
        columns = [number[rows], t[rows], off[rows], width[rows]]
        return pa.table([pa.array(each) for each in columns], schema=COPIES)


def _width(t: Ints, least: int) -> int:
    """Bits of the narrowest spans of ascending times that are few enough."""
    shift = least
    while np.count_nonzero(np.diff(t >> shift)) >= MAX_SPANS:
        shift += 1
    return shift


def _ends_and_extremes(span: Ints, off: Ints) -> Flags:
    """The first, the last, a least and a greatest value of each span."""
    keep = np.zeros(span.size, bool)
    first = np.flatnonzero(np.append(True, span[1:] != span[:-1]))
    last = np.append(first[1:], span.size) - 1
    keep[first] = keep[last] = True
    of = np.repeat(np.arange(first.size), last - first + 1)
    for extreme in (np.minimum, np.maximum):
        at = np.flatnonzero(off == extreme.reduceat(off, first)[of])
        keep[at[np.append(True, np.diff(of[at]) != 0)]] = True
    return keep
