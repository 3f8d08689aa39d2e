"""A slave's copies of its master's metadata. SlaveSynchronize of apache/rocketmq 4.9.8."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, TypeVar

from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.offsets.master_offsets import MasterOffsets
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.errors import FailbackError, ProtocolError

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_TRIES: Final = 50
_PAUSE_SECONDS: Final = 0.01
"""A slave is milliseconds behind its master, unless it copies a long log."""

FIRST_DELAY_MS: Final = 3_000
PERIOD_MS: Final = 10_000
"""When :meth:`SlaveSynchronize.sync_all` runs, on the scheduler that also persists offsets."""


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
            logger.info("copied consumer groups from master %s", master)
