"""Log epochs: telling a queue offset from the same offset after the log lost its tail. Pure.

An epoch belongs to the *copy*, not to the moment of its delivery, else one copy could be split and
a repeat be missed. A truncation event of a queue is ``(boot_ms, cut)``: a master incarnation that
started with a smaller ``max`` than was known before. A copy is of epoch n if n events have
``boot_ms <= store_ms``: both readings come from the clock of the broker that stored the copy.
Copies below ``cut`` were stored before and keep their epoch on both sides of the event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

FURTHEST_NS: Final = 1 << 60
"""No run lasts that long, 36 years."""
FOREVER: Final = 1 << 30
"""Last epoch of a copy that no event cut away."""


class Queue(NamedTuple):
    """A physical queue."""

    broker: str
    topic: str
    qid: int


@dataclass(frozen=True, slots=True)
class QueueEvents:
    """The truncation events of one queue, oldest first."""

    boot_ms: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    t_ns: tuple[int, ...] = ()
    """When the new incarnation was first seen, in ns after run zero."""

    def epoch_of(self, store_ms: Ints) -> Ints:
        """Epoch of copies by their store time."""
        return np.searchsorted(np.array(self.boot_ms, np.int64), store_ms, "right")

    def last_epoch_of(self, queue_offset: Ints, epoch: Ints) -> Ints:
        """The last epoch in whose log a copy still is: until an event cuts at or below it."""
        last = np.full(epoch.shape, FOREVER, np.int64)
        for event in reversed(range(len(self.cut))):
            gone = (epoch <= event) & (queue_offset >= self.cut[event])
            last = np.where(gone, event, last)
        return last

    def epoch_at(self, t_ns: Ints) -> Ints:
        """Epoch of the log at instants after run zero."""
        return np.searchsorted(np.array(self.t_ns, np.int64), t_ns, "right")

    def clip(self, value: int, born: int, until: int) -> int:
        """What is left of an offset known in epoch ``born`` after the cuts before ``until``."""
        return min([value, *self.cut[born:until]])


class Start(NamedTuple):
    """An incarnation of a broker with id 0 as it was first seen."""

    broker: str
    boot_ms: int
    t_ns: int


def find_events(
    starts: Iterable[Start],
    first_max: Mapping[tuple[Queue, int], int],
    known: Mapping[tuple[Queue, int], int],
) -> dict[Queue, QueueEvents]:
    """Queues whose master started with less than was known to be there.

    Args:
        starts: Incarnations of masters, in any order.
        first_max: First ``max`` sampled of (queue, boot_ms).
        known: Highest offset + 1 known of (queue, boot_ms) *before* that incarnation started.
    """
    found: dict[Queue, list[tuple[int, int, int]]] = {}
    for start in sorted(starts, key=lambda start: start.boot_ms):
        for (queue, boot_ms), cut in first_max.items():
            if queue.broker != start.broker or boot_ms != start.boot_ms:
                continue
            if cut < known.get((queue, boot_ms), 0):
                found.setdefault(queue, []).append((boot_ms, cut, start.t_ns))
    return {queue: _events(events) for queue, events in sorted(found.items())}


def _events(rows: Sequence[tuple[int, int, int]]) -> QueueEvents:
    boot_ms, cut, t_ns = zip(*sorted(rows), strict=True)
    return QueueEvents(boot_ms, cut, t_ns)
