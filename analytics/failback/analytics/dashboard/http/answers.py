"""The documents of the views, made once: the API answers with them, pages are drawn of them."""

from __future__ import annotations

import asyncio
from typing import Any

from failback.analytics.dashboard.http.context import Shared, readable
from failback.analytics.dashboard.http.documents import page
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.sources.runs import RunEntry, chosen, rfc3339
from failback.analytics.dashboard.views.fleet import summary
from failback.analytics.dashboard.views.message_steps import story
from failback.analytics.errors import ReportInputError
from failback.analytics.report.compare import compare_reports
from failback.common.files import read_object
from failback.common.text import why

Json = dict[str, Any]


def clusters(shared: Shared) -> Json:
    """Every cluster that is known."""
    state = shared.state
    found = state.cluster_documents()
    return {
        "at": rfc3339(state.at_ns),
        "at_ns": state.at_ns,
        "summary": summary(found),
        "clusters": found,
        "problems": list(state.problems),
    }


def offsets(shared: Shared, group: str, topic: str, cursor: str, limit: int) -> Json:
    """Queues of a group and a topic, or of all. Raises ``DashboardProblem``."""
    state = shared.state
    found, following = page(state.offset_rows(group, topic), _queue_name, cursor, limit)
    return {
        "at": rfc3339(state.at_ns),
        "at_ns": state.at_ns,
        "warnings": state.warnings(),
        "offsets": found,
        "next": following,
    }


def _queue_name(row: Json) -> str:
    return "\n".join(str(row[name]) for name in ("cluster", "group", "topic", "broker", "qid"))


def runs(
    shared: Shared, experiment: str, verdict: str, text: str, cursor: str, limit: int
) -> tuple[Json, int]:
    """Runs, and how many there are on all pages. Raises ``DashboardProblem``."""
    everything = list(shared.state.runs)
    entries = chosen(everything, experiment=experiment, verdict=verdict, text=text)
    found, following = page(entries, lambda each: each.run, cursor, limit)
    return {"runs": [each.document() for each in found], "next": following}, len(entries)


def run_document(shared: Shared, entry: RunEntry) -> Json:
    """One run, with what is known of it while it is going on."""
    live = shared.poller.live.get(entry.run)
    return entry.document() | {"live": None if live is None else live.progress()}


async def story_of(shared: Shared, entry: RunEntry, message: str) -> list[Json]:
    """The steps of a message. Raises ``DashboardProblem``."""
    try:
        run = await asyncio.to_thread(read_object, entry.path / "run.json")
        zero = int(run["zero"]["mono_ns"])
        steps = await asyncio.to_thread(story, entry.path / "lake", message, zero)
    except (ReportInputError, OSError, ValueError, KeyError, TypeError) as error:
        raise DashboardProblem("not-found", f"the rows of {entry.run}: {why(error)}") from error
    if not steps:
        raise DashboardProblem("not-found", f"{entry.run} has no row of message {message}")
    return steps


async def comparison(shared: Shared, names: list[str]) -> Json:
    """``compare`` of several reports. Raises ``DashboardProblem``."""
    entries = [shared.run(name) for name in dict.fromkeys(names)]
    if len(entries) < 2:
        raise DashboardProblem("bad-request", "run: name at least two")
    reports = [await shared.report(entry) for entry in entries]
    with readable(*entries):
        found = await asyncio.to_thread(compare_reports, reports)
    return {"runs": [each.document() for each in entries], "compare": found}


async def experiments(shared: Shared) -> list[Json]:
    """What can be started, and how the last start of each is."""
    return [
        await asyncio.to_thread(shared.experiments.document, name)
        for name in shared.experiments.scenarios
    ]
