"""Every HTTP port of ours bounds head, time and connections before it looks at who asks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from failback.analytics.collector.app import Collector, create_app
from failback.analytics.collector.metrics import CollectorMetrics
from failback.analytics.collector.segment_store import Store
from failback.analytics.collector.settings import CollectorSettings
from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.exporter import server as exporter
from failback.analytics.exporter.settings import ExporterSettings
from failback.analytics.web import bounded_protocol
from failback.analytics.web.tokens import TokenFile
from failback.analytics.web.web_server import WebServer, listen, serve_metrics
from failback.broker.config.config import BrokerConfig
from failback.broker.startup.controller import BrokerController
from failback.chaos.run import progress
from failback.client.remoting import http_server
from failback.client.remoting.http_limits import HttpBounds
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.server import NameServer
from failback.operator.metrics import Metrics
from failback.operator.process.main import serve_health
from tests.support.common.polling import SCALE
from tests.support.net.ports import free_port

pytestmark = pytest.mark.foreign

HEAD_SECONDS = 0.5
KIB = 1024
Port = Callable[[Path], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[int]:
    port = free_port()
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "failbackHttpPort": str(port),
        "storePathRootDir": str(folder / "store"),
    }
    controller = BrokerController(BrokerConfig.from_properties(settings))
    await controller.health.listen("127.0.0.1", port)
    try:
        yield port
    finally:
        await controller.health.close()
        await controller.client.close()


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[int]:
    port = free_port()
    properties = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "failbackHttpPort": str(port),
        "kvConfigPath": str(folder / "kv.json"),
    }
    shutdown, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(NameServer(NamesrvConfig(properties)).run(shutdown, ready.set))
    await ready.wait()
    try:
        yield port
    finally:
        shutdown.set()
        await task


@asynccontextmanager
async def operator(_folder: Path) -> AsyncIterator[int]:
    async with serve_health(
        "127.0.0.1", 0, Metrics(version="0", kopf="0", kubernetes="0"), ready=str
    ) as port:
        yield port


@asynccontextmanager
async def exporter_port(_folder: Path) -> AsyncIterator[int]:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    settings = ExporterSettings(name_servers=("127.0.0.1:9",), host="127.0.0.1", port=0)
    task = asyncio.create_task(exporter.serve(settings, stop, ready.set_result))
    try:
        yield await ready
    finally:
        stop.set()
        await task


@asynccontextmanager
async def metrics(_folder: Path) -> AsyncIterator[int]:
    port = free_port()
    serve_metrics("127.0.0.1", port, CollectorRegistry())
    yield port


@asynccontextmanager
async def run_progress(_folder: Path) -> AsyncIterator[int]:
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "progress_of", lambda _: {"phase": "Running"})
        with progress.serve_progress(None, f"127.0.0.1:{port}"):  # type: ignore[arg-type]
            yield port


@asynccontextmanager
async def web(name: str, app: FastAPI, bounds: HttpBounds) -> AsyncIterator[int]:
    listener = listen("127.0.0.1", 0, 256)
    server = WebServer(name, app, tls_cert=None, tls_key=None, drain_seconds=1, bounds=bounds)
    with contextlib.ExitStack() as undo:
        undo.enter_context(pytest.MonkeyPatch.context()).setattr(
            server, "capture_signals", contextlib.nullcontext
        )
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task
            listener.close()


@asynccontextmanager
async def dashboard(folder: Path) -> AsyncIterator[int]:
    settings = DashboardSettings(folder)
    app, _ = make_app(settings, [], lambda _: None)
    async with web("dashboard", app, settings.bounds) as port:
        yield port


@asynccontextmanager
async def collector(folder: Path) -> AsyncIterator[int]:
    from concurrent.futures import ThreadPoolExecutor

    tokens = folder / "tokens"
    tokens.write_text("")
    settings = CollectorSettings(root=folder, tokens=tokens)
    with ThreadPoolExecutor(1) as pool:
        store = Store(settings, lambda: time.time_ns() // 1_000_000)
        app = create_app(Collector(settings, store, TokenFile(tokens), CollectorMetrics(), pool))
        async with web("collector", app, settings.bounds) as port:
            yield port


PORTS: dict[str, Port] = {
    "broker": broker,
    "name server": name_server,
    "operator": operator,
    "exporter": exporter_port,
    "metrics of dashboard and collector": metrics,
    "experiment": run_progress,
    "dashboard": dashboard,
    "collector": collector,
}
HALF_BODIES = (
    b"Content-Length: 9\r\n\r\n",
    b"Content-Length: 9\r\n\r\nx",
    b"Transfer-Encoding: chunked\r\n\r\n5",
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nx",
)
DRIPS = {
    b"G": b"E",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n": b"x",
    b"GET /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n": b"x",
    b"POST /login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n": b"1\r\nx\r\n",
}
"""How a request begins, to what comes of it now and then."""
PATHS = {"broker": "/livez", "name server": "/livez", "operator": "/healthz", "experiment": "/run"}


def set_times(monkeypatch: pytest.MonkeyPatch, *, heads: float = HEAD_SECONDS) -> None:
    for module in (http_server, bounded_protocol):
        monkeypatch.setattr(module, "HEAD_SECONDS", heads * SCALE)
    monkeypatch.setattr(bounded_protocol, "BODY_SECONDS", HEAD_SECONDS * SCALE)
    monkeypatch.setattr(bounded_protocol, "WHOLE_SECONDS", HEAD_SECONDS * SCALE * 2)


class Peer:
    """One connection to the port."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Peer:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def is_closed(self, seconds: float) -> bool:
        """Whether the other side closes within some time; what it says is read."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(65_536):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


async def answers(port: int, path: str) -> bool:
    async with Peer(port) as peer:
        peer.writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        try:
            async with asyncio.timeout(10 * SCALE):
                return (await peer.reader.read(9)).startswith(b"HTTP/1.1 ")
        except OSError:
            return False


@pytest.mark.parametrize("name", PORTS)
async def test_a_port_bounds_what_anybody_may_have_of_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_times(monkeypatch)
    async with PORTS[name](tmp_path) as port:
        path = PATHS.get(name, "/metrics")
        assert await answers(port, path)
        for line in (b"X: " + b"y" * 16_000 + b"\r\n", b"Z" * 16_000, b"a\r\n" * 5_000):
            await _endless_head(port, line)
        halves = [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\n", b"\r\n"]
        halves += [b"POST / HTTP/1.1\r\nHost: a\r\n" + body for body in HALF_BODIES]
        drips = [_dripping(port, *drip) for drip in DRIPS.items()]
        await asyncio.gather(*drips, *(_half_a_head(port, half) for half in halves))
        set_times(monkeypatch, heads=60)
        await _many_connections(port)
        for _ in range(100):  # it has yet to see that they are gone
            if await answers(port, path):
                return
            await asyncio.sleep(0.1 * SCALE)
        pytest.fail("nobody else is served any more")


async def _endless_head(port: int, line: bytes) -> None:
    async with Peer(port) as peer:
        sent = 0
        with contextlib.suppress(OSError):
            peer.writer.write(b"GET / HTTP/1.1\r\n")
            while sent < 2048 * KIB and not peer.reader.at_eof():
                peer.writer.write(line)
                sent += len(line)
                await peer.writer.drain()
                await asyncio.sleep(0)
        assert await peer.is_closed(20 * SCALE)


async def _half_a_head(port: int, half: bytes) -> None:
    async with Peer(port) as peer:
        peer.writer.write(half)
        assert await peer.is_closed(20 * SCALE), f"{half!r} and then nothing"


async def _dripping(port: int, start: bytes, drip: bytes) -> None:
    """A byte now and then is no sign of life, of a head or of a body."""
    async with Peer(port) as peer:
        began = time.monotonic()
        peer.writer.write(start)
        while time.monotonic() - began < 20 * SCALE:
            if await peer.is_closed(HEAD_SECONDS * SCALE / 5):
                return
            with contextlib.suppress(OSError):
                peer.writer.write(drip)
        pytest.fail(f"{start!r} and then a byte now and then was waited for")


async def _many_connections(port: int) -> None:
    """One address has so many connections; further ones are closed, whoever waits."""
    open_ = []
    try:
        for _ in range(300):
            connection = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 9)
            connection.setblocking(False)
            open_.append(connection)
        closed = 0
        for _ in range(100):
            closed = sum(map(_is_closed, open_))
            if closed >= 44:
                break
            await asyncio.sleep(0.1 * SCALE)
        assert 44 <= closed < 300, "of 300 connections from one address"
    finally:
        for connection in open_:
            connection.close()


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
