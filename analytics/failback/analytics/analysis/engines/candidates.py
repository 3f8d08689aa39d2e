"""The deliveries to classify: of messages or offsets that occur more than once. Pure.

Files of the lake are in the order of their queues, and redelivered offsets are a few ranges.
Statistics of most row groups show that none is in them. Rows of the others are looked at before
they are normalised, by what neither group nor epoch changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import Columns, Flags
from failback.analytics.analysis.arrays.intervals import IntervalSet, Ints
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.normalise import Dropped, Ends, normalise
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.engines.base import Spans
from failback.analytics.analysis.engines.chunks import attempts_of, lanes_of
from failback.analytics.analysis.engines.joins import interval_sets
from failback.analytics.lake.row_groups import RowGroup
from failback.analytics.run.definitions import LID, MESSAGE_ID

_MAX_STRETCHES: Final = 1 << 10
PIECE_ROWS: Final = 1 << 17
MOST_SPANS: Final = 64
"""Ranges that a filter names; of more it names what lies around them."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """What occurs more than once."""

    messages: Mapping[tuple[str, int], IntervalSet]
    """Per (group, lane)."""
    offsets: Mapping[tuple[str, str, str, int, int], IntervalSet]
    """Per (group, broker, topic, queue id, epoch)."""

    @classmethod
    def of(cls, messages: pa.Table, copies: pa.Table) -> Self:
        """From ranges of ``MESSAGE`` and of ``COPY``."""
        return cls(
            interval_sets(messages, "grp", "lane"),
            interval_sets(copies, "grp", "broker", "topic", "qid", "epoch"),
        )

    def __bool__(self) -> bool:
        return bool(self.messages or self.offsets)


class Candidates:
    """Finds them in raw rows of ``deliver``."""

    def __init__(self, repeated: Repeated, context: Context, ends: Ends) -> None:
        self._repeated = repeated
        self._context = context
        self._ends = ends
        self._lanes = lanes_of(repeated.messages)
        self._queues: dict[tuple[Any, ...], IntervalSet] = {}
        for (_, *queue, _), offsets in repeated.offsets.items():
            known = self._queues.get(tuple(queue))
            self._queues[tuple(queue)] = offsets if known is None else known | offsets

    def may_be_in(self, group: RowGroup) -> bool:
        """Whether a row group may hold some, as far as its statistics tell."""
        lane, lseq = group.span("lane"), group.span("lseq")
        if self._context.definitions.key != LID or lane is None or lseq is None:
            return True
        if _meets(self._lanes, lane, lseq):
            return True
        spans = [group.span(name) for name in ("broker", "ptopic", "qid", "qoff")]
        if None in spans:
            return bool(self._queues)
        *queue, (least, greatest) = (span for span in spans if span is not None)
        return any(
            all(lo <= value <= hi for value, (lo, hi) in zip(key, queue, strict=True))
            and offsets.meets(least, greatest)
            for key, offsets in self._queues.items()
        )

    def spans(self) -> Spans | None:
        """Where they are, as far as a few ranges say it."""
        if self._context.definitions.key != LID:
            return None
        names = ("broker", "ptopic", "qid")
        queues = [
            dict(zip(names, ((value, value) for value in queue), strict=True))
            | {"qoff": _span(offsets)}
            for queue, offsets in self._queues.items()
        ]
        return around([*_lane_spans(self._lanes), *queues], MOST_SPANS)

    def of(self, chunk: pa.Table) -> pa.Table:
        """Those of a chunk, normalised (``tables.CODED``)."""
        return pa.concat_tables([tables.CODED.empty_table(), *self.pieces_of(chunk)])

    def pieces_of(self, chunk: pa.Table) -> Iterator[pa.Table]:
        """The same piece by piece: a row takes two kilobytes while it is worked on."""
        if self._context.definitions.key == LID:
            chunk = self._near(chunk)
        for at in range(0, chunk.num_rows, PIECE_ROWS):
            piece = chunk.slice(at, PIECE_ROWS)
            rows = normalise(piece, self._context, self._ends, Dropped())
            yield candidates_of(rows, self._repeated)

    def _near(self, chunk: pa.Table) -> pa.Table:
        """The rows that are candidates in some group and epoch, and those without a LAB_ID."""
        rows = Rows(chunk)
        near = ~(rows.valid("lane") & rows.valid("lseq"))
        for lane, where in by_lane(rows["lane"]):
            if lane in self._lanes:
                near[where] |= self._lanes[lane].contains(rows["lseq"][where])
        for queue, where in rows.by_queue(("broker", "ptopic")) if self._queues else ():
            if queue in self._queues:
                near[where] |= self._queues[queue].contains(rows["qoff"][where])
        return chunk if near.all() else chunk.filter(pa.array(near))


def _meets(lanes: Mapping[int, IntervalSet], lane: tuple[int, int], lseq: tuple[int, int]) -> bool:
    return any(lane[0] <= one <= lane[1] and mine.meets(*lseq) for one, mine in lanes.items())


def _lane_spans(lanes: Mapping[int, IntervalSet]) -> Spans:
    return [{"lane": (lane, lane), "lseq": _span(mine)} for lane, mine in lanes.items()]


def _span(values: IntervalSet) -> tuple[int, int]:
    return int(values.lo[0]), int(values.hi[-1]) - 1


def around(spans: Spans, most: int) -> Spans:
    """At most so many kinds of ranges: if there are more, of each kind the one around all."""
    if len(spans) <= most:
        return spans
    kinds: dict[tuple[str, ...], dict[str, tuple[Any, Any]]] = {}
    for span in spans:
        known = kinds.setdefault(tuple(span), dict(span))
        for name, (least, greatest) in span.items():
            known[name] = (min(known[name][0], least), max(known[name][1], greatest))
    return list(kinds.values())


class Sent:
    """Finds send attempts of some messages in rows of ``produce``."""

    def __init__(self, lanes: Mapping[int, IntervalSet], key: str) -> None:
        """Look for ``lanes``, in the identity that ``passes.attempts_of`` gives by ``key``."""
        self._lanes = lanes
        self._key = key

    def may_be_in(self, group: RowGroup) -> bool:
        """Whether a row group may hold some, as far as its statistics tell."""
        lane, lseq = group.span("lane"), group.span("lseq")
        if self._key == MESSAGE_ID or lane is None or lseq is None:
            return True
        return _meets(self._lanes, lane, lseq)

    def spans(self) -> Spans | None:
        """Where they are, as far as a few ranges say it."""
        return None if self._key == MESSAGE_ID else around(_lane_spans(self._lanes), MOST_SPANS)

    def among(self, chunk: pa.Table) -> pa.Table:
        """Those of a chunk (``passes.ATTEMPTS``)."""
        return attempts_of(chunk, self._lanes, self._key)


def by_lane(lane: Ints) -> Iterator[tuple[int, slice | Ints]]:
    """Lanes, and where they are: stretches of rows, or the indices of all rows of each."""
    if not lane.size:
        return
    edges = np.flatnonzero(lane[1:] != lane[:-1]) + 1
    if edges.size < _MAX_STRETCHES:
        starts = [0, *edges.tolist()]
        for lo, hi in zip(starts, [*starts[1:], lane.size], strict=True):
            yield int(lane[lo]), slice(lo, hi)
        return
    order = np.argsort(lane, kind="stable")
    for where in np.split(order, np.flatnonzero(np.diff(lane[order])) + 1):
        yield int(lane[where[0]]), where


def candidates_of(chunk: pa.Table, repeated: Repeated) -> pa.Table:
    """Normalised rows, with all that ``tables.DELIVERY`` has, of what occurs more than once."""
    rows = Rows(chunk)
    chosen = np.zeros(rows.count, bool)
    grp, lseq = rows.codes("grp"), rows["lseq"]
    for lane, where in by_lane(rows["lane"]):
        for code, group in enumerate(grp.names):
            members = repeated.messages.get((group, lane))
            if members is not None:
                again = members.contains(lseq[where])
                chosen[where] |= (
                    again if len(grp.names) == 1 else again & (grp.codes[where] == code)
                )
    chosen |= _of_copies(rows, repeated)
    if rows.has("left_out"):
        chosen &= ~rows.true("left_out")
    kept = chunk.filter(pa.array(chosen)).select(tables.CODED.names).combine_chunks()
    columns = zip(kept.columns, tables.CODED, strict=True)
    return pa.table([_coded(column, f.type) for column, f in columns], schema=tables.CODED)


def _of_copies(rows: Rows, repeated: Repeated) -> Flags:
    """Which are of an offset that occurs more than once."""
    found = np.zeros(rows.count, bool)
    for key, where in rows.by_queue(("grp", "broker", "ptopic")) if repeated.offsets else ():
        for epoch in np.unique(rows["epoch"][where]).tolist():
            offsets = repeated.offsets.get((*key, epoch))
            if offsets is not None:
                here = where[rows["epoch"][where] == epoch]
                found[here] |= offsets.contains(rows["qoff"][here])
    return found


def only_repeated(candidates: Sequence[pa.Table], repeated: Repeated) -> list[pa.Table]:
    """Of all deliveries of some messages (``tables.CODED``) those of what occurs more than once.

    ``repeated.messages`` may be wider than that; ``repeated.offsets`` may not.
    """
    whole = pa.concat_tables(candidates).unify_dictionaries().combine_chunks()
    message = Columns(whole).dense("grp", "lane", "lseq")
    chosen = np.bincount(message)[message] > 1
    chosen |= _of_copies(Rows(whole), repeated)
    return [whole.filter(pa.array(chosen))]


def _coded(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The column in a type of ``tables.CODED``."""
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    if not pa.types.is_dictionary(column.type):
        column = column.cast(kind.value_type).dictionary_encode()
    return pa.chunked_array([_of_its_own(chunk, kind) for chunk in column.chunks], kind)


def _of_its_own(names: pa.DictionaryArray, kind: pa.DataType) -> pa.DictionaryArray:
    """The same with a copy of the dictionary: one out of a Parquet file keeps its batch alive."""
    known = names.dictionary.cast(kind.value_type)
    known = known.take(pa.array(np.arange(len(known))))
    return pa.DictionaryArray.from_arrays(names.indices.cast(kind.index_type), known)
