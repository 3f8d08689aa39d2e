"""Runs the collector: one process, one event loop, a few threads for the disk."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from failback.analytics.collector.app import Collector, create_app
from failback.analytics.collector.metrics import CollectorMetrics
from failback.analytics.collector.segment_store import Store
from failback.analytics.collector.settings import CollectorSettings
from failback.analytics.errors import ReportInputError
from failback.analytics.web.applications import Lifespan, during
from failback.analytics.web.problems import Problem
from failback.analytics.web.tokens import TokenFile
from failback.analytics.web.web_server import WebServer, listen, serve_metrics
from failback.common.text import why
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 75
"""How long a shipper's connection is kept; it sends every few seconds."""
_DRAIN_SECONDS: Final = 20
_OPEN_SECONDS: Final = 5.0
"""Time between two looks at runs that wait to be opened."""


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
        app.router.lifespan_context = _upkeep(settings, store, metrics, pool)
        listener = listen(settings.host, settings.port, backlog=1024)
        server = WebServer(
            "collector",
            app,
            tls_cert=settings.tls_cert,
            tls_key=settings.tls_key,
            drain_seconds=_DRAIN_SECONDS,
            bounds=settings.bounds,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        if settings.metrics_port is not None:
            serve_metrics(settings.metrics_host, settings.metrics_port, metrics.registry)
        with listener:
            server.run([listener])


@contextmanager
def _own_root(settings: CollectorSettings) -> Iterator[None]:
    """Hold the folder: a second collector would take the writes of this one for leftovers."""
    path = settings.root / "lock"
    try:
        settings.root.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError("--root", f"cannot write to {settings.root}: {why(error)}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError("--root", f"{settings.root} is another collector's") from error
        yield
    finally:
        os.close(fd)


def _upkeep(
    settings: CollectorSettings, store: Store, metrics: CollectorMetrics, pool: ThreadPoolExecutor
) -> Lifespan:
    """A lifespan during which runs that wait are opened, and old ones are deleted."""

    async def look_after() -> None:
        keep = settings.keep_seconds
        loop = asyncio.get_running_loop()
        expire_at = loop.time()
        while True:
            try:
                await loop.run_in_executor(pool, store.open_due)
                if keep is not None and loop.time() >= expire_at:
                    gone = await loop.run_in_executor(
                        pool, store.expire, _wall_ms() - round(keep * 1000)
                    )
                    metrics.expired_runs.inc(len(gone))
                    expire_at = loop.time() + settings.retention_period_seconds
            except (OSError, Problem, ReportInputError):  # what is left is done by the next round
                logger.exception("looking after the lake failed")
            until = max(0.0, expire_at - loop.time()) if keep is not None else _OPEN_SECONDS
            await asyncio.sleep(min(_OPEN_SECONDS, until) or _OPEN_SECONDS)

    return during("upkeep", look_after)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
