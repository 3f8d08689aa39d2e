"""The Collector page and its part of the API: what a collector received, by run and process."""

from __future__ import annotations

import shlex
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response

from failback.analytics.dashboard.http.context import Parts, Reader, Shared
from failback.analytics.dashboard.http.documents import (
    Cursor,
    IngestPage,
    Limit,
    ProcessList,
    RunName,
    refusals,
)
from failback.analytics.dashboard.http.rendering import link, render
from failback.analytics.dashboard.sources.runs import rfc3339
from failback.analytics.dashboard.views.paging import page

Json = dict[str, Any]
_PAGE_ROWS: Final = 50
_PROC_ROWS: Final = 200


def api_routes(router: APIRouter) -> None:
    @router.get("/ingest", responses=refusals("bad-cursor"))
    async def ingest(
        _: Reader, shared: Parts, cursor: Cursor = "", limit: Limit = 100
    ) -> IngestPage:
        """What the collector received, by run; the run that was heard of last comes first."""
        view = shared.poller.ingest
        found, following = page(runs_of(shared), lambda each: each["run"], cursor, limit)
        at_ns = round(view.at * 1e9)
        return IngestPage(
            at=rfc3339(at_ns), at_ns=at_ns, **view.document(), runs=found, next=following
        )

    @router.get("/ingest/{run}", responses=refusals("not-found", "bad-cursor", "failed"))
    async def received(
        _: Reader,
        shared: Parts,
        run: RunName,
        cursor: Cursor = "",
        limit: Limit = 100,
    ) -> ProcessList:
        """What the collector received of one run, by process."""
        return ProcessList(**await shared.processes(run, cursor, limit))


def page_routes(app: FastAPI) -> None:
    @app.get("/ingest", include_in_schema=False)
    async def ingest(request: Request, who: Reader, shared: Parts, cursor: Cursor = "") -> Response:
        view, runs = shared.poller.ingest, runs_of(shared)
        found, following = page(runs, lambda each: each["run"], cursor, _PAGE_ROWS)
        return render(
            request, who, "ingest.html.j2",
            view=view.document(),
            watched=shared.settings.collector is not None,
            asked=view.at > 0,
            runs=found,
            following=following and f"/ingest?cursor={following}",
        )  # fmt: skip

    @app.get("/ingest/{run}", include_in_schema=False)
    async def received(
        request: Request,
        who: Reader,
        shared: Parts,
        run: RunName,
        cursor: Cursor = "",
    ) -> Response:
        found = await shared.processes(run, cursor, _PROC_ROWS)
        known = next((each for each in runs_of(shared) if each["run"] == run), None)
        following = found["next"] and f"{link('ingest', run)}?cursor={found['next']}"
        return render(
            request, who, "ingest_run.html.j2",
            run=run, known=known, procs=found["procs"], following=following,
        )  # fmt: skip


def runs_of(shared: Shared) -> list[Json]:
    """The runs of the last look, each with what to do next."""
    view = shared.poller.ingest
    lake = str((view.store or {}).get("lake", ""))
    return [each | {"next": next_step(each, lake)} for each in view.runs]


def next_step(run: Json, lake: str) -> str:
    """A command, or what to wait for. Pure."""
    if run["closed"]:
        return shlex.join(["failback", "report", "--lake", lake, "--run", run["run"]])
    if run["backlog_bytes"]:
        return "its shippers have more to send"
    if run["missing"]:
        return "records are missing: look which processes they are of"
    return "close it when its processes have ended"
