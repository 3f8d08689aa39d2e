"""Making the broker known to the name servers, and learning who its master is.

Source: BrokerController.registerBrokerAll, doRegisterBrokerAll, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
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

    async def register_all(self, *, oneway: bool = False) -> None:
        """Register the whole topic table with every name server."""
        await self._register(self.topics.to_wrapper(), oneway=oneway)

    async def register_topic(self, topic: TopicConfig) -> None:
        """Register one changed topic, under the version of the whole table."""
        whole = self.topics.to_wrapper()
        only = TopicConfigSerializeWrapper({topic.topic_name: topic}, whole.data_version)
        await self._register(only)

    async def _register(
        self, wrapper: TopicConfigSerializeWrapper, *, oneway: bool = False
    ) -> None:
        results = await self.outer.register_all(
            self.identity,
            self._with_broker_permission(wrapper),
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
        if results:
            self.on_result(results[0])

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
            task = asyncio.get_running_loop().create_task(self._register_soon())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _register_soon(self) -> None:
        self._due = False  # what is created from here on needs another one
        await self.register_all(oneway=True)

    async def unregister(self) -> None:
        """Leave every name server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.outer.unregister_all(self.identity)
        self.registered_at = 0
