"""``/healthz``, ``/readyz`` and ``/metrics`` of the operator, for the kubelet and Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from failback.operator.metrics import Metrics

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", _answer(healthy)),
            web.get("/readyz", _answer(ready)),
            web.get("/metrics", _metrics(metrics)),
        ]
    )
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _answer(problem: Callable[[], str]) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        text = problem()
        return web.Response(text=text or "ok", status=503 if text else 200)

    return answer


def _metrics(metrics: Metrics) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=metrics.text(), content_type="text/plain", charset="utf-8")

    return answer
