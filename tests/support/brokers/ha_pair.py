"""Running HA services on loopback, and talking to them over a bare socket."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from failback.broker.ha.config import HaConfig
from failback.broker.ha.replicated_store import HaStore
from failback.broker.ha.service import HaService

FAST = HaConfig(
    role="ASYNC_MASTER",
    listen_host="127.0.0.1",
    listen_port=0,
    mapped_file_bytes=1 << 30,
    heartbeat_ms=60,
    housekeeping_ms=10_000,
    reconnect_ms=20,
    async_transfer_delay_ms=0,
)
"""A master whose heartbeat is quick; tests change the rest."""


@asynccontextmanager
async def running(store: HaStore, config: HaConfig = FAST) -> AsyncIterator[HaService]:
    """Run a service and stop it at the end; its failure fails the test."""
    service, shutdown = HaService(store, config), asyncio.Event()
    task = asyncio.create_task(service.run(shutdown))
    listening = asyncio.create_task(service.listening.wait())
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    listening.cancel()
    try:
        yield service
    finally:
        shutdown.set()
        async with asyncio.timeout(10):
            await task


def slave_of(master: HaService | str, config: HaConfig = FAST) -> HaConfig:
    """Return settings of a slave that dials ``master``."""
    address = master if isinstance(master, str) else f"127.0.0.1:{master.bound_port}"
    return replace(config, role="SLAVE", master_address=address)


class _BareEnd:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def closed(self) -> None:
        """Return once the other end has closed, whatever it sent before."""
        async with asyncio.timeout(10):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass


class BareSlave(_BareEnd):
    """A slave's end of the stream in the hands of a test."""

    def report(self, *offsets: int) -> None:
        self.writer.write(b"".join(struct.pack(">q", offset) for offset in offsets))

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame's offset and body."""
        async with asyncio.timeout(10):
            offset, size = struct.unpack(">qi", await self.reader.readexactly(12))
            return offset, await self.reader.readexactly(size)

    async def frames_until(self, end: int) -> list[tuple[int, bytes]]:
        """Return the data frames up to physical offset ``end``."""
        frames: list[tuple[int, bytes]] = []
        while not frames or frames[-1][0] + len(frames[-1][1]) < end:
            offset, body = await self.frame()
            if body:
                frames.append((offset, body))
        return frames


@asynccontextmanager
async def bare_slave(master: HaService, host: str = "127.0.0.1") -> AsyncIterator[BareSlave]:
    """Connect to ``master`` from an address of loopback without reporting anything yet."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", master.bound_port, local_addr=(host, 0)
    )
    try:
        yield BareSlave(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


class BareMaster:
    """A master's end of the stream in the hands of a test."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )
        self.address = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def accept(self) -> MasterSide:
        """Return the next connection of the slave."""
        async with asyncio.timeout(10):
            return MasterSide(*await self.connections.get())

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections.put_nowait((reader, writer))


class MasterSide(_BareEnd):
    """One accepted connection."""

    async def report(self) -> int:
        """Return the slave's next report."""
        async with asyncio.timeout(10):
            offset: int = struct.unpack(">q", await self.reader.readexactly(8))[0]
            return offset

    def send(self, offset: int, body: bytes) -> None:
        self.writer.write(struct.pack(">qi", offset, len(body)) + body)


@asynccontextmanager
async def bare_master() -> AsyncIterator[BareMaster]:
    """Listen as a master would."""
    master = BareMaster()
    server = await asyncio.start_server(master._connected, "127.0.0.1", 0)
    master.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield master
    finally:
        server.close()
        for writer in master._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
