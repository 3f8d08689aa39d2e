"""Runs the collector: one process, one event loop, a few threads for the disk."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from prometheus_client import start_http_server

from failback.analytics.collect.app import Collector, create_app
from failback.analytics.collect.metrics import CollectorMetrics
from failback.analytics.collect.settings import CollectorSettings
from failback.analytics.collect.store import Store
from failback.analytics.collect.tokens import TokenFile
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 75
"""How long a shipper's connection is kept; it sends every few seconds."""
_DRAIN_SECONDS: Final = 20


def serve(settings: CollectorSettings) -> None:
    """Serve until SIGTERM or SIGINT; uploads under way are answered first.

    Raises:
        ConfigError: The token file cannot be read, the folder cannot be used or is another
            collector's, or the address is taken.
    """
    tokens = TokenFile(settings.tokens)
    with _own_root(settings), ThreadPoolExecutor(settings.writers, "store") as pool:
        store = Store(settings, _wall_ms)
        store.recover()
        metrics = CollectorMetrics()
        app = create_app(Collector(settings, store, tokens, metrics, pool))
        app.router.lifespan_context = _retention(settings, store, metrics, pool)
        listener = _listen(settings)
        if settings.metrics_port is not None:
            start_http_server(settings.metrics_port, settings.metrics_host, metrics.registry)
        with listener:
            _Server(settings, app).run([listener])


class _Server(uvicorn.Server):
    def __init__(self, settings: CollectorSettings, app: FastAPI) -> None:
        self._settings = settings
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order at SIGTERM and SIGINT, and with 0: it is what was asked for."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it listens, once it does."""
        await super().startup(sockets)
        scheme = "https" if self._settings.tls_cert else "http"
        for each in sockets or []:
            host, port = each.getsockname()[:2]
            with suppress(OSError):  # nobody reads it, or it goes to a disk that is full
                print(f"collector listens on {scheme}://{host}:{port}", flush=True)


@contextmanager
def _own_root(settings: CollectorSettings) -> Iterator[None]:
    """Hold the folder: a second collector would take the writes of this one for leftovers."""
    path = settings.root / "lock"
    try:
        settings.root.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError("--root", f"{settings.root}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError("--root", f"{settings.root} is another collector's") from error
        yield
    finally:
        os.close(fd)


def _listen(settings: CollectorSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        what = f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
        raise ConfigError("--port", what) from error
    except BaseException:
        listener.close()
        raise
    return listener


def _retention(
    settings: CollectorSettings, store: Store, metrics: CollectorMetrics, pool: ThreadPoolExecutor
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan during which old runs are deleted now and then."""

    async def expire() -> None:
        keep = settings.keep_seconds
        loop = asyncio.get_running_loop()
        while keep is not None:
            try:
                gone = await loop.run_in_executor(
                    pool, store.expire, _wall_ms() - round(keep * 1000)
                )
                metrics.expired_runs.inc(len(gone))
            except OSError:  # what is left is deleted by the next round
                logger.exception("retention failed")
            await asyncio.sleep(settings.retention_period_seconds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(expire(), name="retention")
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return lifespan


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
