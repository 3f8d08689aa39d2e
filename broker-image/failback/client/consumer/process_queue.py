"""The messages of one held queue between pull and acknowledgement (pure).

A queue's offset may be committed up to its lowest unfinished message and no further. Finished
messages above that one are not covered by any commit: the next owner of the queue gets them
again. That is the whole source of "tail" duplicates, so the rule lives here, alone and tested.

Source: ProcessQueue, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from failback.protocol.message import MessageExt
from failback.protocol.stats import ProcessQueueInfo

NO_OFFSET = -1
"""Result of :meth:`ProcessQueue.remove` for an empty queue."""


class ProcessQueue:
    """Not thread-safe: all callers are on one event loop.

    Attributes:
        pqe: Number of this life of the queue, unique in the process.
        dropped: The queue was given up. Results that arrive later don't count.
        end_noted: The log knows of it.
        last_pull: Loop time in seconds of the last pull *attempt*.
        first_offset: Where consumption of this life began.
    """

    __slots__ = (
        "_heap_low",
        "_messages",
        "body_bytes",
        "consume_started",
        "dropped",
        "end_noted",
        "first_offset",
        "last_pull",
        "max_put",
        "pqe",
    )

    def __init__(self, pqe: int, now: float, first_offset: int = 0) -> None:
        self.pqe = pqe
        self.dropped = False
        self.end_noted = False
        self.last_pull = now
        self.first_offset = first_offset
        self.max_put = 0
        self.body_bytes = 0
        self.consume_started: dict[int, float] = {}
        # Insertion order is offset order in practice (one pull at a time, ascending offsets), so
        # the lowest key is the first one; _heap_low says whether that still holds.
        self._messages: dict[int, MessageExt] = {}
        self._heap_low = True

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message: MessageExt) -> bool:
        return self._messages.get(message.queue_offset) is message

    def put(self, messages: Iterable[MessageExt]) -> None:
        """Hold ``messages``. One whose offset is already held replaces it and counts once."""
        held = self._messages
        for message in messages:
            offset = message.queue_offset
            old = held.get(offset)
            if old is None:
                if held and offset < self.max_put:
                    self._heap_low = False
                self.max_put = offset
                self.body_bytes += len(message.body)
            held[offset] = message

    def remove(self, messages: Sequence[MessageExt]) -> int:
        """Finish ``messages`` and return the offset up to which the queue is now done.

        The lowest offset still unfinished, or one past the highest ever put; ``-1`` when nothing
        was held.
        """
        held = self._messages
        if not held:
            return NO_OFFSET
        for message in messages:
            gone = held.pop(message.queue_offset, None)
            if gone is not None:
                self.body_bytes -= len(gone.body)
                self.consume_started.pop(message.queue_offset, None)
        if not held:
            self._heap_low = True
            return self.max_put + 1
        return self.lowest()

    def lowest(self) -> int:
        """The lowest unfinished offset. The queue must hold something."""
        return next(iter(self._messages)) if self._heap_low else min(self._messages)

    def span(self) -> int:
        """Highest minus lowest held offset; 0 when empty."""
        if not self._messages:
            return 0
        highest = self.max_put if self._heap_low else max(self._messages)
        return highest - self.lowest()

    def head(self) -> MessageExt | None:
        """The unfinished message with the lowest offset."""
        return self._messages[self.lowest()] if self._messages else None

    def is_pull_expired(self, now: float, limit_seconds: float) -> bool:
        """Tell whether no pull was even attempted for longer than ``limit_seconds``."""
        return now - self.last_pull > limit_seconds

    def clear(self) -> None:
        """Forget all messages, as a reset of the offset does."""
        self._messages.clear()
        self.consume_started.clear()
        self.body_bytes = 0
        self.max_put = 0
        self._heap_low = True

    def info(self, commit_offset: int, now: float, wall_ms: int) -> ProcessQueueInfo:
        """Describe the messages in memory, for request 307. ``now`` is loop time, seconds."""
        lowest = self.lowest() if len(self) else 0
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=lowest,
            cached_msg_max_offset=lowest + self.span(),
            cached_msg_count=len(self),
            cached_msg_size_in_mi_b=self.body_bytes // (1024 * 1024),
            droped=self.dropped,
            last_pull_timestamp=wall_ms - round((now - self.last_pull) * 1000),
        )
