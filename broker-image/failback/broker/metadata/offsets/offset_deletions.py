"""When the offsets of a group, or on a topic, were deleted on purpose, so that they stay so.

A slave takes what its master has and keeps what it has besides, and a returning master may take
larger offsets of its slaves. Neither tells what was lost from what was deleted. So each table of
offsets says beside itself what was deleted, and when: whoever takes a table takes that first, and
nothing of a table that has not heard of it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from failback.protocol.route import split_offset_key

MOST_KEPT: Final = 10_000
"""Deletions that are remembered; beyond, the oldest are forgotten."""


def of_topic(topic: str) -> str:
    """Return the key of the offsets of all groups on ``topic``."""
    return f"{topic}@"


def of_group(group: str) -> str:
    """Return the key of all offsets of ``group``."""
    return f"@{group}"


class OffsetDeletions:
    """Key of what was deleted to when, in ms of the master that did it.

    Attributes:
        table: As it stands in consumerOffset.json and answers 43.
    """

    def __init__(self, table: Mapping[str, int] | None = None) -> None:
        self.table: dict[str, int] = dict(table or {})

    def note(self, key: str, at_ms: int) -> bool:
        """Remember a deletion; tell whether it is newer than what was known of ``key``."""
        if at_ms <= self.table.get(key, -1):
            return False
        self.table.pop(key, None)  # the newest comes last
        self.table[key] = at_ms
        if len(self.table) > MOST_KEPT:
            del self.table[min(self.table, key=self.table.__getitem__)]
        return True

    def newer(self, theirs: Mapping[str, int] | None) -> Iterable[tuple[str, int]]:
        """Return what another table's deletions say that is newer than what is known here."""
        told = theirs or {}
        return [(key, at_ms) for key, at_ms in told.items() if at_ms > self.table.get(key, -1)]

    def has_heard(self, theirs: Mapping[str, int] | None, key: str) -> bool:
        """Whether a table with the deletions ``theirs`` may say something of ``topic@group``."""
        if not self.table:
            return True
        told, (topic, group) = theirs or {}, split_offset_key(key)
        return all(
            told.get(each, -1) >= self.table.get(each, -1)
            for each in (of_topic(topic), of_group(group))
        )

    def known_to(
        self, table: Mapping[str, Mapping[int, int]], theirs: Mapping[str, int] | None
    ) -> Mapping[str, Mapping[int, int]]:
        """Return of another table what is of the time after all deletions that are known here."""
        if not self.table:
            return table
        return {key: queues for key, queues in table.items() if self.has_heard(theirs, key)}
