"""A slave's copies of its master's metadata, and which consumer offsets a guarded slave takes.

The tables are copied every ten seconds. A change that the master made since the last copy is lost
with the master, although its log tells of it. So a slave deletes at once what the log says is
deleted, and asks its master at once about a topic that it does not know.

Source: SlaveSynchronize, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, TypeVar

from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.config.time_scale import TimeScale
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import (
    ConsumerOffsetManager,
    OffsetTable,
)
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.store.log.deletion import Deleted, Deletion
from failback.protocol.errors import FailbackError, ProtocolError

logger = logging.getLogger(__name__)
_TRIES: Final = 50
_PAUSE_SECONDS: Final = 0.01
"""A slave is milliseconds behind its master, unless it copies a long log."""
FIRST_DELAY_MS: Final = 3_000
PERIOD_MS: Final = 10_000
"""When :meth:`SlaveSynchronize.sync_all` runs, on the scheduler that also persists offsets."""
GATHER_MS: Final = 100
"""How long found deletions and topics are gathered before the master is asked."""


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

        ``on_lowered`` is called for each offset that goes back: its key, and by how many messages.
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


_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class SlaveSynchronize:
    """Copies topics, consumer offsets, delay offsets and groups from the master.

    The master address is what the last registration answered, ``None`` included. While the master
    is not registered nothing is copied: the slave keeps its last copy and what clients commit to
    it. The first copy after the master's return overwrites those commits, for consumer offsets are
    compared with nothing (apache/rocketmq#1094), unless ``failbackGuardSlaveOffsets`` has
    :class:`MasterOffsets` compare them.
    """

    outer: BrokerOuterApi
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsets
    _: KW_ONLY
    own_address: str
    is_guarded: Callable[[], bool] = lambda: False
    """Whether larger consumer offsets stay; asked for each copy."""
    log_end: Callable[[], int] | None = None
    """Where this slave's log ends."""
    deletions_heard: Callable[[], int] = lambda: 0
    """How many deletions this slave has learnt of otherwise."""
    master_offsets: MasterOffsets = field(init=False, default_factory=MasterOffsets)
    _master: str | None = field(init=False, default=None)
    _one_at_a_time: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    @property
    def master_addr(self) -> str | None:
        """``host:port`` of the master for clients; its fast port is two below."""
        return self._master

    def set_master_addr(self, address: str | None) -> None:
        """Take what a registration answered."""
        if address != self._master:
            logger.info("master address %s, was %s", address, self._master)
            self._master = address

    async def sync_all(self) -> bool:
        """Run the four copies one after another; each fails alone, with a line in the log.

        Returns whether a master was asked and all four succeeded.
        """
        async with self._one_at_a_time:
            master = self._master
            if master is None or master == self.own_address:
                return False
            done = [
                await self._run("topics", self._sync_topics, master),
                await self._run("consumer offsets", self._sync_consumer_offsets, master),
                await self._run("delay offsets", self._sync_delay_offsets, master),
                await self._run("consumer groups", self._sync_groups, master),
            ]
            return all(done)

    async def _run(self, what: str, copy: Callable[[str], Awaitable[None]], master: str) -> bool:
        try:
            await copy(master)
        except (FailbackError, OSError) as error:
            logger.error("copying %s from master %s failed: %s", what, master, error)
            return False
        logger.debug("copied %s from master %s", what, master)
        return True

    async def _sync_topics(self, master: str) -> None:
        if self.topics.replace_all(await self._current(self.outer.get_all_topic_config(master))):
            await self.topics.writes.settled()
            logger.info("copied topics from master %s", master)

    async def _current(self, asked: Awaitable[_Answer]) -> _Answer:
        """Return an answer that no deletion overtook: that one would come back."""
        before = self.deletions_heard()
        answer = await asked
        if self.deletions_heard() != before:
            raise ProtocolError("something was deleted while the master was asked")
        return answer

    async def _sync_consumer_offsets(self, master: str) -> None:
        if self.is_guarded():
            boot_ms = await self.outer.get_boot_ms(master)
            told = await self.outer.get_all_consumer_offset(master)
            if await self.outer.get_boot_ms(master) != boot_ms:
                raise ProtocolError(f"{master} was restarted while it was asked")
            table = self.offsets.take_deletions(told)
            regressions = self.offsets.regressions
            self.master_offsets.merge(
                self.offsets.table, table, boot_ms, partial(regressions.note, "slave_sync")
            )
        else:
            told = await self.outer.get_all_consumer_offset(master)
            self.offsets.merge_from_master(self.offsets.take_deletions(told))
        await self.offsets.persist_aside()

    async def _sync_delay_offsets(self, master: str) -> None:
        """Keep how far delayed messages are delivered, once this log has what was delivered.

        A slave that became the master with less would never deliver what lies between.
        """
        told = await self.outer.get_all_delay_offset(master)
        if self.log_end is not None:
            end = await self.outer.get_log_end(master)
            for _ in range(_TRIES):
                if self.log_end() >= end:
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                logger.info("delay offsets of %s are not kept: its log is ahead", master)
                return
        self.delay_offsets.write_from_master(told)

    async def _sync_groups(self, master: str) -> None:
        told = await self._current(self.outer.get_all_subscription_group(master))
        if self.groups.replace_all(told):
            await self.groups.writes.settled()
            logger.info("copied consumer groups from master %s", master)


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
    """Deletions found in the log since the start."""
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
        """Copy the tables after each deletion or new topic in the log, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(self.scale.seconds(GATHER_MS))
            self._wake.clear()
            await self.synchronise()
