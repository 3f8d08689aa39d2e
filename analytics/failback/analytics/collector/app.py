"""The routes of the collector: who may, what is too much, and then the store in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import ClientDisconnect

from failback.analytics.collector.metrics import (
    FREE,
    QUEUE,
    STORED_BYTES,
    UPLOADS,
    CollectorMetrics,
)
from failback.analytics.collector.openapi import (
    MAX_JSON_BYTES,
    SEGMENT_BODY,
    Alive,
    Backlog,
    BodyHash,
    CloseBody,
    Closed,
    Cursor,
    FromIndex,
    IndexText,
    OpenBody,
    Opened,
    PageSize,
    ProcCursor,
    ProcessDocument,
    ProcName,
    RunName,
    SchemaId,
    Stored,
    StoreDocument,
    TableName,
    document_of,
)
from failback.analytics.collector.pressure import UploadBudget
from failback.analytics.collector.run_documents import ProcessPage, RunDocument, RunPage
from failback.analytics.collector.segment_store import STORED, Store, sha256_of
from failback.analytics.collector.settings import CollectorSettings
from failback.analytics.lake.segment_ids import SegmentId
from failback.analytics.web.applications import answer_refusals, body_of, problem_response
from failback.analytics.web.problems import Problem, problems
from failback.analytics.web.tokens import TokenEntry, TokenFile
from failback.client.consumelog.upload.lake_files import ARROW_STREAM
from failback.common.numbers import whole

_Result = TypeVar("_Result")
_Body = TypeVar("_Body", bound=msgspec.Struct)
_NO_TOKEN: Final = ("unauthenticated", "forbidden", "bad-request")
_UPLOAD_PROBLEMS: Final = (
    *_NO_TOKEN, "hash-mismatch", "cut-upload", "too-slow", "other-content", "process-number-taken",
    "run-closed", "run-expired", "too-large", "unsupported-type", "bad-segment", "busy",
    "store-failed", "store-full",
)  # fmt: skip
_CLOSE_PROBLEMS: Final = (
    *_NO_TOKEN, "cut-upload", "not-found", "too-slow", "gaps", "run-expired", "too-large",
    "store-failed", "store-full",
)  # fmt: skip
_OPEN_PROBLEMS: Final = (
    *_NO_TOKEN, "cut-upload", "too-slow", "run-expired", "too-large", "store-failed", "store-full",
)  # fmt: skip
_bearer = HTTPBearer(auto_error=False, description="A token of the collector's token file.")


async def _known_token(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> TokenEntry:
    """The token of the request. Looked at before anything else of it: raises ``Problem``."""
    tokens: TokenFile = request.app.state.tokens
    entry = tokens.find(request.headers.get("authorization"))
    if entry is None:
        raise Problem("unauthenticated", "no token, or one that is not in the token file")
    return entry


Token = Annotated[TokenEntry, Depends(_known_token)]


class Collector:
    """What the routes share."""

    def __init__(
        self,
        settings: CollectorSettings,
        store: Store,
        tokens: TokenFile,
        metrics: CollectorMetrics,
        pool: Executor,
    ) -> None:
        self.settings = settings
        self.store = store
        self.tokens = tokens
        self.metrics = metrics
        self._pool = pool
        self._budget = UploadBudget(settings.queue_bytes, settings.max_uploads)
        metrics.watch(QUEUE, lambda: self._budget.held_bytes)
        metrics.watch(UPLOADS, lambda: self._budget.uploads)
        metrics.watch(STORED_BYTES, lambda: store.stored_bytes)
        metrics.watch(FREE, store.free_bytes)
        metrics.watch_backlog(store.backlogs)

    async def blocking(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run what may wait for the disk in a thread."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, partial(call, *arguments)
        )

    async def upload(self, request: Request, named: SegmentId, sha256: str, backlog: int) -> str:
        """Take one segment. Raises ``Problem``."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != ARROW_STREAM:
            raise Problem("unsupported-type", f"{kind or 'no type'!r}, not {ARROW_STREAM}")
        limit = self.settings.limits.body_bytes
        announced = _announced(request, limit)
        self.store.check_room()
        wait = self._budget.take(announced)
        if wait is not None:
            what = f"{self._budget.uploads} uploads hold {self._budget.held_bytes} bytes"
            raise Problem("busy", what, retry_after_seconds=wait)
        try:
            body = await _read_body(request, limit, self.settings.upload_seconds)
            started = time.perf_counter()
            result = await self.blocking(self._store_checked, named, body, sha256)
            self.metrics.commit_seconds.observe(time.perf_counter() - started)
            self.metrics.answered(201 if result == STORED else 200, len(body))
        finally:
            self._budget.give_back(announced)
        self.store.note_backlog(named, backlog)
        return result

    def _store_checked(self, named: SegmentId, body: bytes, sha256: str) -> str:
        found = sha256_of(body)
        if found != sha256:
            raise Problem("hash-mismatch", f"the body has sha256 {found}, not {sha256}")
        return self.store.commit(named, body, sha256)


def create_app(collector: Collector) -> FastAPI:
    """The application; ``collector`` is what its routes work on."""
    app = FastAPI(title="Failback collector", version="1", openapi_url=None)
    app.state.tokens = collector.tokens
    _refusals(app, collector.metrics)
    _segment_routes(app, collector)
    _run_routes(app, collector)
    _begin_and_end_routes(app, collector)
    _own_routes(app, collector)
    app.openapi = partial(document_of, app)  # type: ignore[method-assign]
    return app


def _segment_routes(app: FastAPI, collector: Collector) -> None:
    @app.post(
        "/v1/segments/{run}/{proc}/{index}/{table}",
        status_code=201,
        response_model=Stored,
        responses={200: {"model": Stored, "description": "Known, with the same content"},
                   **problems(*_UPLOAD_PROBLEMS)},
        openapi_extra={"requestBody": SEGMENT_BODY},
    )  # fmt: skip
    async def store_segment(
        request: Request,
        response: Response,
        token: Token,
        run: RunName,
        proc: ProcName,
        index: IndexText,
        table: TableName,
        sha256: BodyHash,
        schema: SchemaId,
        backlog: Backlog = 0,
    ) -> Stored:
        """Store one segment. Repeating it changes nothing."""
        _may_add(token, run)
        named = SegmentId(run, proc, int(index), table)
        result = await collector.upload(request, named, sha256, backlog)
        response.status_code = 201 if result == STORED else 200
        return Stored(id=str(named), result=result)


def _run_routes(app: FastAPI, collector: Collector) -> None:
    store = collector.store

    @app.get("/v1/runs", responses=problems(*_NO_TOKEN))
    async def list_runs(token: Token, cursor: Cursor = "", limit: PageSize = 100) -> RunPage:
        """The runs of the lake, by name."""
        _may_look(token)
        return await collector.blocking(store.listing.page, cursor, limit)

    @app.get("/v1/runs/{run}", responses=problems(*_NO_TOKEN, "not-found"))
    async def show_run(token: Token, run: RunName) -> RunDocument:
        """One run."""
        _may_look(token, run)
        found = await collector.blocking(store.describe, run)
        if found is None:
            raise Problem("not-found", f"there is nothing of run {run}")
        return found

    @app.get("/v1/runs/{run}/procs", responses=problems(*_NO_TOKEN, "not-found"))
    async def list_processes(
        token: Token,
        run: RunName,
        cursor: ProcCursor = -1,
        limit: PageSize = 100,
    ) -> ProcessPage:
        """What was received of each process of a run."""
        _may_look(token, run)
        found = await collector.blocking(store.procs_of, run, cursor, limit)
        if found is None:
            raise Problem("not-found", f"there is nothing of run {run}")
        return found

    @app.get("/v1/runs/{run}/procs/{proc}", responses=problems(*_NO_TOKEN))
    async def show_process(
        token: Token,
        run: RunName,
        proc: ProcName,
        from_index: FromIndex = 0,
    ) -> ProcessDocument:
        """What is stored of one process: where a shipper goes on."""
        _may_look(token, run)
        found = await collector.blocking(store.stored_of, run, proc, from_index)
        return ProcessDocument(**found)


def _begin_and_end_routes(app: FastAPI, collector: Collector) -> None:
    store = collector.store

    @app.post(
        "/v1/runs/{run}/open",
        responses=problems(*_OPEN_PROBLEMS),
        openapi_extra=body_of(OpenBody),
    )
    async def open_run(request: Request, token: Token, run: RunName) -> Opened:
        """Say when a run began. The first who says it decides; its rows then join the tables."""
        _may_add(token, run)
        body = await _json_body(request, OpenBody, collector.settings.upload_seconds)
        date = await collector.blocking(store.opener.open, run, body.zero_wall_ns)
        return Opened(run=run, date=date)

    @app.post(
        "/v1/runs/{run}/close",
        responses=problems(*_CLOSE_PROBLEMS),
        openapi_extra=body_of(CloseBody),
    )
    async def close_run(request: Request, token: Token, run: RunName) -> Closed:
        """Say how far each process got. A run with gaps stays open."""
        _may_add(token, run)
        body = await _json_body(request, CloseBody, collector.settings.upload_seconds)
        gaps = await collector.blocking(store.close_run, run, _last_seqs(body))
        if gaps:
            label = collector.metrics.run_label(run)
            collector.metrics.gaps.labels(label).inc(len(gaps))
            what = f"{len(gaps)} ranges of records of run {run} are missing"
            raise Problem("gaps", what, extra={"gaps": gaps})
        return Closed(gaps=[])


def _own_routes(app: FastAPI, collector: Collector) -> None:
    @app.get("/v1/store", responses=problems(*_NO_TOKEN[:2]))
    async def show_store(token: Token) -> StoreDocument:
        """Where the lake is, and how full."""
        _may_look(token)
        return StoreDocument(**await collector.blocking(collector.store.describe_store))

    async def alive() -> Alive:
        """The process answers."""
        return Alive(status="ok")

    app.get("/livez", name="livez")(alive)
    app.get("/healthz", name="healthz")(alive)

    @app.get("/readyz", responses=problems("not-ready"))
    async def ready() -> Alive:
        """Segments are taken."""
        try:
            collector.store.check_room()
        except Problem as error:
            raise Problem("not-ready", error.detail) from error
        except OSError as error:
            raise Problem("not-ready", str(error)) from error
        return Alive(status="ok")

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}},
                   **problems(*_NO_TOKEN[:2])},
    )  # fmt: skip
    async def metrics(token: Token) -> Response:
        """Metrics in Prometheus' text format."""
        _may_look(token)
        text = await collector.blocking(generate_latest, collector.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    @app.get("/openapi.json", responses=problems(*_NO_TOKEN[:2]))
    async def openapi(token: Token) -> dict[str, Any]:
        """This document."""
        _may_look(token)
        return document_of(app)


def _refusals(app: FastAPI, metrics: CollectorMetrics) -> None:
    def answer(request: Request, problem: Problem, headers: Mapping[str, str]) -> Response:
        if request.url.path.startswith("/v1/segments/"):
            metrics.answered(problem.status, 0)
        return problem_response(problem, headers)

    answer_refusals(app, Problem, answer)


def _may_look(token: TokenEntry, run: str | None = None) -> None:
    if not token.may_read(run):
        raise Problem("forbidden", "the token has not the scope read")


def _may_add(token: TokenEntry, run: str) -> None:
    if not token.may_ingest(run):
        raise Problem("forbidden", f"the token has not the scope ingest:{run}")


def _announced(request: Request, limit: int) -> int:
    """Bytes to reserve: what is announced, or the most that a body without a length may have."""
    length = request.headers.get("content-length")
    if length is None:
        return limit
    count = whole(length)
    if count is None:
        return limit
    if count > limit:
        raise Problem("too-large", f"{count} bytes, at most {limit} are taken")
    return count


async def _read_body(request: Request, limit: int, seconds: float) -> bytes:
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise Problem("too-large", f"more than {limit} bytes")
                parts.append(part)
    except TimeoutError as error:
        raise Problem("too-slow", f"not whole after {seconds:g} s") from error
    except ClientDisconnect as error:
        raise Problem("cut-upload", f"cut after {size} bytes") from error
    return b"".join(parts)


async def _json_body(request: Request, kind: type[_Body], seconds: float) -> _Body:
    body = await _read_body(request, MAX_JSON_BYTES, seconds)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem("bad-request", f"body: {error}") from error


def _last_seqs(body: CloseBody) -> dict[int, int]:
    for number in body.procs:
        if not (number.isascii() and number.isdigit() and len(number) <= 7):
            raise Problem("bad-request", f"body: {number!r} is no process number")
    return {int(number): seq for number, seq in body.procs.items()}
