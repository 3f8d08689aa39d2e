"""What a kubelet or a load balancer asks: without a token, under any name, as often as it likes.

Neither answer tells anything but that.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Response

from failback.analytics.dashboard.http.context import Parts
from failback.analytics.dashboard.problems import DashboardProblem

LIVE, READY = "/livez", "/readyz"
HEALTH: Final = frozenset({LIVE, READY})


def health_routes(app: FastAPI) -> None:
    @app.get(LIVE, include_in_schema=False)
    async def alive() -> Response:
        """The event loop turns."""
        return Response("ok\n", media_type="text/plain")

    @app.get(READY, include_in_schema=False)
    async def ready(shared: Parts) -> Response:
        """Pages have something to show, if only that a cluster is silent."""
        if not shared.poller.looks:
            raise DashboardProblem("not-ready", "clusters are being looked at for the first time")
        return Response("ok\n", media_type="text/plain")
