"""What keeps a server from starting is one line that names the option."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from failback.analytics.web.web_server import WebServer, listen, serve_metrics
from failback.protocol.errors import ConfigError


def test_a_metrics_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = f"^--metrics-port: .*127.0.0.1:{port}: the port is taken"
        with pytest.raises(ConfigError, match=told):
            serve_metrics("127.0.0.1", port, CollectorRegistry())


@pytest.mark.parametrize(
    ("content", "why"), [(None, "no such file"), ("no certificate", "cert.pem with --tls-key")]
)
def test_a_certificate_that_cannot_be_used_is_named(
    content: str | None, why: str, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    if content is not None:
        cert.write_text(content)
        key.write_text(content)
    with pytest.raises(ConfigError, match=rf"^--tls-cert: .*{why}"):
        WebServer("dashboard", FastAPI(), tls_cert=cert, tls_key=key, drain_seconds=1)


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_a_port_that_is_none_is_named(port: int) -> None:
    with pytest.raises(ConfigError, match=r"^--port: cannot listen on 127\.0\.0\.1:"):
        listen("127.0.0.1", port, 1).close()
    with pytest.raises(ConfigError, match=r"^--metrics-port: cannot listen on 127\.0\.0\.1:"):
        serve_metrics("127.0.0.1", port, CollectorRegistry())
