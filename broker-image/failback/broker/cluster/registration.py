"""Making the broker known to the name servers, and learning the address of its master.

A name server has its routes in memory. So that it knows them soon after its own restart, and not up
to 30 s later as with 4.9.8, the broker registers with one that it lost as soon as that answers.
Nothing waits for this, and it asks on connections of its own: the times of what 4.9.8 does in one
thread stay what they are.

Source: BrokerController.registerBrokerAll, doRegisterBrokerAll, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

from failback.broker.cluster.outer_api import BrokerOuterApi, RegisterResult
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.codes import PERM_READ, PERM_WRITE
from failback.protocol.route import TopicConfig, TopicConfigSerializeWrapper

logger = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 10_000
RETURN_FIRST_MS: Final = 200
RETURN_MOST_MS: Final = 1_000
_READ_WRITE: Final = PERM_READ | PERM_WRITE


@dataclass(slots=True)
class Registration:
    """Registers everything periodically, and changes at once."""

    config: BrokerConfig
    identity: BrokerIdentity
    topics: TopicConfigManager
    outer: BrokerOuterApi
    on_result: Callable[[RegisterResult], None]
    registered_at: int = field(init=False, default=0)
    """How many name servers took the last registration."""
    _tasks: set[asyncio.Task[None]] = field(init=False, default_factory=set)
    _due: bool = field(init=False, default=False)
    _lost: set[str] = field(init=False, default_factory=set)
    """Name servers that are waited for."""
    _is_leaving: bool = field(init=False, default=False)

    async def register_all(self, *, oneway: bool = False) -> None:
        """Register the whole topic table with every name server.

        One that is not one-way looks up first which addresses their names have now.
        """
        if not oneway:
            await self.outer.look_up()
        await self._register(self._all_topics(), oneway=oneway)

    async def register_topic(self, topic: TopicConfig) -> None:
        """Register one changed topic, under the version of the whole table."""
        version = self.topics.data_version
        only = TopicConfigSerializeWrapper({topic.topic_name: topic}, version)
        await self._register(self._with_broker_permission(only))

    async def _register(
        self, topics: TopicConfigSerializeWrapper | bytes, *, oneway: bool = False
    ) -> None:
        results = await self.outer.register_all(
            self.identity,
            topics,
            oneway=oneway,
            compressed=self.config.compressed_register,
            timeout_ms=self.config.time_scale.ms(self.config.register_broker_timeout_mills),
        )
        if oneway:
            return
        if len(results) != self.registered_at:
            logger.info(
                "registered %s with %d of %d name servers",
                self.identity.address,
                len(results),
                len(self.outer.name_servers),
            )
        self.registered_at = len(results)
        for name_server in set(self.outer.name_servers) - {each.name_server for each in results}:
            self.name_server_lost(name_server)
        if results:
            self.on_result(results[0])

    def name_server_lost(self, address: str) -> None:
        """Register with a name server as soon as it answers again; ignores all other peers."""
        if self._is_leaving or address not in self.outer.name_servers or address in self._lost:
            return
        self._lost.add(address)
        self._spawn(self._register_again(address))

    async def _register_again(self, address: str) -> None:
        delay_ms = RETURN_FIRST_MS
        try:
            while True:
                await asyncio.sleep(self.config.time_scale.seconds(delay_ms))
                delay_ms = min(2 * delay_ms, RETURN_MOST_MS)
                answers = await self.outer.answers(address)
                if address not in self.outer.name_servers:
                    return
                if answers and await self._register_with(address):
                    logger.info("registered again with name server %s", address)
                    return
        finally:
            self._lost.discard(address)

    async def _register_with(self, address: str) -> bool:
        result = await self.outer.register_with(
            address,
            self.identity,
            self._all_topics(),
            compressed=self.config.compressed_register,
            timeout_ms=self.config.time_scale.ms(self.config.register_broker_timeout_mills),
        )
        return result is not None

    def _all_topics(self) -> TopicConfigSerializeWrapper | bytes:
        """Return the whole table, as JSON where that need not be made for this."""
        permission = self.config.broker_permission
        if self.config.compressed_register or permission & _READ_WRITE != _READ_WRITE:
            return self._with_broker_permission(self.topics.to_wrapper())
        return self.topics.to_json()

    def _with_broker_permission(
        self, wrapper: TopicConfigSerializeWrapper
    ) -> TopicConfigSerializeWrapper:
        """Give every topic the broker's permission while that is not read and write."""
        permission = self.config.broker_permission
        if permission & _READ_WRITE == _READ_WRITE:
            return wrapper
        table = {
            name: TopicConfig(name, topic.read_queue_nums, topic.write_queue_nums, permission)
            for name, topic in wrapper.topic_config_table.items()
        }
        return TopicConfigSerializeWrapper(table, wrapper.data_version)

    def topic_created(self) -> None:
        """Register the table soon, one-way: a topic was created by use. Never waits."""
        if not self._due:
            self._due = True
            self._spawn(self._register_soon())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _register_soon(self) -> None:
        self._due = False  # what is created from here on needs another one
        await self.register_all(oneway=True)

    async def unregister(self) -> None:
        """Leave every name server."""
        self._is_leaving = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.outer.unregister_all(self.identity)
        self.registered_at = 0
