"""Totals of one queue while its run goes on: deliveries, and how many of them were repeats. Pure.

A queue's state is the set of offsets that were delivered at least once, as intervals, and a count.
What comes late or in another order is more intervals, so the totals do not depend on the order. The
caller adds each row once. Offsets that a cut log gave to other messages count as repeats here; only
the report knows such epochs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from failback.analytics.analysis.arrays.intervals import IntervalSet, Ints

_HEAD: Final = struct.Struct("<BQI")
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class QueueState:
    """What is known of one queue of one group."""

    seen: IntervalSet = field(default_factory=IntervalSet)
    delivered: int = 0

    @property
    def distinct(self) -> int:
        """Offsets delivered at least once."""
        return len(self.seen)

    @property
    def repeated(self) -> int:
        """Deliveries of an offset that had been delivered before."""
        return self.delivered - self.distinct

    def add(self, lo: Ints, hi: Ints, weight: Ints) -> QueueState:
        """With the offsets of some runs ``[lo, hi)``, each delivered ``weight`` times."""
        count = int(((hi - lo) * weight).sum())
        return QueueState(self.seen | IntervalSet.of(lo, hi), self.delivered + count)

    def encode(self) -> bytes:
        """As bytes: the distances between the edges of the intervals, in as few bytes as fit."""
        edges = np.empty(2 * self.seen.lo.size, np.int64)
        edges[0::2], edges[1::2] = self.seen.lo, self.seen.hi
        steps = np.diff(edges, prepend=np.int64(0))
        width = 4 if not steps.size or int(steps.max()) < 1 << 32 else 8
        head = _HEAD.pack(_VERSION, self.delivered, steps.size * 16 + width)
        return head + steps.astype(f"<u{width}").tobytes()

    @classmethod
    def decode(cls, content: bytes) -> QueueState:
        """The state that :meth:`encode` wrote.

        Raises:
            ValueError: It is of another version, or cut.
        """
        if len(content) < _HEAD.size:
            raise ValueError(f"state of {len(content)} bytes is cut")
        version, delivered, shape = _HEAD.unpack_from(content)
        if version != _VERSION:
            raise ValueError(f"state of version {version}, not {_VERSION}")
        count, width = divmod(shape, 16)
        steps = np.frombuffer(content, f"<u{width}", count, _HEAD.size).astype(np.int64)
        edges = np.cumsum(steps)
        return cls(IntervalSet.of(edges[0::2], edges[1::2]), delivered)
