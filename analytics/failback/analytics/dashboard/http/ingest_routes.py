"""The Collector page and its part of the API: what a collector received, by run and process."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response

from failback.analytics.dashboard.http import answers
from failback.analytics.dashboard.http.context import Parts, Reader
from failback.analytics.dashboard.http.documents import (
    Cursor,
    IngestPage,
    Limit,
    ProcessList,
    RunName,
    refusals,
)
from failback.analytics.dashboard.http.rendering import link, render

Json = dict[str, Any]
_PAGE_ROWS: Final = 50
_PROC_ROWS: Final = 200


def api_routes(router: APIRouter) -> None:
    @router.get("/ingest", responses=refusals("bad-cursor"))
    async def ingest(
        _: Reader, shared: Parts, cursor: Cursor = "", limit: Limit = 100
    ) -> IngestPage:
        """What the collector received, by run; the run that was heard of last comes first."""
        return IngestPage(**answers.ingest(shared, cursor, limit))

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
        found = answers.ingest(shared, cursor, _PAGE_ROWS)
        return render(
            request, who, "ingest.html.j2",
            view=found,
            watched=shared.settings.collector is not None,
            asked=found["at_ns"] > 0,
            runs=found["runs"],
            following=found["next"] and f"/ingest?cursor={found['next']}",
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
        known = next((each for each in answers.received_runs(shared) if each["run"] == run), None)
        following = found["next"] and f"{link('ingest', run)}?cursor={found['next']}"
        return render(
            request, who, "ingest_run.html.j2",
            run=run, known=known, procs=found["procs"], following=following,
        )  # fmt: skip
