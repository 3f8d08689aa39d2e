"""Serves an application over HTTP until a signal: what collector and dashboard have in common."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest

from failback.analytics.web.bounded_protocol import Bounds
from failback.client.remoting.http_limits import WEB_BOUNDS, HttpBounds
from failback.client.remoting.http_server import PROMETHEUS, HttpThread, Reply
from failback.client.remoting.port_owner import describe_listen_failure
from failback.common.text import why
from failback.protocol.errors import ConfigError


class WebServer(uvicorn.Server):
    """One process, one event loop. SIGTERM and SIGINT end it in order, and with exit code 0."""

    def __init__(
        self,
        name: str,
        app: FastAPI,
        *,
        tls_cert: str | Path | None,
        tls_key: str | Path | None,
        drain_seconds: int,
        bounds: HttpBounds = WEB_BOUNDS,
        **settings: Any,
    ) -> None:
        """``drain_seconds`` is how long requests under way may take after the signal.

        ``bounds`` are those of connections.

        ``settings`` are more of uvicorn's own.

        Raises:
            ConfigError: The certificate or its key cannot be used.
        """
        if tls_cert and tls_key:
            _check_tls(tls_cert, tls_key)
        self._name = name
        self._scheme = "https" if tls_cert else "http"
        super().__init__(
            uvicorn.Config(
                app,
                http=Bounds(bounds).protocol(),
                limit_concurrency=bounds.connections + 1,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=drain_seconds,
                ssl_certfile=tls_cert,
                ssl_keyfile=tls_key,
                **settings,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order: it is what was asked for."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it listens, once it does."""
        await super().startup(sockets)
        for each in sockets or []:
            host, port = each.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            with suppress(OSError):  # nobody reads it, or it goes to a disk that is full
                print(f"{self._name} listens on {self._scheme}://{shown}:{port}", flush=True)


def _check_tls(certificate: str | Path, key: str | Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # files and what is in them
        what = f"{certificate} with --tls-key {key}: {why(error)}"
        raise ConfigError("--tls-cert", what) from error


def serve_metrics(
    host: str, port: int, registry: CollectorRegistry, option: str = "--metrics-port"
) -> HttpThread:
    """Serve ``/metrics`` on a port of its own, in a thread that ends with the process.

    Raises:
        ConfigError: The address is taken, or not this machine's; names ``option``.
    """

    def metrics(_method: str) -> Reply:
        return Reply(HTTPStatus.OK, generate_latest(registry), PROMETHEUS)

    try:
        return HttpThread({"/metrics": metrics, "/": metrics}, host, port)
    except (OSError, OverflowError) as error:
        raise ConfigError(option, describe_listen_failure(host, port, error, option)) from error


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free.

    Raises:
        ConfigError: The address is taken, or not this machine's.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError("--port", describe_listen_failure(host, port, error, "--port")) from error
    except BaseException:
        listener.close()
        raise
    return listener
