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
    healthy: Callable[[], str],
    ready: Callable[[], str],
) -> AsyncIterator[int]:
    """Serve until the block ends; yield the port.

    Args:
        healthy: Returns what is wrong, empty when nothing is.
        ready: The same for readiness.
    """
    server = HttpServer(
        {
            "/healthz": _answer(healthy),
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
