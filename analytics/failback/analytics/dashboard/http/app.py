"""The application: the checks before every route, and the form of every refusal."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failback.analytics.dashboard.http import api, documents, pages
from failback.analytics.dashboard.http.access import SAFE
from failback.analytics.dashboard.http.context import Shared
from failback.analytics.dashboard.http.health import HEALTH, health_routes
from failback.analytics.dashboard.http.metrics import DashboardMetrics
from failback.analytics.dashboard.http.rendering import problem_page
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.web.problems import MEDIA_TYPE, Problem

logger = logging.getLogger(__name__)

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
    app = FastAPI(title="Failback dashboard", version="1", openapi_url=None)
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


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(
        problem.document(),
        problem.status,
        headers={**problem.headers(), **(headers or {})},
        media_type=MEDIA_TYPE,
    )


def _refusals(app: FastAPI, shared: Shared) -> None:
    """Every refusal becomes a problem document; for people, a page that says the same."""

    async def answer(
        request: Request, problem: Problem, headers: dict[str, str] | None = None
    ) -> Response:
        if problem.status in {401, 403}:
            client = request.client.host if request.client else "?"
            logger.warning("%s %s from %s: %s", request.method, request.url.path, client, problem)
        wants_page = "text/html" in request.headers.get("accept", "")
        if request.url.path.startswith("/api/") or not wants_page:
            return problem_response(problem, headers)
        if problem.status == 401 and request.method == "GET":
            return RedirectResponse("/login", 303)
        return problem_page(request, shared, problem)

    @app.exception_handler(Problem)
    async def refuse(request: Request, error: Problem) -> Response:
        return await answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def refuse_request(request: Request, error: RequestValidationError) -> Response:
        fields = [
            {"field": ".".join(map(str, each["loc"])), "message": str(each["msg"])}
            for each in error.errors()
        ]
        named = ", ".join(each["field"] for each in fields)
        return await answer(
            request, DashboardProblem("bad-request", named, extra={"errors": fields})
        )

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        name = "method-not-allowed" if error.status_code == 405 else "not-found"
        headers: dict[str, Any] = dict(error.headers or {})
        return await answer(request, DashboardProblem(name, str(error.detail)), headers)
