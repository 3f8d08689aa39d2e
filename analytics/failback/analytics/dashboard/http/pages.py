"""The pages: HTML made here from the same documents as the API; scripts only keep it fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from failback.analytics.dashboard.http import answers
from failback.analytics.dashboard.http.access import Identity
from failback.analytics.dashboard.http.context import (
    FormOperator,
    Parts,
    Reader,
    Shared,
    readable,
)
from failback.analytics.dashboard.http.documents import (
    Cursor,
    MessageName,
    RunName,
    ScenarioName,
    Text,
)
from failback.analytics.dashboard.http.rendering import link, render
from failback.analytics.dashboard.http.sessions import form_fields, session_routes, static_routes
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.sources.runs import RunEntry
from failback.analytics.dashboard.views.message_steps import messages_of
from failback.analytics.dashboard.views.predicting import answer, form, presets
from failback.analytics.dashboard.views.run_blocks import blocks_of, queue_of, staircase_of
from failback.analytics.errors import ReportInputError
from failback.analytics.live.facts import GroupTopic
from failback.analytics.report.page.answers import answer_tiles, banner, heading
from failback.analytics.report.page.tables.redeliveries import reset_hint
from failback.protocol.errors import ConfigError, FailbackError

Json = dict[str, Any]
_VERDICTS: Final = (
    *("Pass", "Fail", "Inconclusive", "Observed"),
    *("running", "closed", "orphaned", "unreadable"),
)
_PAGE_ROWS: Final = 50
_VERDICTS_SHOWN: Final = 20
_MESSAGES_SHOWN: Final = 50


def routes(app: FastAPI) -> None:
    """Add the pages to the application; none of them is in the API's document."""
    static_routes(app)
    session_routes(app)
    _cluster_pages(app)
    _run_pages(app)
    _experiment_pages(app)


# --- clusters and offsets -------------------------------------------------------------------------


def _cluster_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def fleet(request: Request, who: Reader, shared: Parts) -> Response:
        state = shared.state
        return render(
            request, who, "fleet.html.j2",
            **answers.clusters(shared),
            warnings=state.warnings(),
            runs=[each.document() for each in state.runs[:_VERDICTS_SHOWN]],
            jobs=_running_jobs(shared),
            looked=state.at > 0,
            settings=shared.settings,
        )  # fmt: skip

    @app.get("/offsets", include_in_schema=False)
    async def offsets(
        request: Request, who: Reader, shared: Parts,
        group: Text = "", topic: Text = "", cursor: Cursor = "",
    ) -> Response:  # fmt: skip
        state = shared.state
        found = answers.offsets(shared, group, topic, cursor, _PAGE_ROWS)
        return render(
            request, who, "offsets.html.j2",
            rows=found["offsets"],
            total=len(state.offset_rows(group, topic)),
            groups=sorted({row["group"] for row in state.offset_rows()}),
            topics=sorted({row["topic"] for row in state.offset_rows()}),
            pairs=_pairs_with(state.cluster_documents(), group),
            group=group,
            topic=topic,
            following=_following("/offsets", found["next"], group=group, topic=topic),
            warnings=found["warnings"],
            clusters=state.clusters,
            problems=state.problems,
        )  # fmt: skip

    @app.post("/pairs/{cluster}/{broker}/dismiss", include_in_schema=False)
    async def dismiss(
        request: Request, who: FormOperator, shared: Parts, cluster: str, broker: str
    ) -> Response:
        fields = await form_fields(request)
        shared.access.check_csrf(request, who, fields.get("csrf", ""))
        shared.poller.stakes.dismiss((cluster, broker))
        return RedirectResponse("/", 303)

    @app.get("/offsets/{cluster}/{broker}/{group}/{topic}/{qid}", include_in_schema=False)
    async def lineage(
        request: Request, who: Reader, shared: Parts,
        cluster: str, broker: str, group: str, topic: str, qid: int,
    ) -> Response:  # fmt: skip
        try:
            found = await shared.lineage(cluster, broker, GroupTopic(group, topic), qid)
        except FailbackError as error:
            raise DashboardProblem("failed", str(error)) from error
        at_risk = [
            each
            for each in shared.state.warnings()
            if each["cluster"] == cluster and each["broker"] == broker
        ]
        groups = [
            row
            for each in _pairs_with(shared.state.cluster_documents(), group)
            if (each["cluster"], each["broker"]) == (cluster, broker)
            for row in each["groups"]
        ]
        return render(request, who, "lineage.html.j2", queue=found, warnings=at_risk, groups=groups)


def _pairs_with(clusters: list[Json], group: str) -> list[Json]:
    """Pairs with their groups, or with one of them."""
    found = []
    for cluster in clusters:
        for pair in cluster["pairs"]:
            rows = [row for row in pair["groups"] if group in ("", row["group"])]
            if rows:
                found.append(
                    {"cluster": cluster["cluster"], "broker": pair["broker"], "groups": rows}
                )
    return found


def _following(path: str, cursor: str | None, **query: str) -> str | None:
    if cursor is None:
        return None
    kept = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(kept | {'cursor': cursor})}"


def _running_jobs(shared: Shared) -> list[Json]:
    jobs = (shared.experiments.job(name) for name in shared.experiments.scenarios)
    return [{"name": job.scenario, **job.document()} for job in jobs if job and job.code is None]


# --- runs -----------------------------------------------------------------------------------------


def _run_pages(app: FastAPI) -> None:
    @app.get("/runs", include_in_schema=False)
    async def runs(
        request: Request, who: Reader, shared: Parts,
        experiment: Text = "", verdict: Text = "", text: Text = "",
        cursor: Cursor = "",
    ) -> Response:  # fmt: skip
        found, total = answers.runs(shared, experiment, verdict, text, cursor, _PAGE_ROWS)
        return render(
            request, who, "runs.html.j2",
            runs=found["runs"],
            total=total,
            experiments=sorted({each.experiment for each in shared.state.runs} - {""}),
            verdicts=_VERDICTS,
            experiment=experiment, verdict=verdict, text=text,
            following=_following(
                "/runs", found["next"], experiment=experiment, verdict=verdict, text=text
            ),
            folder=shared.settings.runs,
        )  # fmt: skip

    @app.get("/runs/{run}", include_in_schema=False)
    async def run_page(request: Request, who: Reader, shared: Parts, run: RunName) -> Response:
        entry = shared.run(run)
        document = answers.run_document(shared, entry)
        report = await _report_of(shared, entry)
        if report is None:
            return render(
                request, who, "live.html.j2", run=document, is_live=document["live"] is not None
            )
        drawn = await shared.figures(entry)
        others = [
            each.document()
            for each in shared.state.runs
            if entry.experiment == each.experiment != "" and each.run != run and each.verdict
        ]
        with readable(entry):
            points = await asyncio.to_thread(shared.poller.index.points, entry)
            return render(
                request, who, "run.html.j2",
                run=document,
                report=report,
                heading=heading(report),
                banner=banner(report),
                tiles=[]
                if entry.is_observed
                else [(value, label) for value, label, _ in answer_tiles(report)],
                blocks=blocks_of(report, points, drawn, link("runs", run)),
                others=others[:10],
            )  # fmt: skip

    @app.get("/runs/{run}/queues/{number}", include_in_schema=False)
    async def queue_page(
        request: Request, who: Reader, shared: Parts, run: RunName, number: int
    ) -> Response:
        entry = shared.run(run)
        report = await shared.report(entry)
        queue = queue_of(report, number)
        if queue is None:
            raise DashboardProblem("not-found", f"the report of {run} has no queue {number}")
        figures = await shared.figures(entry)
        with readable(entry):
            messages = await asyncio.to_thread(_messages, entry.path, queue, _MESSAGES_SHOWN)
            return render(
                request, who, "queue.html.j2",
                run=entry.document(), queue=queue, number=number, messages=messages,
                figure=staircase_of(figures, queue),
                rollbacks=[
                    row for row in report.get("rollbacks", [])
                    if all(row[name] == queue[name] for name in ("group", "broker", "topic", "qid"))
                ],
                hint=reset_hint(queue),
            )  # fmt: skip

    @app.get("/runs/{run}/messages/{message}", include_in_schema=False)
    async def message_page(
        request: Request,
        who: Reader,
        shared: Parts,
        run: RunName,
        message: MessageName,
    ) -> Response:
        entry = shared.run(run)
        steps = await answers.story_of(shared, entry, message)
        return render(
            request, who, "message.html.j2", run=entry.document(), message=message, steps=steps
        )

    @app.get("/compare", include_in_schema=False)
    async def compare(request: Request, who: Reader, shared: Parts) -> Response:
        names = [name[:128] for name in request.query_params.getlist("run")][:40]
        found = await answers.comparison(shared, names) if len(set(names)) > 1 else None
        return render(
            request, who, "compare.html.j2",
            found=found,
            names=names,
            query=urlencode([("run", name) for name in names]),
            runs=[
                each.document()
                for each in shared.state.runs
                if each.verdict and not each.is_observed
            ][:_PAGE_ROWS],
        )  # fmt: skip


async def _report_of(shared: Shared, entry: RunEntry) -> Json | None:
    """Its report, unless it goes on: that of an observation may have been made before."""
    if entry.state == "running":
        return None
    try:
        return await shared.report(entry)
    except DashboardProblem as problem:
        if problem.name != "no-report":
            raise
        return None


def _messages(folder: Path, queue: Mapping[str, Any], limit: int) -> list[Json]:
    place = (queue["group"], queue["broker"], queue["topic"], queue["qid"])
    try:
        return messages_of(folder / "lake", *place, limit)
    except ReportInputError:  # the rows were deleted, the report stays
        return []


# --- experiments and predictions ------------------------------------------------------------------


def _experiment_pages(app: FastAPI) -> None:
    @app.get("/experiments", include_in_schema=False)
    async def experiments(request: Request, who: Reader, shared: Parts) -> Response:
        found = await answers.experiments(shared)
        running = [each.document() for each in shared.state.runs if each.state == "running"]
        return render(
            request, who, "experiments.html.j2",
            experiments=found, running=running, namespaces=shared.settings.kube_namespaces,
        )  # fmt: skip

    @app.get("/experiments/{name}", include_in_schema=False)
    async def experiment(
        request: Request, who: Reader, shared: Parts, name: ScenarioName
    ) -> Response:
        return _experiment_page(request, who, shared, name)

    @app.post("/experiments/{name}/start", include_in_schema=False)
    async def start(
        request: Request, who: FormOperator, shared: Parts, name: ScenarioName
    ) -> Response:
        fields = await form_fields(request)
        shared.access.check_csrf(request, who, fields.pop("csrf", ""))
        confirmed = fields.pop("confirm", "")
        shared.experiments.document(name)
        if confirmed != name:
            error = f"Type {name} to confirm that it may kill brokers."
            return _experiment_page(request, who, shared, name, 422, error, fields)
        try:
            await asyncio.to_thread(shared.experiments.start, name, fields, who.name)
        except DashboardProblem as problem:
            if problem.name not in {"bad-request", "already-running"}:
                raise
            return _experiment_page(
                request, who, shared, name, problem.status, problem.detail, fields
            )
        return RedirectResponse(link("experiments", name), 303)

    @app.post("/experiments/{name}/abort", include_in_schema=False)
    async def abort(
        request: Request, who: FormOperator, shared: Parts, name: ScenarioName
    ) -> Response:
        fields = await form_fields(request)
        shared.access.check_csrf(request, who, fields.get("csrf", ""))
        await asyncio.to_thread(shared.experiments.abort, name, who.name)
        return RedirectResponse(link("experiments", name), 303)

    @app.post("/runs/{run}/abort", include_in_schema=False)
    async def abort_run(
        request: Request, who: FormOperator, shared: Parts, run: RunName
    ) -> Response:
        fields = await form_fields(request)
        shared.access.check_csrf(request, who, fields.get("csrf", ""))
        await asyncio.to_thread(shared.experiments.abort_run, shared.run(run), who.name)
        return RedirectResponse(link("runs", run), 303)

    @app.get("/predict", include_in_schema=False)
    async def predict(request: Request, who: Reader, shared: Parts) -> Response:
        asked = dict(request.query_params)
        state = shared.state
        offered = presets(
            state.cluster_documents(), {where: each.config for where, each in state.seen.items()}
        )
        chosen = asked.pop("preset", "")
        for each in offered:
            if each["value"] == chosen:
                asked = each["settings"] | asked
        fault = asked.pop("fault", "handover")[:64]
        try:
            down = _seconds(asked.pop("down_seconds", "") or "60")
            found = await asyncio.to_thread(answer, fault, asked, down)
        except (ConfigError, ValueError) as error:
            raise DashboardProblem("bad-request", str(error)) from error
        return render(
            request, who, "predict.html.j2",
            form=form(), fault=fault, down_seconds=down, found=found, presets=offered,
            preset=chosen,
        )  # fmt: skip


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError("down_seconds", f"must be a number, got {text[:40]!r}") from None


def _experiment_page(
    request: Request,
    who: Identity,
    shared: Shared,
    name: str,
    status: int = 200,
    error: str = "",
    fields: Mapping[str, str] | None = None,
) -> Response:
    """``fields``: what was chosen, so that a refusal loses nothing."""
    document = shared.experiments.document(name)
    job = document["job"]
    since = job["started_ns"] if job else None
    mine = [
        answers.run_document(shared, each)
        for each in shared.state.runs
        if since is not None and each.started_ns >= since and not each.is_observed
    ]
    return render(
        request, who, "experiment.html.j2", status,
        experiment=document, job=job, runs=mine, error=error, clusters=shared.state.clusters,
        fields=fields or {},
    )  # fmt: skip
