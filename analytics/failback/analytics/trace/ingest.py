"""The whole way: read a trace topic, find out which topics to read, read them, write the run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failback.analytics.errors import ReportInputError
from failback.analytics.trace.pages import Pages
from failback.analytics.trace.reading import (
    Progress,
    Span,
    TopicReader,
    copy_rows,
    names_of_addresses,
    record_rows,
    topics_of_groups,
    trace_topics_of,
)
from failback.analytics.trace.records import TRACE_TOPIC
from failback.analytics.trace.run import (
    Wanted,
    Written,
    traced_groups,
    traced_topics,
    write_run,
)
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.protocol.message import RETRY_PREFIX
from failback.protocol.names import without_instance


@dataclass(frozen=True, slots=True)
class Request:
    """What to read, and where to put it."""

    namesrv: Sequence[str]
    run_dir: Path
    run: str
    trace_topics: tuple[str, ...] = (TRACE_TOPIC,)
    topics: tuple[str, ...] = ()
    """Traced topics to read for positions; none named: those that the trace and the brokers'
    offsets lead to."""
    groups: tuple[str, ...] = ()
    broadcasting: tuple[str, ...] = ()
    span: Span = field(default_factory=Span)
    scan: bool = True
    timeout_ms: float = 5000
    access: ClusterAccess | None = None
    """Of a guarded cluster."""


async def ingest(request: Request, progress: Progress = lambda topic, count: None) -> Written:
    """Read what is new since the last time and write the run folder.

    Raises:
        ReportInputError: The folder holds another run, or another trace.
        RemotingError: No name server answers.
    """
    pages = _open(request)
    remoting = RemotingClient(settings=RemotingSettings(access=request.access))
    admin = AdminClient(request.namesrv, client=remoting, timeout_ms=request.timeout_ms)
    try:
        reader = TopicReader(
            remoting, admin, pages, timeout_ms=request.timeout_ms, progress=progress
        )
        problems: list[str] = []
        for topic in await trace_topics_of(admin, request.trace_topics):
            problems += await reader.read("records", topic, record_rows, request.span)
        if request.scan:
            for topic in await _positions(request, admin, pages):
                problems += await reader.read("copies", topic, copy_rows)
        brokers = await names_of_addresses(admin)
    finally:
        await remoting.close()
    wanted = Wanted(request.run, request.groups, request.broadcasting, request.scan)
    return await asyncio.to_thread(
        write_run, request.run_dir, pages, wanted, brokers=brokers, problems=problems
    )


def _open(request: Request) -> Pages:
    run_dir = request.run_dir
    if run_dir.exists() and any(run_dir.iterdir()) and not (run_dir / "trace").is_dir():
        raise ReportInputError("is not empty and holds no trace", run_dir)
    pages = Pages(run_dir)
    source: dict[str, Any] = {
        "run": request.run,
        "trace_topics": list(request.trace_topics),
        "since_ms": request.span.since_ms,
        "until_ms": request.span.until_ms,
    }
    pages.open(source)
    return pages


async def _positions(request: Request, admin: AdminClient, pages: Pages) -> list[str]:
    """Topics in which the traced messages lie, as far as they exist."""
    records = await asyncio.to_thread(pages.read, "records")
    named = set(map(without_instance, request.groups))
    groups = [group for group in traced_groups(records) if not named or group in named]
    wanted = set(request.topics)
    existing = set(await admin.topic_list())
    if not wanted:
        # Traces name topics and groups as clients do: they may lie in any instance.
        told = {*traced_topics(records), *(f"{RETRY_PREFIX}{group}" for group in groups)}
        wanted |= {topic for topic in existing if without_instance(topic) in told}
        for topics in (await topics_of_groups(admin, groups)).values():
            wanted |= topics & existing
    else:
        retries = {f"{RETRY_PREFIX}{group}" for group in groups}
        wanted |= {topic for topic in existing if without_instance(topic) in retries}
    # What a user named is read even if it is unknown: that is then said.
    return sorted(wanted)
