"""Counts consumer offsets that go back, by what made them: what is delivered again for it.

Nothing here is on the path of a commit that goes forward. A reset differs from other commits by
what the broker sent to the members: it is the first smaller commit of a queue that is not below
the place that the queue was reset to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from failback.protocol.metric_families import MAX_SERIES, OTHER
from failback.protocol.route import split_offset_key

Source = Literal["restart", "slave_sync", "client_commit", "reset"]
_SEPARATOR: Final = "@"
_MOST_RESETS: Final = 10_000


class OffsetRegressions:
    """Times and messages by source, topic and group, since the process started."""

    def __init__(self) -> None:
        self.counts: dict[tuple[Source, str, str], list[int]] = {}
        """(source, topic, group) to times and messages; beyond the budget ``other``."""
        self.overwrites = 0
        """Synchronisations that replaced at least one offset by a smaller one."""
        self._resets: dict[tuple[str, int], int] = {}

    def expect_reset(self, topic: str, group: str, targets: Mapping[int, int]) -> None:
        """Note the offsets, by queue, that a reset has sent to the members."""
        if len(self._resets) > _MOST_RESETS:  # of groups that never obeyed
            self._resets.clear()
        for queue_id, target in targets.items():
            self._resets[f"{topic}{_SEPARATOR}{group}", queue_id] = target

    def committed(self, key: str, queue_id: int, stored: int, offset: int) -> None:
        """A client's commit lowered the offset of a queue from ``stored``."""
        target = self._resets.get((key, queue_id))
        source: Source = "client_commit"
        if target is not None and offset >= target:
            source = "reset"
            del self._resets[key, queue_id]
        self.note(source, key, stored - offset)

    def overwritten(
        self, mine: Mapping[str, Mapping[int, int]], theirs: Mapping[str, Mapping[int, int]]
    ) -> None:
        """A slave is about to take its master's table as it is."""
        before = self.overwrites
        for key, queues in theirs.items():
            held = mine.get(key)
            if held is None or held == queues:
                continue
            for queue_id, offset in held.items():
                taken = queues.get(queue_id)
                if taken is not None and taken < offset:
                    self.note("slave_sync", key, offset - taken)
                    self.overwrites = before + 1

    def restarted(
        self, mine: Mapping[str, Mapping[int, int]], known: Mapping[str, Mapping[int, int]]
    ) -> int:
        """A slave still knows what this broker lost with its process; how many offsets."""
        found = 0
        for key, queues in known.items():
            for queue_id, offset in queues.items():
                loaded = max(0, mine.get(key, {}).get(queue_id, 0))
                if offset > loaded:
                    self.note("restart", key, offset - loaded)
                    found += 1
        return found

    def note(self, source: Source, key: str, messages: int) -> None:
        """Count one offset that went back by ``messages``."""
        topic, group = split_offset_key(key)
        place = (source, topic, group)
        if place not in self.counts and len(self.counts) >= MAX_SERIES:
            place = (source, OTHER, OTHER)
        count = self.counts.setdefault(place, [0, 0])
        count[0] += 1
        count[1] += messages
