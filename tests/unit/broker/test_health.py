"""Health endpoints and the little HTTP behind them."""

from __future__ import annotations

import asyncio
import json

import pytest

from failback.broker.monitoring.health import HealthServer, Reply
from failback.broker.monitoring.health_endpoints import RUNNING, BrokerPhase, HealthEndpoints
from tests.support.net.ports import free_port

pytestmark = pytest.mark.unit


class Lab:
    def __init__(self, name: str = RUNNING) -> None:
        self.phase = BrokerPhase(name)
        self.name_servers = True
        self.registered = 1
        self.remaining = 0
        self.endpoints = HealthEndpoints(
            phase=self.phase,
            has_name_servers=lambda: self.name_servers,
            registered_at=lambda: self.registered,
            remaining_bytes=lambda: self.remaining,
            metrics=lambda: b"metric 1\n",
        )

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        reply = self.endpoints.by_path()[path](method)
        return int(reply.status), reply.body.decode().strip()


def test_ready_means_running_and_registered() -> None:
    lab = Lab("recovering")
    assert lab.get("/readyz") == (503, "recovering")
    lab.phase.name = RUNNING
    assert lab.get("/readyz") == (200, "ok")
    lab.registered = 0
    assert lab.get("/readyz") == (503, "not registered")
    lab.name_servers = False
    assert lab.get("/readyz") == (200, "ok")
    lab.phase.is_draining = True
    assert lab.get("/readyz") == (503, "draining")
    assert lab.get("/livez") == (200, "ok")


def test_a_dead_store_is_not_alive() -> None:
    lab = Lab()
    lab.phase.fatal = OSError("no space left on device")
    assert lab.get("/livez") == (503, "the store failed: no space left on device")


def test_a_drain_is_asked_for_and_watched() -> None:
    lab = Lab()
    lab.remaining = 700
    assert lab.get("/drainz")[0] == 202
    assert not lab.phase.is_draining
    status, body = lab.get("/drainz", "POST")
    assert (status, json.loads(body)) == (202, {"remaining": 700})
    assert lab.phase.is_draining
    lab.remaining = 0
    assert lab.get("/drainz")[0] == 200
    lab.phase.is_stopping = True
    assert lab.get("/drainz", "POST") == (409, "already stopping")


async def talk(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", b"200 OK"),
        (b"GET /x?y=1 HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"HEAD /x HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /y HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"PUT /x HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /bad HTTP/1.1\r\n\r\n", b"500 Internal Server Error"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET /x HTTP/1.1\r\nX: " + b"y" * 9000, b"431 Request Header Fields Too Large"),
    ],
)
async def test_requests_get_their_status(request_bytes: bytes, status: bytes) -> None:
    def broken(_method: str) -> Reply:
        raise RuntimeError("broken")

    server = HealthServer({"/x": lambda _method: Reply(200, b"body\n"), "/bad": broken})
    port = free_port()
    await server.listen("127.0.0.1", port)
    try:
        answer = await talk(port, request_bytes)
    finally:
        await server.close()
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    assert len(body) == (0 if request_bytes.startswith(b"HEAD") else length)
