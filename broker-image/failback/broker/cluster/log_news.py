"""What a slave learns from its master's log before it asks: deletions, and queues of new topics.

Its tables are copied every ten seconds. A master that dies meanwhile takes what it changed with it,
while the log says that it was changed. So a slave deletes at once what the log says is deleted, and
asks its master at once about a topic that it does not know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from failback.broker.config.time_scale import TimeScale
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.store.log.deletion import Deleted, Deletion

logger = logging.getLogger(__name__)

GATHER_MS: Final = 100
"""How long news are gathered before the master is asked."""


@dataclass(slots=True)
class LogNews:
    """Takes what dispatch finds and has the tables copied soon."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    _: KW_ONLY
    scale: TimeScale
    synchronise: Callable[[], Awaitable[None]]
    deletions: int = field(init=False, default=0)
    """How many were heard of."""
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def deleted(self, deletion: Deletion) -> None:
        """Delete the same here, soon: dispatch must not wait for a table's file, nor fail."""
        self.deletions += 1
        self._loop.call_soon(self._delete, deletion)

    def met_queue(self, topic: str) -> None:
        """Ask the master if this slave does not know the topic of a queue."""
        if topic not in self.topics.table:
            self._wake.set()

    def _delete(self, deletion: Deletion) -> None:
        kind, name, at_ms = deletion
        logger.info("the master's log says that %s %s is deleted", kind.name.lower(), name)
        self._wake.set()
        try:
            # What changed later than this has been copied with its table.
            if kind is Deleted.TOPIC:
                if self.topics.data_version.timestamp <= at_ms:
                    self.topics.forget(name)
                self.offsets.remove_topic(name, at_ms)
            elif self.groups.data_version.timestamp <= at_ms:
                self.groups.forget(name)
            if kind is Deleted.GROUP_AND_OFFSETS:
                self.offsets.remove_group(name, at_ms)
            self.offsets.persist()
        except OSError as error:
            logger.error("a table could not be written: %s", error)

    async def run(self) -> None:
        """Copy the tables after news, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(self.scale.seconds(GATHER_MS))
            self._wake.clear()
            await self.synchronise()
