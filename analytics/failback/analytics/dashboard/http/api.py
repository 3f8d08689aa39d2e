"""The JSON API under ``/api/v1``: everything that the pages show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from failback.analytics.dashboard.http import answers
from failback.analytics.dashboard.http.context import (
    Listener,
    Operator,
    Parts,
    Reader,
    json_body,
    readable,
)
from failback.analytics.dashboard.http.documents import (
    Accepted,
    ClusterName,
    ClusterPage,
    Cursor,
    ExperimentList,
    FigureList,
    FigureName,
    Limit,
    MessageName,
    OffsetPage,
    PairList,
    PredictBody,
    QueueId,
    RunName,
    RunPage,
    RunQuery,
    ScenarioName,
    StartBody,
    Story,
    Text,
    Theme,
    WindowPage,
    document_of,
    page,
    refusals,
)
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.sources.live_run import LiveRun
from failback.analytics.dashboard.views.lanes import live_data, live_figure
from failback.analytics.dashboard.views.predicting import answer
from failback.analytics.dashboard.views.run_blocks import figure_json
from failback.analytics.live.facts import GroupTopic
from failback.analytics.report.page.figures.curves import compare_arms
from failback.analytics.web.applications import body_of
from failback.protocol.errors import ConfigError

Json = dict[str, Any]
_NOT_MODIFIED: dict[int | str, Json] = {304: {"description": "As the caller has it."}}


def routes(app: FastAPI) -> None:
    """Add the API to the application."""
    router = APIRouter(prefix="/api/v1")
    _cluster_routes(router)
    _run_routes(router)
    _report_routes(router)
    _experiment_routes(router)
    app.include_router(router)

    @app.get("/api/openapi.json", responses=refusals())
    async def openapi(_: Reader) -> Json:
        """This document."""
        return document_of(app)


def _cluster_routes(router: APIRouter) -> None:
    @router.get("/clusters", responses=refusals())
    async def clusters(_: Reader, shared: Parts) -> ClusterPage:
        """Every cluster with its pairs, roles, lags, ages and exposures."""
        return ClusterPage(**answers.clusters(shared))

    @router.get("/clusters/{cluster}/pairs", responses=refusals("not-found"))
    async def pairs(_: Reader, shared: Parts, cluster: ClusterName) -> PairList:
        """The pairs of one cluster."""
        for each in shared.state.cluster_documents():
            if each["cluster"] == cluster:
                return PairList(cluster=cluster, pairs=each["pairs"])
        raise DashboardProblem("not-found", f"there is no cluster {cluster}")

    @router.get("/offsets", responses=refusals("bad-cursor"))
    async def offsets(
        _: Reader,
        shared: Parts,
        group: Text = "",
        topic: Text = "",
        cursor: Cursor = "",
        limit: Limit = 100,
    ) -> OffsetPage:
        """Where each copy of each offset stands; what is at risk comes first."""
        return OffsetPage(**answers.offsets(shared, group, topic, cursor, limit))

    @router.get("/lineage", responses=refusals("not-found"))
    async def lineage(
        _: Reader,
        shared: Parts,
        cluster: Text,
        broker: Text,
        group: Text,
        topic: Text,
        qid: QueueId,
    ) -> Json:
        """The copies of one offset from the client to the slave, and what is safe."""
        return await shared.lineage(cluster, broker, GroupTopic(group, topic), qid)


def _run_routes(router: APIRouter) -> None:
    @router.get("/runs", responses=refusals("bad-cursor"))
    async def runs(
        _: Reader,
        shared: Parts,
        experiment: Text = "",
        verdict: Text = "",
        text: Text = "",
        cursor: Cursor = "",
        limit: Limit = 100,
    ) -> RunPage:
        """Runs, the newest first. ``verdict`` may also be a state, such as ``running``."""
        found, _total = answers.runs(shared, experiment, verdict, text, cursor, limit)
        return RunPage(**found)

    @router.get("/runs/{run}", responses=refusals("not-found"))
    async def show(_: Reader, shared: Parts, run: RunName) -> Json:
        """One run; while it is going on, its faults and counters."""
        return answers.run_document(shared, shared.run(run))

    @router.post(
        "/runs/{run}/abort",
        status_code=202,
        responses=refusals("cross-site", "not-found", "not-running", "failed"),
    )
    async def abort(who: Operator, shared: Parts, run: RunName) -> Accepted:
        """Ask a run to undo what it did and end."""
        entry = shared.run(run)
        await asyncio.to_thread(shared.experiments.abort_run, entry, who.name)
        return Accepted(run=run, asked="abort")

    @router.get("/runs/{run}/messages/{message}", responses=refusals("not-found"))
    async def message(_: Reader, shared: Parts, run: RunName, message: MessageName) -> Story:
        """What happened to one message."""
        return Story(
            run=run, message=message, steps=await answers.story_of(shared, shared.run(run), message)
        )

    @router.get("/events", response_class=EventSourceResponse, responses=refusals())
    async def events(
        request: Request, _: Reader, shared: Listener, run: Text = ""
    ) -> AsyncIterator[ServerSentEvent]:
        """Server-sent events `changed` with `kind` and `run`; what changed is in the other routes.

        Kinds: phase, fault, counters, offsets, fleet, verdict, experiment."""
        allowed = partial(shared.access.may_read, request)
        async with aclosing(shared.hub.stream(run, allowed=allowed)) as found:
            async for event in found:
                yield event


def _report_routes(router: APIRouter) -> None:
    with_report = refusals("not-found", "no-report", "failed")

    @router.get("/runs/{run}/report", responses={**with_report, **_NOT_MODIFIED})
    async def report(
        request: Request, response: Response, _: Reader, shared: Parts, run: RunName
    ) -> Json | None:
        """``report.json``."""
        entry = shared.run(run)
        found = await shared.report(entry)
        if _is_known(request, response, shared.poller.index.report_tag(entry)):
            return None
        return found

    @router.get("/runs/{run}/figures", responses=with_report)
    async def figures(_: Reader, shared: Parts, run: RunName) -> FigureList:
        """Names of the figures."""
        made = await shared.figures(shared.run(run))
        return FigureList(
            figures=[{"name": name, "label": label} for name, (label, _) in made.items()]
        )

    @router.get(
        "/runs/{run}/figures/{name}",
        responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}},
                   **with_report, **_NOT_MODIFIED},
        response_class=Response,
    )  # fmt: skip
    async def figure(
        request: Request,
        _: Reader,
        shared: Parts,
        run: RunName,
        name: FigureName,
        theme: Theme = "light",
    ) -> Response:
        """One figure, as Plotly takes it. ``live`` is that of a run that is going on."""
        entry = shared.run(run)
        live = shared.poller.live.get(run)
        if name == "live":
            if not isinstance(live, LiveRun):
                raise DashboardProblem("not-found", f"{run} is {entry.state}")
            data = live_data(live)
            body = await asyncio.to_thread(
                figure_json, lambda chosen: live_figure(data, chosen), theme
            )
            return Response(body, media_type="application/json")
        tag = f"{shared.poller.index.report_tag(entry)}-{name}-{theme}"
        await shared.report(entry)
        answer = Response(media_type="application/json")
        if _is_known(request, answer, tag):
            return Response(status_code=304, headers=dict(answer.headers))
        body = await shared.figure(entry, name, theme)
        return Response(
            body,
            media_type="application/json",
            headers={"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"},
        )

    @router.get("/runs/{run}/windows", responses=refusals(
        "not-found", "no-report", "failed", "bad-cursor"))  # fmt: skip
    async def windows(
        _: Reader,
        shared: Parts,
        run: RunName,
        queue: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
        cursor: Cursor = "",
        limit: Limit = 100,
    ) -> WindowPage:
        """What was re-consumed; ``queue`` is a queue's place in the report."""
        report = await shared.report(shared.run(run))
        with readable(shared.run(run)):
            rows = [
                {"queue": number, "group": each["group"], "broker": each["broker"],
                 "topic": each["topic"], "qid": each["qid"], **window}
                for number, each in enumerate(report.get("queues", []))
                if queue in (None, number)
                for window in each.get("windows", [])
            ]  # fmt: skip
        numbered = list(enumerate(rows))
        found, following = page(numbered, lambda each: str(each[0]), cursor, limit)
        return WindowPage(windows=[row for _, row in found], next=following)

    @router.get(
        "/compare/figure",
        responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}},
                   **with_report},
        response_class=Response,
    )  # fmt: skip
    async def compared(
        _: Reader, shared: Parts, runs: RunQuery, theme: Theme = "light"
    ) -> Response:
        """Every run as a point, with each arm's median, as Plotly takes it."""
        found = await answers.comparison(shared, runs)
        if not found.get("compare"):
            raise DashboardProblem("not-found", "nothing can be compared")
        draw = partial(compare_arms, found["compare"])
        body = await asyncio.to_thread(figure_json, draw, theme)
        return Response(body, media_type="application/json")

    @router.get("/compare", responses=with_report)
    async def compare(_: Reader, shared: Parts, runs: RunQuery) -> Json:
        """Runs side by side; the first one's arm is the baseline."""
        return await answers.comparison(shared, runs)


def _is_known(request: Request, response: Response, tag: str) -> bool:
    """Set the tag; whether the caller has this version (the answer is then a 304 without body)."""
    quoted = f'"{tag}"'
    response.headers["ETag"] = quoted
    response.headers["Cache-Control"] = "private, no-cache"
    asked = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if quoted in asked or "*" in asked:
        response.status_code = 304
        return True
    return False


def _experiment_routes(router: APIRouter) -> None:
    @router.post(
        "/predict",
        openapi_extra=body_of(PredictBody),
        responses=refusals("cross-site", "bad-body", "unsupported-type", "too-large"),
    )
    async def predict(request: Request, _: Reader) -> Json:
        """What a fault would repeat, expected and worst case, and which setting would help."""
        body = await json_body(request, PredictBody)
        try:
            return await asyncio.to_thread(answer, body.fault, body.settings, body.down_seconds)
        except ConfigError as error:
            raise DashboardProblem("bad-request", str(error)) from error

    @router.get("/experiments", responses=refusals())
    async def experiments(_: Reader, shared: Parts) -> ExperimentList:
        """What can be started, and how the last start of each is."""
        return ExperimentList(experiments=await answers.experiments(shared))

    @router.get("/experiments/{name}", responses=refusals("not-found"))
    async def experiment(_: Reader, shared: Parts, name: ScenarioName) -> Json:
        """One experiment."""
        return await asyncio.to_thread(shared.experiments.document, name)

    @router.post("/experiments/{name}/start", status_code=202,
                 openapi_extra=body_of(StartBody),
                 responses=refusals("cross-site", "bad-body", "unsupported-type", "too-large",
                                        "not-found", "already-running", "failed"))  # fmt: skip
    async def start(request: Request, who: Operator, shared: Parts, name: ScenarioName) -> Json:
        """Start an experiment. It kills brokers and consumers of the clusters it names."""
        body = await json_body(request, StartBody)
        if body.confirm != name:
            raise DashboardProblem("bad-request", f"confirm: must be {name}")
        return await asyncio.to_thread(shared.experiments.start, name, body.options, who.name)

    @router.post(
        "/experiments/{name}/abort",
        status_code=202,
        responses=refusals("cross-site", "not-found", "not-running", "failed"),
    )
    async def abort(who: Operator, shared: Parts, name: ScenarioName) -> Json:
        """Ask an experiment to undo what it did and end."""
        return await asyncio.to_thread(shared.experiments.abort, name, who.name)
