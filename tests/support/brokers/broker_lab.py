"""A whole broker without sockets: real store, managers and processors, imaginary connections.

Requests go through ``data_received`` as bytes and answers are decoded from what was written, so
framing, order of checks and batching are those of the real thing; only TCP is missing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from failback.broker.config.config import BrokerConfig
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.startup.controller import BrokerController
from failback.protocol.codes import PULL_SUBSCRIPTION, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.frames import FrameReader
from failback.protocol.headers import (
    Header,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)


class FakeTransport(asyncio.Transport):
    """Remembers what was written, and what was asked of it."""

    def __init__(self, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.writes: list[bytes] = []
        self.aborted = False
        self.closing = False
        self.reading = True
        self.unread_bytes = 0
        self.on_abort: Callable[[], object] = lambda: None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.aborted, "a write after abort"
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing or self.aborted

    def close(self) -> None:
        self.closing = True
        self.on_abort()

    def abort(self) -> None:
        self.aborted = True
        self.on_abort()


async def settled(controller: BrokerController) -> None:
    """Wait until no table is written, and what waited for that is done."""
    while not all(writes.is_idle for writes in controller.joined_writes):
        for writes in controller.joined_writes:
            await writes.settled()
        for _ in range(5):
            await asyncio.sleep(0)


class LabClient:
    """One imaginary connection."""

    def __init__(self, controller: BrokerController, peer: tuple[str, int], fast: bool) -> None:
        self.controller = controller
        self.transport = FakeTransport(peer)
        self.connection = BrokerConnection(controller.server, is_fast_port=fast)
        self.connection.connection_made(self.transport)
        self.transport.on_abort = lambda: asyncio.get_running_loop().call_soon(self._lost)
        self._reader = FrameReader()
        self._seen = 0
        self._opaque = itertools.count(1)
        self._gone = False
        self.received: list[RemotingCommand] = []

    def _lost(self) -> None:
        if not self._gone:
            self._gone = True
            self.connection.connection_lost(None)

    def disconnect(self) -> None:
        self._lost()

    def feed(self, data: bytes) -> None:
        """Let the broker read ``data``; the run ends at the loop's next turn."""
        self.connection.data_received(data)

    async def turn(self) -> None:
        """Let the run end, and what it waits for, and decode what it wrote."""
        for _ in range(3):
            await asyncio.sleep(0)
        await settled(self.controller)
        for _ in range(3):
            await asyncio.sleep(0)
        for data in self.transport.writes[self._seen :]:
            self._reader.receive_data(data)
            while (frame := self._reader.next_frame()) is not None:
                self.received.append(RemotingCommand.from_frame(frame))
        self._seen = len(self.transport.writes)

    def make(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        ext: dict[str, str] | None = None,
        oneway: bool = False,
        serialize_type: int = 0,
        version: int = 409,
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, header, body, ext=ext, oneway=oneway)
        request.opaque = next(self._opaque)
        request.serialize_type = serialize_type
        request.version = version
        return request

    async def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", **options: Any
    ) -> RemotingCommand:
        """Send a request and return its answer, which must come in this turn."""
        request = self.make(code, header, body, **options)
        self.feed(request.encode())
        await self.turn()
        return self.answer_to(request)

    def answer_to(self, request: RemotingCommand) -> RemotingCommand:
        found = self.find_answer(request)
        assert found is not None, f"no answer to {request}; received {self.received}"
        return found

    def find_answer(self, request: RemotingCommand) -> RemotingCommand | None:
        for command in self.received:
            if command.is_response and command.opaque == request.opaque:
                return command
        return None

    async def send(self, body: bytes = b"hello", **fields: Any) -> RemotingCommand:
        options = {key: fields.pop(key) for key in ("version", "serialize_type") if key in fields}
        return await self.ask(RequestCode.SEND_MESSAGE_V2, send_header(**fields), body, **options)

    async def pull(self, **fields: Any) -> RemotingCommand:
        options = {key: fields.pop(key) for key in ("serialize_type",) if key in fields}
        return await self.ask(RequestCode.PULL_MESSAGE, pull_header(**fields), **options)


def send_header(**fields: Any) -> SendMessageRequestHeaderV2:
    """A send to queue 0 of TopicTest with the fields that Java fills in."""
    usual: dict[str, Any] = {
        "producer_group": "PG",
        "topic": "TopicTest",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": "WAIT\x01true",
        "reconsume_times": 0,
    }
    return SendMessageRequestHeaderV2(**usual | fields)


def pull_header(**fields: Any) -> PullMessageRequestHeader:
    """A pull of everything in queue 0 of TopicTest that carries its subscription."""
    usual: dict[str, Any] = {
        "consumer_group": "CG",
        "topic": "TopicTest",
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": PULL_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "sub_version": 0,
        "subscription": "*",
    }
    return PullMessageRequestHeader(**usual | fields)


class BrokerLab:
    """The broker and its imaginary clients."""

    def __init__(self, controller: BrokerController) -> None:
        self.controller = controller
        self.clients: list[LabClient] = []

    def connect(
        self, peer: tuple[str, int] = ("10.0.0.1", 50001), *, fast: bool = False
    ) -> LabClient:
        client = LabClient(self.controller, peer, fast)
        self.clients.append(client)
        return client


@asynccontextmanager
async def broker_lab(root: Path, **settings: object) -> AsyncIterator[BrokerLab]:
    """Open a broker under ``root`` with broker.conf ``settings``; it runs no periodic work."""
    properties = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": "10911",
        "storePathRootDir": str(root / "store"),
        "mappedFileSizeCommitLog": str(1024 * 1024),
        "mappedFileSizeConsumeQueue": "2000",
    } | {key: str(value) for key, value in settings.items()}
    config = BrokerConfig.from_properties(properties, environment={})
    controller = BrokerController(config)
    for writes in controller.joined_writes:
        writes.pause_seconds = 0.0
    controller.server.turn_seconds = float("inf")
    controller.store.load()
    lab = BrokerLab(controller)
    try:
        yield lab
    finally:
        for client in lab.clients:
            client.disconnect()
        await controller.server.close()
        await controller.client.close()
        controller.store.close()
