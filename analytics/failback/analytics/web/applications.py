"""What the applications of collector and dashboard share: refusals, OpenAPI, lifespan."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from failback.analytics.web.problems import MEDIA_TYPE, Problem

logger = logging.getLogger(__name__)

Json = dict[str, Any]
Answer = Callable[[Request, Problem, Mapping[str, str]], Response]
Work = Callable[[], Coroutine[Any, Any, None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as a document."""
    return JSONResponse(
        problem.document(),
        problem.status,
        headers={**problem.headers(), **(headers or {})},
        media_type=MEDIA_TYPE,
    )


def answer_refusals(app: FastAPI, kind: type[Problem], answer: Answer) -> None:
    """Turn every refusal into a problem of ``kind``, and that into a response by ``answer``."""

    def refused(
        request: Request, problem: Problem, headers: Mapping[str, str] | None = None
    ) -> Response:
        if problem.status in {401, 403}:
            client = request.client.host if request.client else "?"
            logger.warning("%s %s from %s: %s", request.method, request.url.path, client, problem)
        return answer(request, problem, headers or {})

    @app.exception_handler(Problem)
    async def refuse(request: Request, error: Problem) -> Response:
        return refused(request, error)

    @app.exception_handler(RequestValidationError)
    async def refuse_request(request: Request, error: RequestValidationError) -> Response:
        fields = [
            {"field": ".".join(map(str, each["loc"])), "message": str(each["msg"])}
            for each in error.errors()
        ]
        named = ", ".join(each["field"] for each in fields)
        return refused(request, kind("bad-request", named, extra={"errors": fields}))

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        name = "method-not-allowed" if error.status_code == 405 else "not-found"
        return refused(request, kind(name, str(error.detail)), error.headers)


def body_of(model: type[msgspec.Struct]) -> Json:
    """The declaration of a JSON body."""
    schema = msgspec.json.schema(model)
    (plain,) = schema["$defs"].values()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": plain}}}}


def openapi_of(app: FastAPI, kind: type[Problem], **members: Json) -> Json:
    """The OpenAPI document, made once. ``members`` are further members of the problem document."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            routes=app.routes,
            description=app.description or None,
        )
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = _problem_schema(kind, members)
        app.openapi_schema = document
    return app.openapi_schema


def _problem_schema(kind: type[Problem], members: Json) -> Json:
    return {
        "type": "object",
        "description": "A problem document as of RFC 9457.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "description": f"{kind.prefix}NAME; never changes."},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "errors": {
                "type": "array",
                "description": "Of a request that is not valid: what is wrong with each field.",
                "items": {"type": "object"},
            },
            **members,
        },
    }


def during(name: str, work: Work, before: Work | None = None) -> Lifespan:
    """A lifespan during which ``work`` runs as a task, begun when ``before`` is done."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if before is not None:
            await before()
        task = asyncio.create_task(work(), name=name)
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return lifespan
