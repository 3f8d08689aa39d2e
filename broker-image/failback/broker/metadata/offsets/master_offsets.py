"""Which of its master's consumer offsets a guarded slave takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from failback.broker.metadata.offsets.consumer_offset_manager import OffsetTable

logger = logging.getLogger(__name__)


class MasterOffsets:
    """Merges a master's table into a slave's without losing what the slave knows better.

    4.9.8 takes every value of the master, so a master that came back from a kill overwrites what
    groups committed to the slave meanwhile (apache/rocketmq#1094). Here the larger offset of a
    queue stays, with one exception. A value that the master itself has lowered within one life is a
    reset, or a commit of an older offset, and is taken.
    """

    def __init__(self) -> None:
        self._boot_ms: int | None = None
        self._last: OffsetTable = {}
        self.kept = 0
        """How often a larger offset of the slave was kept, counted once per queue and value."""
        self._kept: dict[tuple[str, int], int] = {}

    def merge(
        self,
        mine: OffsetTable,
        theirs: Mapping[str, Mapping[int, int]],
        boot_ms: int,
        on_lowered: Callable[[str, int], None] = lambda _key, _messages: None,
    ) -> None:
        """Bring ``mine`` up to date with a master's table of the life that began at ``boot_ms``.

        ``on_lowered`` hears of each offset that goes back: its key, and by how many messages.
        """
        is_same_life = boot_ms == self._boot_ms
        for key, queues in theirs.items():
            before = self._last.get(key, {}) if is_same_life else {}
            kept = mine.setdefault(key, {})
            for queue_id, offset in queues.items():
                is_lowered = offset < before.get(queue_id, offset)
                if is_lowered or offset >= kept.get(queue_id, offset):
                    if offset < kept.get(queue_id, offset):
                        on_lowered(key, kept[queue_id] - offset)
                    kept[queue_id] = offset
                else:
                    self._note(key, queue_id, kept[queue_id], offset)
        self._boot_ms = boot_ms
        self._last = {key: dict(queues) for key, queues in theirs.items()}

    def _note(self, key: str, queue_id: int, mine: int, theirs: int) -> None:
        if self._kept.get((key, queue_id)) == mine:
            return
        self._kept[key, queue_id] = mine
        self.kept += 1
        logger.warning("%s queue %d: kept %d, the master has %d", key, queue_id, mine, theirs)
