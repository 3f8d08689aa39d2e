"""Routes beside the pages: their files, logging in and out, fields of forms."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from failback.analytics.dashboard.http.access import COOKIE, SESSION_SECONDS
from failback.analytics.dashboard.http.context import Parts, Reader, raw_body
from failback.analytics.dashboard.http.rendering import (
    STATIC,
    packed_plotly,
    plotly_js,
    render,
    static_file,
)
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.report.page import plotly_bundle

_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


def static_routes(app: FastAPI) -> None:
    @app.get("/static/{version}/{name}", include_in_schema=False)
    async def static(request: Request, version: str, name: str) -> Response:
        if name == plotly_bundle.file_name():
            if "gzip" in request.headers.get("accept-encoding", ""):
                packed = await asyncio.to_thread(packed_plotly)
                headers = _FOREVER | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
                return Response(packed, headers=headers, media_type="text/javascript")
            return Response(plotly_js(), headers=_FOREVER, media_type="text/javascript")
        if name not in STATIC:
            raise DashboardProblem("not-found", f"there is no file {name[:80]}")
        return Response(static_file(name), headers=_FOREVER, media_type=STATIC[name])


def _came_by_tls(request: Request) -> bool:
    """Whether the browser spoke TLS, with us or with a proxy; a false claim gains no right."""
    by_proxy = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return request.url.scheme == "https" or by_proxy == "https"


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a posted form; of repeated ones the last. Raises ``DashboardProblem``."""
    try:
        found = parse_qs(
            (await raw_body(request)).decode(), keep_blank_values=True, max_num_fields=64
        )
    except ValueError as error:
        raise DashboardProblem("bad-body", str(error)) from error
    return {name: values[-1] for name, values in found.items()}


def session_routes(app: FastAPI) -> None:
    @app.get("/login", include_in_schema=False)
    async def login_page(request: Request, shared: Parts) -> Response:
        if shared.access.identify(request) is not None:
            return RedirectResponse("/", 303)
        return render(request, None, "login.html.j2", refused=False)

    @app.post("/login", include_in_schema=False)
    async def log_in(request: Request, shared: Parts) -> Response:
        shared.access.check_origin(request)
        fields = await form_fields(request)
        session = shared.access.log_in(fields.get("token", ""))
        if session is None:
            return render(request, None, "login.html.j2", 401, refused=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            session,
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            secure=_came_by_tls(request),
        )
        return answer

    @app.post("/logout", include_in_schema=False)
    async def log_out(request: Request, who: Reader, shared: Parts) -> Response:
        fields = await form_fields(request)
        shared.access.check_csrf(request, who, fields.get("csrf"))
        shared.access.log_out(request)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer
