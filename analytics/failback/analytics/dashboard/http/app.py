"""The application: the checks before every route, and the form of every refusal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failback.analytics.dashboard.http import api, documents, pages
from failback.analytics.dashboard.http.access import SAFE
from failback.analytics.dashboard.http.context import Parts, Shared
from failback.analytics.dashboard.http.metrics import DashboardMetrics
from failback.analytics.dashboard.http.rendering import prefix_of, problem_page
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.web.applications import answer_refusals, problem_response
from failback.analytics.web.problems import Problem

LIVE, READY = "/livez", "/readyz"
HEALTH: Final = frozenset({LIVE, READY})
CSP: Final = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def create_app(shared: Shared, metrics: DashboardMetrics) -> FastAPI:
    """The application; ``shared`` is what its routes work on."""
    app = FastAPI(
        title="Failback dashboard",
        version="1",
        openapi_url=None,
        description="What the dashboard's pages show, as JSON. Times are ns or RFC 3339.",
    )
    app.state.shared = shared
    _refusals(app, shared)
    health_routes(app)
    api.routes(app)
    pages.routes(app)
    app.openapi = partial(documents.document_of, app)  # type: ignore[method-assign]
    app.add_middleware(Guard, shared=shared, metrics=metrics)
    return app


class Guard:
    """Host, rate, headers and counting, before and after every route."""

    def __init__(self, app: ASGIApp, shared: Shared, metrics: DashboardMetrics) -> None:
        self._app = app
        self._shared = shared
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if headers.get("location", "").startswith("/"):
                    headers["Location"] = prefix_of(connection) + headers["Location"]
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
                self._metrics.answered(scope["method"], message["status"])
            await send(message)

        path = scope["path"]
        try:
            if path not in HEALTH:
                self._shared.access.check_host(connection)
                if not path.startswith("/static/"):
                    writes = scope["method"] not in SAFE and path != "/api/v1/predict"
                    self._shared.access.check_rate(connection, writes=writes)
        except DashboardProblem as problem:
            await problem_response(problem)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


def _refusals(app: FastAPI, shared: Shared) -> None:
    """Every refusal becomes a problem document; for people, a page that says the same."""

    def answer(request: Request, problem: Problem, headers: Mapping[str, str]) -> Response:
        wants_page = "text/html" in request.headers.get("accept", "")
        if request.url.path.startswith("/api/") or not wants_page:
            return problem_response(problem, headers)
        if problem.status == 401 and request.method == "GET":
            return RedirectResponse("/login", 303)
        return problem_page(request, shared, problem)

    answer_refusals(app, DashboardProblem, answer)


def health_routes(app: FastAPI) -> None:
    """Answer a kubelet or a load balancer: without a token, under any name, at any rate."""

    @app.get(LIVE, include_in_schema=False)
    async def alive() -> Response:
        """Answer: the event loop is running."""
        return Response("ok\n", media_type="text/plain")

    @app.get(READY, include_in_schema=False)
    async def ready(shared: Parts) -> Response:
        """Answer once clusters were looked at: pages have something to show, if only a silence."""
        if not shared.poller.looks:
            raise DashboardProblem("not-ready", "clusters are being looked at for the first time")
        return Response("ok\n", media_type="text/plain")
