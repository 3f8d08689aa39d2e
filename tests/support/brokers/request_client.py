"""Sends to and pulls from one running broker of either engine, as plain requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import PULL_SUBSCRIPTION, PULL_SUSPEND, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingTimeout
from failback.protocol.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
)
from failback.protocol.message import decode_records
from failback.protocol.route import TopicConfig
from tests.support.common.polling import SCALE

SENT, PULLED = "Sent", "Pulled"
"""The topic that takes sends, and the one that holds :data:`STORED` messages in its one queue."""
STORED = 3
GROUP = "group-known"
_FOR_EVER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to a pull."""

    code: int
    messages: int
    suggested: int | None
    """Broker id to pull from next; ``None`` where the answer has no header."""


class Asker:
    """One client of one broker."""

    def __init__(self, client: RemotingClient, admin: AdminClient, address: str) -> None:
        self.client = client
        self.admin = admin
        self.address = address

    async def set(self, **values: str) -> None:
        """Change settings of the running broker (UPDATE_BROKER_CONFIG)."""
        await self.admin.update_broker_config(self.address, values)

    async def send(self, topic: str) -> RemotingCommand:
        header = SendMessageRequestHeader(
            producer_group="PG",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties="",
            reconsume_times=0,
            batch=False,
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header.to_v2(), b"hello")
        return await self.client.invoke(self.address, request, 10_000 * SCALE)

    async def pull(
        self,
        group: str = GROUP,
        *,
        most: int = 32,
        offset: int = 0,
        hold: bool = False,
        timeout_ms: float = 10_000 * SCALE,
    ) -> Pulled:
        """Pull from the queue; ``hold`` lets the broker wait for messages for an hour."""
        flags = PULL_SUBSCRIPTION | (PULL_SUSPEND if hold else 0)
        wait_ms = _FOR_EVER_MS if hold else 0
        header = PullMessageRequestHeader(group, PULLED, 0, offset, most, flags, 0, wait_ms, 0, "*")
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await self.client.invoke(self.address, request, timeout_ms)
        count = len(decode_records(answer.body)) if answer.body else 0
        suggested = (answer.ext_fields or {}).get("suggestWhichBrokerId")
        return Pulled(answer.code, count, None if suggested is None else int(suggested))

    async def is_held(self, timeout_ms: float) -> bool:
        """Tell whether a pull at the queue's end is without an answer for so long."""
        try:
            await self.pull(offset=STORED, hold=True, timeout_ms=timeout_ms)
        except RemotingTimeout:
            return True
        return False

    async def make_topics(self) -> None:
        """Make both topics, and fill the one that is pulled from."""
        for topic in (SENT, PULLED):
            await self.admin.create_topic(self.address, TopicConfig(topic, 1, 1))
        if await self.admin.max_offset(self.address, PULLED, 0) == 0:
            assert [(await self.send(PULLED)).code for _ in range(STORED)] == [0] * STORED
        for _ in range(200):
            if await self.admin.max_offset(self.address, PULLED, 0) == STORED:
                return
            await asyncio.sleep(0.05 * SCALE)
        raise AssertionError("messages were acknowledged and can't be pulled")


@asynccontextmanager
async def asker(address: str, name_server: str = "") -> AsyncIterator[Asker]:
    """Yield a client of a broker that has both topics."""
    servers = [name_server] if name_server else []
    async with AdminClient(servers) as admin, RemotingClient() as client:
        found = Asker(client, admin, address)
        await found.make_topics()
        yield found
