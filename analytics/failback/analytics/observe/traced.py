"""Exact counts of what a return cost, from single deliveries that clients traced. Pure.

A message was received again at a return if it has a delivery before the master was back and one
after. The count of a queue is exact only where the trace is whole, which shows in this:

* Every message from ``returned_offset`` to ``committed_offset`` has a delivery before the return.
* The member that handled the last of them was there after the return, or had committed all. A
  member that is killed loses its last traces.
* The messages that were received again have no hole. They begin at an offset of the master's table.
* The master's table has caught up. Deliveries beyond it have no hole either, but for the last
  seconds.
* No message from ``returned_offset`` on was stored twice: a trace cannot tell its copies apart.
* No clock of a member jumped: so it is known which deliveries were before the return.

``redelivery`` explains the offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.observe.redelivery import (
    RESTART,
    SLAVE_ONLY,
    GroupReturn,
    QueueReturn,
    Return,
)
from failback.analytics.run.align import Clocks
from failback.analytics.trace.deliveries import JUMP_MS, MS_NS
from failback.protocol.message import RETRY_PREFIX

LATE_NS: Final = 10_000_000_000
"""Traces of deliveries in the last seconds may be missing."""
_NS: Final = 1_000_000_000
_NEVER: Final = (1 << 62) - 1


class Queue(NamedTuple):
    """A queue as one group sees it."""

    group: str
    broker: str
    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class QueueDeliveries:
    """Deliveries of one queue to one group, sorted by begin (ns after run zero)."""

    offset: Ints
    begin: Ints
    process: Ints
    doubtful: Ints
    """Offsets of messages that were stored several times."""
    is_timed: bool = True
    """Whether no clock of its members jumped."""


_NONE: Final = np.empty(0, np.int64)
_NOTHING: Final = QueueDeliveries(_NONE, _NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """All deliveries in a trace."""

    queues: Mapping[Queue, QueueDeliveries] = field(default_factory=dict)

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(queue.group for queue in self.queues)

    def counts(self, returned: Return, group: GroupReturn) -> dict[int, int]:
        """Return the messages received again by queue id, for queues whose trace is whole."""
        if group.group not in self.groups:
            return {}
        found = {}
        for number, queue in group.queues.items():
            handled = self.queues.get(
                Queue(group.group, returned.broker, group.topic, number), _NOTHING
            )
            count = _count(queue, handled, returned)
            if count is not None:
                found[number] = count
        return found

    def doubles(
        self, returned: Return, group: GroupReturn, returns: Sequence[Return]
    ) -> dict[int, int]:
        """Return by queue id how many messages were traced before a return and after it.

        However much a trace lacks, these were received again. ``returns``: all, because what comes
        after the next outage is not of this one.
        """
        found, until = {}, _until(returned, returns)
        for number in group.queues:
            handled = self.queues.get(
                Queue(group.group, returned.broker, group.topic, number), _NOTHING
            )
            if handled.is_timed and returned.outage.back is not None:
                was = handled.begin < _back(returned)
                after = handled.begin >= round(returned.outage.back[1] * _NS)
                after &= handled.begin < until
                again = np.intersect1d(handled.offset[was], handled.offset[after])
                found[number] = int(np.setdiff1d(again, handled.doubtful).size)
        return found

    def causes(self, returns: Sequence[Return]) -> Iterator[dict[str, Any]]:
        """Yield the causes of traced messages that the returns prove, ``attribution.PROVED``.

        Only a queue whose trace is whole has some. A trace that lacks deliveries does not show
        which messages had been delivered when the master went.
        """
        for number, returned in enumerate(returns):
            span = {"since": _back(returned), "until": _until(returned, returns)}
            for group in returned.groups:
                for qid in self.counts(returned, group):
                    place = Queue(group.group, returned.broker, group.topic, qid)
                    handled = self.queues.get(place, _NOTHING)
                    queue = {"grp": place.group, "broker": place.broker, "ptopic": place.topic}
                    gone = round(returned.outage.gone[1] * _NS)
                    found = _rollbacks(group.queues[qid], handled, gone)
                    for layer, (cause, lo, hi) in enumerate(found, 2 * number):
                        row = {"layer": layer, "qid": qid, "lo": lo, "hi": hi, "cause": cause}
                        yield {**queue, **span, **row}


NOTHING_TRACED: Final = Deliveries()


def _back(returned: Return) -> int:
    """Return when the master gave no answer last, in ns."""
    back = returned.outage.back or returned.outage.gone
    return round(back[0] * _NS)


def _until(returned: Return, returns: Sequence[Return]) -> int:
    """Return when the master went again, in ns."""
    gone = (each.outage.gone[0] for each in returns if each.outage.pair == returned.outage.pair)
    return min((t for t in (round(s * _NS) for s in gone) if t > _back(returned)), default=_NEVER)


def _rollbacks(
    queue: QueueReturn, handled: QueueDeliveries, gone: int
) -> Iterator[tuple[str, int, int]]:
    """Yield a cause of messages that were received again, with their offsets ``[lo, hi)``.

    Messages below the offset in the master's table before it went were received again because of
    its restart. Messages that were not delivered yet when it was gone were committed to the slave
    alone. Commits of the messages between may have come to the master after the last look: they
    have no cause, because both are possible.
    """
    before = min(queue.outage_offset, queue.committed_offset)
    yield RESTART, queue.returned_offset, before
    given = handled.offset[handled.begin < gone]
    if given.size:
        yield (
            SLAVE_ONLY,
            max(before, queue.returned_offset, int(given.max()) + 1),
            queue.committed_offset,
        )


DELIVER_COLUMNS: Final = ("host", "proc_no", "grp", "broker", "ptopic", "qid", "qoff", "ukey", "bt")
SCAN_COLUMNS: Final = ("ptopic", "ukey")


def deliveries_of(
    deliver: Iterable[pa.Table], scan: Iterable[pa.Table], clocks: Clocks
) -> Deliveries:
    """Read deliveries (:data:`DELIVER_COLUMNS`) and copies (:data:`SCAN_COLUMNS`) of the lake."""
    pieces = list(deliver)
    if not pieces:
        return NOTHING_TRACED
    jumped = {host for host, error in clocks.error.items() if error > JUMP_MS * MS_NS}
    whole = pa.concat_tables(pieces).unify_dictionaries()
    several = pa.array(list(_stored_twice(scan)), pa.utf8())
    columns = {name: whole.column(name) for name in DELIVER_COLUMNS}
    hosts = columns["host"].to_pylist()
    shift = [clocks.shift_of(host) for host in hosts]
    begin = np.asarray(columns["bt"].to_numpy(), np.int64) + np.array(shift, np.int64)
    doubtful = np.asarray(pc.is_in(columns["ukey"].cast(pa.utf8()), several).to_numpy(), bool)
    offset, process, number = (
        np.asarray(columns[name].to_numpy(), np.int64) for name in ("qoff", "proc_no", "qid")
    )
    names = [columns[name].to_pylist() for name in ("grp", "broker", "ptopic")]
    rows: dict[Queue, list[int]] = {}
    for row, (group, broker, topic) in enumerate(zip(*names, strict=True)):
        rows.setdefault(Queue(group, broker, topic, int(number[row])), []).append(row)
    found = {}
    for queue, those in rows.items():
        at = np.array(those)
        at = at[np.argsort(begin[at], kind="stable")]
        is_timed = jumped.isdisjoint(hosts[row] for row in those) if jumped else True
        found[queue] = QueueDeliveries(
            offset[at], begin[at], process[at], offset[at[doubtful[at]]], is_timed
        )
    return Deliveries(found)


def _stored_twice(scan: Iterable[pa.Table]) -> Iterator[str]:
    """Yield ids of messages of which a topic, not a retry topic, has several copies."""
    names = []
    for piece in scan:
        retry = pc.starts_with(piece.column("ptopic").cast(pa.utf8()), RETRY_PREFIX)
        names.append(piece.filter(pc.invert(retry)).column("ukey").cast(pa.utf8()))
    if not names:
        return
    counted = pc.value_counts(pa.chunked_array([c for each in names for c in each.chunks]))
    for row in counted.to_pylist():
        if row["values"] is not None and row["counts"] > 1:
            yield row["values"]


def _count(queue: QueueReturn, handled: QueueDeliveries, returned: Return) -> int | None:
    """Return the messages received again; ``None`` where the trace may lack some."""
    if queue.is_behind or returned.outage.back is None or not handled.is_timed:
        return None
    if (handled.doubtful >= queue.returned_offset).any():
        return None
    was = handled.begin < _back(returned)
    before, after = np.unique(handled.offset[was]), np.unique(handled.offset[~was])
    if not _covers(before, queue.returned_offset, queue.committed_offset) or not _tail_is_known(
        queue, handled, was
    ):
        return None
    again = np.intersect1d(before, after)
    if again.size:
        begins_well = int(again[0]) in {queue.returned_offset, *queue.master_offsets}
        if not begins_well or not _covers(again, int(again[0]), int(again[-1]) + 1):
            return None
    if not _goes_on(queue, handled, np.union1d(before, after), after):
        return None
    return int(again.size)


def _covers(offsets: Ints, first: int, end: int) -> bool:
    """Whether sorted offsets have all of ``[first, end)``."""
    low, high = np.searchsorted(offsets, [first, end])
    return bool(high - low >= end - first)


def _tail_is_known(queue: QueueReturn, handled: QueueDeliveries, was: np.ndarray) -> bool:
    """Whether no trace before the return can have been lost with the member that wrote it."""
    if not was.any() or int(handled.offset[was].max()) < queue.committed_offset:
        return True
    last = handled.process[was][-1]
    return bool((handled.process[~was] == last).any())


def _goes_on(queue: QueueReturn, handled: QueueDeliveries, known: Ints, after: Ints) -> bool:
    """Whether messages beyond ``committed_offset`` are traced: the holder of the queue traces."""
    if queue.master_offset <= queue.committed_offset:
        return True
    beyond = after[after >= queue.committed_offset]
    if not beyond.size:
        return _covers(known, queue.committed_offset, queue.master_offset)
    horizon = int(handled.begin[-1]) - LATE_NS
    settled = handled.offset[handled.begin <= horizon]
    end = (
        min(queue.master_offset, int(settled.max()) + 1) if settled.size else queue.committed_offset
    )
    return _covers(known, queue.committed_offset, max(queue.committed_offset, end))
