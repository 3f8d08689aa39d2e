"""``/healthz``, ``/readyz`` and ``/metrics`` of the operator, for the kubelet and Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from failback.client.remoting.http_server import Endpoint, HttpServer, Reply
from failback.operator.metrics import Metrics


@asynccontextmanager
async def serve_health(
    host: str,
    port: int,
    metrics: Metrics,
    *,
    ready: Callable[[], str],
) -> AsyncIterator[int]:
    """Serve until the block ends; yield the port.

    ``/healthz`` says that the event loop turns, by answering at all. A pass that is late is one
    resource's: a restart would make all others late, too.

    Args:
        ready: Returns what is missing for readiness, empty when nothing is.
    """
    server = HttpServer(
        {
            "/healthz": _answer(str),
            "/readyz": _answer(ready),
            "/metrics": lambda _method: Reply(200, metrics.text()),
        }
    )
    try:
        yield await server.listen(host, port)
    finally:
        await server.close()


def _answer(problem: Callable[[], str]) -> Endpoint:
    def answer(_method: str) -> Reply:
        text = problem()
        return Reply(503 if text else 200, (text or "ok").encode())

    return answer
