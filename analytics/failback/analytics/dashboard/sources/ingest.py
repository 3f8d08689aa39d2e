"""What a collector received: asked over its HTTP API, with a token that may read.

The poller keeps the runs; the processes of one run are asked for when a page shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.settings import CollectorAddress
from failback.analytics.dashboard.sources.runs import rfc3339
from failback.client.consumelog.upload.collector_client import CollectorAway, CollectorClient

Json = dict[str, Any]
MOST_RUNS: Final = 2_000
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class IngestView:
    """What a collector said last; ``problem`` when it said nothing this time."""

    collector: str = ""
    at: float = 0.0
    problem: str = ""
    store: Json | None = None
    runs: tuple[Json, ...] = ()
    """The one that was heard of last comes first."""

    def document(self) -> Json:
        """All but the runs."""
        return {
            "collector": self.collector or None,
            "problem": self.problem or None,
            "store": self.store,
            "summary": summary_of(self.runs),
        }


class IngestReader:
    """Looks at one collector again and again; keeps what it said before it fell silent."""

    def __init__(self, address: CollectorAddress) -> None:
        self._client = address.client()
        self._last = IngestView(address.url)

    def look(self, at: float) -> IngestView:
        """Ask it now, Unix time ``at``. Blocks, for one thread at a time."""
        last = self._last
        try:
            with _understood():
                store = document_of(self._client, "/v1/store")
                now = IngestView(last.collector, at, "", store, tuple(map(shown, self._runs())))
                now.document()
        except DashboardProblem as problem:
            now = IngestView(last.collector, at, problem.detail, last.store, last.runs)
        self._last = now
        return now

    def _runs(self) -> list[Json]:
        found: list[Json] = []
        cursor: str | None = ""
        while cursor is not None and len(found) < MOST_RUNS:
            query = urlencode({"cursor": cursor, "limit": _PAGE})
            answer = document_of(self._client, f"/v1/runs?{query}")
            found += answer["runs"]
            cursor = answer["next"]
        return sorted(found, key=lambda each: (-each["heard_ms"], each["run"]))


def processes(address: CollectorAddress, run: str, cursor: int, limit: int) -> Json:
    """A page of a run's processes, asked for now. Blocks. Raises ``DashboardProblem``."""
    client = address.client()
    try:
        query = urlencode({"cursor": cursor, "limit": limit})
        found = document_of(client, f"/v1/runs/{quote(run, safe='')}/procs?{query}")
    finally:
        client.close()
    with _understood():
        procs = [shown(each) for each in found["procs"]]
        return {"run": found["run"], "procs": procs, "next": found["next"]}


@contextmanager
def _understood() -> Iterator[None]:
    """A server that answers with 200 may be no collector, or one of another version."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"the collector answers otherwise than one of this version: {error!r}"
        raise DashboardProblem("failed", what) from error


def document_of(client: CollectorClient, path: str) -> Json:
    """A document of the collector. Raises ``DashboardProblem``: one sentence for every failure."""
    try:
        answer = client.look(path)
    except CollectorAway as error:
        raise DashboardProblem("failed", f"the collector does not answer: {error}") from error
    if answer.status == 404 and answer.problem == "not-found" and "/procs" in path:
        raise DashboardProblem("not-found", str(answer.document.get("detail", "")))
    if answer.status != 200:
        raise DashboardProblem("failed", f"the collector refuses: {answer}")
    return dict(answer.document)


def shown(item: Json) -> Json:
    """A run or process with its time for people."""
    return item | {"heard": rfc3339(item["heard_ms"] * 1_000_000) if item["heard_ms"] else None}


def summary_of(runs: tuple[Json, ...]) -> Json:
    """The first line of the page."""
    names = ("segments", "deliveries", "bytes", "missing", "quarantined", "backlog_bytes")
    return {
        "runs": len(runs),
        "open": sum(not each["closed"] for each in runs),
        **{name: sum(each[name] for each in runs) for name in names},
    }
