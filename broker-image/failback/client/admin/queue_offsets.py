"""Offsets of queues: their range, the copies of a consumer offset, and two looks at a pair. Pure.

Tables are answers to 43: ``topic@group`` to queue id to the next offset. Exporter and operator
compare the tables that they poll. Failback's own brokers count their regressions themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

CLIENT: Final = "client memory"
MASTER_TABLE: Final = "master table"
MASTER_FILE: Final = "master file"
SLAVE_TABLE: Final = "slave table"
ANSWER: Final = "answer"
_SEPARATOR: Final = "@"
COPIES_NONE: Final = frozenset({"V5_5_0"})
"""``brokerVersionDesc`` of slaves that copy no consumer offsets: they can't read the answer to 43.

Source: apache/rocketmq#10284; mended by #10287, after the release."""


class Span(NamedTuple):
    """From the first offset that is stored to the end of a queue."""

    first: int
    end: int
    """The offset that the next message gets."""

    def holds(self, offset: int) -> bool:
        """Whether a group can go on there."""
        return self.first <= offset <= self.end

    def nearest(self, offset: int) -> int:
        """The offset of the queue that is nearest to one that may lie outside."""
        return max(self.first, min(offset, self.end))

    def lag(self, offset: int) -> int:
        """Messages that are stored and not consumed."""
        return self.end - self.nearest(offset)

    def expired(self, offset: int) -> int:
        """Messages that were not consumed and are no longer stored."""
        return max(0, self.first - max(0, offset))

    def beyond(self, offset: int) -> int:
        """How far an offset lies behind the end, where there never was a message."""
        return max(0, offset - self.end)

    def outside(self, offset: int) -> str:
        """By how much an offset lies outside, in words; empty for one within."""
        if offset > self.end:
            return f"{offset} lies {self.beyond(offset)} beyond the end {self.end}"
        if offset < self.first:
            return f"{offset} lies {self.first - offset} below the first offset {self.first}"
        return ""


Table = Mapping[str, Mapping[int, int]]
Source = Literal["restart", "slave_sync", "client_commit"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Messages between a slave's offsets of one group and its master's."""

    slave_ahead: int = 0
    master_ahead: int = 0


@dataclass(frozen=True, slots=True)
class Regression:
    """The offsets of a group on a topic went back, in ``queues`` queues by ``messages``."""

    topic: str
    group: str
    source: Source
    queues: int
    messages: int


def divergence(master: Table, slave: Table) -> dict[str, Divergence]:
    """Compare two tables; every group of either is in the answer."""
    sums: dict[str, tuple[int, int]] = {}
    for key in {**master, **slave}:
        group = key.partition(_SEPARATOR)[2]
        theirs, mine = master.get(key, {}), slave.get(key, {})
        ahead, behind = sums.get(group, (0, 0))
        if theirs != mine:
            for queue_id in {**theirs, **mine}:
                distance = max(0, mine.get(queue_id, 0)) - max(0, theirs.get(queue_id, 0))
                ahead += max(0, distance)
                behind += max(0, -distance)
        sums[group] = (ahead, behind)
    return {group: Divergence(*each) for group, each in sums.items()}


class SyncWatch:
    """Since when a slave has not copied its master's offsets, as far as looks show.

    It has, when both tables are equal, or when one of its values became another one that is not
    above the master's. A slave that clients commit to while the master is down has copied nothing.
    """

    def __init__(self) -> None:
        self._slave: Table | None = None
        self._copied_at: float | None = None
        self.overwrites = 0
        """Copies that made an offset of the slave smaller."""

    def look(self, master: Table | None, slave: Table | None, at: float) -> None:
        """Take one look at both; ``None``: no answer. ``at`` in seconds, never going back."""
        if slave is None:
            return
        before, self._slave = self._slave, slave
        if master is None:
            return
        if self._copied_at is None:
            self._copied_at = at  # the best that is known
        if slave == master or _took_over(before, slave, master):
            self._copied_at = at
        if before is not None and any(True for _ in _lowered(before, slave)):
            self.overwrites += 1

    def age_seconds(self, now: float) -> float | None:
        """``None`` before the first look at both."""
        return None if self._copied_at is None else max(0.0, now - self._copied_at)


def _took_over(before: Table | None, slave: Table, master: Table) -> bool:
    if before is None:
        return False
    for key, queues in slave.items():
        was = before.get(key, {})
        if was == queues:
            continue
        theirs = master.get(key, {})
        for queue_id, offset in queues.items():
            if was.get(queue_id) != offset and offset <= theirs.get(queue_id, -1):
                return True
    return False


class RegressionWatch:
    """Finds what went back in one broker's table from one look to the next.

    From outside a reset by a tool and a client's commit look the same: both are client_commit.
    """

    def __init__(self, *, is_slave: bool) -> None:
        self.is_slave = is_slave
        self._table: Table | None = None
        self._boot_ms: int | None = None

    def look(self, table: Table, boot_ms: int) -> list[Regression]:
        """Take one look at the broker that was started at ``boot_ms``."""
        before, life = self._table, self._boot_ms
        self._table, self._boot_ms = table, boot_ms
        if before is None:
            return []
        source: Source = "client_commit"
        if life != boot_ms:
            source = "restart"
        elif self.is_slave:
            source = "slave_sync"
        found: dict[str, tuple[int, int]] = {}
        for key, messages in _lowered(before, table):
            queues, total = found.get(key, (0, 0))
            found[key] = (queues + 1, total + messages)
        return [
            Regression(topic, group, source, *counts)
            for (topic, _, group), counts in (
                (key.partition(_SEPARATOR), counts) for key, counts in found.items()
            )
        ]


def _lowered(before: Table, after: Table) -> Iterator[tuple[str, int]]:
    """Each queue whose offset is smaller or gone: its key, and by how many messages.

    A group or topic that is gone altogether was deleted; that is no step back.
    """
    for key, queues in before.items():
        now = after.get(key)
        if now is None or now == queues:
            continue
        for queue_id, offset in queues.items():
            left = max(0, now.get(queue_id, 0))
            if left < offset:
                yield key, offset - left
