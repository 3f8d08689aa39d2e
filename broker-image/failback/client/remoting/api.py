"""The calls a producer or consumer makes, typed: request codes become methods (MQClientAPIImpl).

Every method raises :class:`RemotingError` when there was no answer and :class:`BrokerError` when
the answer was an error code. Which of the two it is decides where a queue begins: see
``consumer.rebalance``.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from failback.client.model import SendStatus
from failback.client.remoting.connection import (
    NameServers,
    RemotingClient,
    RemotingSettings,
    RequestHandler,
    _Connection,
)
from failback.client.remoting.settings import ClientSettings
from failback.protocol import calls
from failback.protocol.body import MessageQueue
from failback.protocol.calls import PULL_CODES, Call
from failback.protocol.clients import HeartbeatData
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    from_ext,
)
from failback.protocol.route import TopicRouteData


class InstanceRemoting(RemotingClient):
    """One per client instance.

    Args:
        on_connect: Receives the address of every connection that is made.
    """

    def __init__(
        self,
        *,
        settings: RemotingSettings,
        on_request: RequestHandler,
        on_connect: Callable[[str], None],
    ) -> None:
        super().__init__(settings=settings, on_request=on_request)
        self._on_connect = on_connect
        self._channel_ids = itertools.count(1)
        self._channels: dict[str, int] = {}

    async def connect(self, addr: str) -> None:
        """Make sure that there is a connection.

        Raises:
            RemotingConnectError: There is none.
        """
        timeout_ms = self.settings.connect_timeout_ms * self.settings.time_scale
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        await self._connect(addr, deadline)

    def channel(self, addr: str) -> int | None:
        """Number of the newest connection to ``addr``, unique in this instance."""
        return self._channels.get(addr)

    def on_connection_made(self, connection: _Connection) -> None:
        super().on_connection_made(connection)
        self._channels[connection.addr] = next(self._channel_ids)
        self._on_connect(connection.addr)


SEND_STATUS: Final = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
T = TypeVar("T")


@dataclass(slots=True)
class PullAnswer:
    """A pull answer with a header: code 0, 19, 20 or 21. ``body`` are the records, undecoded."""

    code: int
    suggested_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes


class ClientApi:
    """Typed calls. An address of ``None`` goes to the name server, as in the reference, where it
    is lost or times out; that is what a send-back without a known master costs."""

    def __init__(
        self, remoting: InstanceRemoting, settings: ClientSettings, rng: random.Random
    ) -> None:
        self.remoting = remoting
        self._name_servers = NameServers(remoting, settings.namesrv_addrs, rng)
        self._settings = settings

    async def route(self, topic: str) -> TopicRouteData:
        return await self._call(None, calls.topic_route(topic), self._settings.api_timeout_ms)

    async def heartbeat(self, addr: str, data: HeartbeatData) -> int:
        """34; returns the version of the peer."""
        return await self._call(addr, calls.heartbeat(data), self._settings.api_timeout_ms)

    async def unregister(
        self, addr: str, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> None:
        call = calls.unregister(client_id, producer_group, consumer_group)
        await self._call(addr, call, self._settings.api_timeout_ms)

    async def consumer_list(self, addr: str, group: str) -> list[str]:
        """38; the members as this broker knows them."""
        return await self._call(addr, calls.consumer_ids(group), self._settings.api_timeout_ms)

    async def query_offset(self, addr: str, group: str, queue: MessageQueue) -> int:
        call = calls.query_offset(group, queue.topic, queue.queue_id)
        call = call.with_ext(bname=queue.broker_name)
        return await self._call(addr, call, self._settings.offset_timeout_ms)

    async def update_offset(
        self, addr: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool
    ) -> None:
        """15. One-way success means no more than "handed to the socket"."""
        call = calls.update_offset(group, queue.topic, queue.queue_id, offset)
        call = call.with_ext(bname=queue.broker_name)
        if oneway:
            request = call.request(oneway=True)
            await self.remoting.oneway(addr, request, self._settings.offset_timeout_ms)
        else:
            await self._call(addr, call, self._settings.offset_timeout_ms)

    async def max_offset(self, addr: str, queue: MessageQueue) -> int:
        call = calls.max_offset(queue.topic, queue.queue_id)
        return await self._call(addr, call, self._settings.admin_timeout_ms)

    async def search_offset(self, addr: str, queue: MessageQueue, timestamp_ms: int) -> int:
        call = calls.search_offset(queue.topic, queue.queue_id, timestamp_ms)
        return await self._call(addr, call, self._settings.admin_timeout_ms)

    async def pull(
        self, addr: str, header: PullMessageRequestHeader, broker_name: str
    ) -> PullAnswer:
        """11, in the async style: a lost answer is noticed up to 2 s after the timeout."""
        request = RemotingCommand.request(
            RequestCode.PULL_MESSAGE, header, ext={"bname": broker_name}
        )
        answer = await self.remoting.invoke_async(addr, request, self._settings.pull_timeout_ms)
        if answer.code not in PULL_CODES:
            raise BrokerError(answer.code, answer.remark, addr)
        parsed = from_ext(PullMessageResponseHeader, answer.ext_fields)
        return PullAnswer(
            answer.code,
            parsed.suggest_which_broker_id,
            parsed.next_begin_offset,
            parsed.min_offset,
            parsed.max_offset,
            answer.body,
        )

    async def send_back(self, addr: str | None, header: ConsumerSendMsgBackRequestHeader) -> None:
        call = Call(RequestCode.CONSUMER_SEND_MSG_BACK, calls.nothing, header)
        await self._call(addr, call, self._settings.send_back_timeout_ms)

    async def send(
        self,
        addr: str,
        header: SendMessageRequestHeader,
        body: bytes,
        broker_name: str,
        timeout_ms: float,
        *,
        async_style: bool = False,
    ) -> tuple[SendStatus, SendMessageResponseHeader]:
        """310, or 320 for a batch. The three "stored, but" codes are no errors."""
        request = _send_request(header, body, broker_name)
        if async_style:
            answer = await self.remoting.invoke_async(addr, request, timeout_ms)
        else:
            answer = await self.remoting.invoke(addr, request, timeout_ms)
        status = SEND_STATUS.get(answer.code)  # type: ignore[call-overload]
        if status is None:
            raise BrokerError(answer.code, answer.remark, addr)
        return status, from_ext(SendMessageResponseHeader, answer.ext_fields)

    async def send_oneway(
        self, addr: str, header: SendMessageRequestHeader, body: bytes, broker_name: str
    ) -> None:
        """310 without an answer."""
        await self.remoting.oneway(addr, _send_request(header, body, broker_name, oneway=True))

    async def _call(self, addr: str | None, call: Call[T], timeout_ms: float) -> T:
        if addr is None:
            return await self._name_servers.call(call, timeout_ms)
        return await self.remoting.call(addr, call, timeout_ms)


CALL_ERRORS: Final = (RemotingError, BrokerError, ProtocolError)
"""What a call may raise besides programming errors."""


def _send_request(
    header: SendMessageRequestHeader, body: bytes, broker_name: str, *, oneway: bool = False
) -> RemotingCommand:
    code = RequestCode.SEND_BATCH_MESSAGE if header.batch else RequestCode.SEND_MESSAGE_V2
    return RemotingCommand.request(
        code, header.to_v2(), body, oneway=oneway, ext={"n": broker_name}
    )
