"""Delivers delayed messages when they are due. Runs on masters only.

Each level is a queue of SCHEDULE_TOPIC_XXXX in which messages are due in the order in which they
were stored; its entries carry the time. How far each level has been delivered is kept in
``delayOffset.json`` every ``flushDelayOffsetInterval``: after a kill, what was delivered since is
delivered again, as new messages.

Source: ScheduleMessageService.DeliverDelayedMessageTimerTask, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Final

from failback.broker.config.time_scale import TimeScale
from failback.broker.messaging.delayed import real_place, stored_message
from failback.broker.messaging.delivery import Delivery
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import SCHEDULE_TOPIC
from failback.protocol.errors import StoreError
from failback.protocol.message import REAL_TOPIC

logger = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 1_000
PERIOD_MS: Final = 100
MOST_LEVELS: Final = 18
"""Queues of SCHEDULE_TOPIC_XXXX that are read, also when fewer levels are configured."""
MOST_PER_TURN: Final = 256
"""Messages of one level that are delivered before others get their turn."""


@dataclass(slots=True)
class DelayService:
    """Moves what is due from SCHEDULE_TOPIC_XXXX to where it belongs."""

    store: MessageStore
    delay_offsets: DelayOffsets
    delivery: Delivery
    _: KW_ONLY
    scale: TimeScale
    clock_ms: Callable[[], int]
    commit: Callable[[], None]
    """Writes what was appended; StoreError if the disk refuses."""

    async def run(self) -> None:
        """Deliver until cancelled."""
        self.correct_offsets()
        await asyncio.sleep(self.scale.seconds(FIRST_DELAY_MS))
        while True:
            is_more_due = self.deliver_due()
            await asyncio.sleep(0 if is_more_due else self.scale.seconds(PERIOD_MS))

    def correct_offsets(self) -> None:
        """Bring offsets that lie outside their queue back into it."""
        for level, offset in self.delay_offsets.table.items():
            corrected = self._within(level, offset)
            if corrected != offset:
                logger.warning("delay level %d: offset %d is now %d", level, offset, corrected)
                self.delay_offsets.table[level] = corrected

    def deliver_due(self) -> bool:
        """Deliver what is due now; tell whether more is."""
        if not self.store.is_writable:  # the disk is full, and the log says so
            return False
        turns = {level: self._deliver_level(level, delay) for level, delay in self._levels()}
        if any(delivered for _, delivered in turns.values()):
            try:
                self.commit()
            except StoreError:  # logged where the broker is stopped for it
                return False
        # Not before the copies are in the log: an offset that is persisted earlier outlives a kill
        # that they don't.
        for level, (offset, _) in turns.items():
            if offset is not None:
                self.delay_offsets.table[level] = offset
        return any(delivered == MOST_PER_TURN for _, delivered in turns.values())

    def _levels(self) -> Iterator[tuple[int, float]]:
        """Yield each level with its delay, ms; those of an earlier configuration are due too."""
        delays = self.store.delays
        yield from enumerate(delays, start=1)
        for level in range(len(delays) + 1, MOST_LEVELS + 1):
            if self.store.has_queue(SCHEDULE_TOPIC, level - 1):
                yield level, math.inf

    def _deliver_level(self, level: int, delay_ms: float) -> tuple[int | None, int]:
        """Append what is due; return the new offset, None without messages, and how many."""
        offset = self._within(level, self.delay_offsets.table.get(level, 0))
        try:
            entries = self.store.entries(SCHEDULE_TOPIC, level - 1, offset, MOST_PER_TURN)
        except OSError as error:
            logger.error("delay level %d can't be read at %d: %s", level, offset, error)
            return None, 0
        if not entries:
            return None, 0
        now, delivered = self.clock_ms(), 0
        for physical_offset, _, due_ms in entries:
            # One that is due in more than its delay was stored by a clock that was ahead.
            if now < due_ms <= now + delay_ms:
                break
            try:
                self._deliver_or_keep(physical_offset, level, offset)
            except (StoreError, OSError) as error:
                logger.error("delay level %d stays at %d: %s", level, offset, error)
                break
            delivered += 1
            offset += 1
        return offset, delivered

    def _deliver_or_keep(self, physical_offset: int, level: int, offset: int) -> None:
        """Append the copy; what can't be one is parked, and what waits behind it goes on.

        Raises:
            StoreError, OSError: The store refuses all writes now.
        """
        try:
            self._deliver(physical_offset, level, offset)
        except (StoreError, OSError):
            raise
        # A fault of ours, at one message: neither the broker nor the level may end there.
        except Exception:
            logger.exception("delayed message at physical offset %d", physical_offset)
            reason = "an internal error, which the log of the broker has"
            self.delivery.put_aside.keep(None, physical_offset, reason)

    def _deliver(self, physical_offset: int, level: int, offset: int) -> None:
        message, keep = stored_message(self.store, physical_offset), self.delivery.put_aside.keep
        place = (SCHEDULE_TOPIC, level - 1, offset)
        if message is None or (message.topic, message.queue_id, message.queue_offset) != place:
            keep(None, physical_offset, "its record is damaged")
            return
        target = real_place(message)
        if target is None:
            topic = message.properties.get(REAL_TOPIC, "")
            keep(message, physical_offset, "it names no topic and queue", topic)
            return
        self.delivery.deliver(message, *target, message.properties)

    def _within(self, level: int, offset: int) -> int:
        low = self.store.min_queue_offset(SCHEDULE_TOPIC, level - 1)
        high = self.store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
        return min(max(offset, low), high)
