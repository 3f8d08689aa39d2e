"""What routes share: the poller's last picture, events, experiments, rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Request
from jinja2 import UndefinedError

from failback.analytics.dashboard.events import EventHub
from failback.analytics.dashboard.experiments import Experiments
from failback.analytics.dashboard.http.access import CSRF_HEADER, Access, Identity
from failback.analytics.dashboard.http.documents import MAX_BODY_BYTES
from failback.analytics.dashboard.poller import Poller, State
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.runs import Cache, RunEntry
from failback.analytics.dashboard.views.fleet import PairSeen, pairs_of
from failback.analytics.dashboard.views.offset_health import lineage_document
from failback.analytics.dashboard.views.run_blocks import Draw, figure_json, figure_makers
from failback.analytics.errors import ReportInputError
from failback.analytics.live.facts import GroupTopic
from failback.analytics.web.tokens import OPERATE, READ
from failback.common.text import typed

Json = dict[str, Any]
_Body = TypeVar("_Body", bound=msgspec.Struct)
Figures = Mapping[str, tuple[str, Draw]]


@dataclass(slots=True)
class Shared:
    """One dashboard's parts."""

    settings: DashboardSettings
    access: Access
    hub: EventHub
    poller: Poller
    experiments: Experiments
    _figures: Cache = field(default_factory=lambda: Cache(8))
    _drawn: Cache = field(default_factory=lambda: Cache(128))

    @property
    def state(self) -> State:
        return self.poller.state

    def run(self, name: str) -> RunEntry:
        """A run by name. Raises ``DashboardProblem``."""
        found = self.state.run(name)
        if found is None:
            raise DashboardProblem("not-found", f"there is no run {name}")
        return found

    async def report(self, entry: RunEntry) -> Json:
        """Its report. Raises ``DashboardProblem`` when there is none."""
        try:
            found = await asyncio.to_thread(self.poller.index.report, entry)
        except (OSError, ValueError) as error:
            raise DashboardProblem("failed", f"report.json cannot be read: {error}") from error
        if found is None:
            raise DashboardProblem("no-report", f"{entry.run} is {entry.state}: {entry.next_step}")
        return found

    async def figures(self, entry: RunEntry) -> Figures:
        """The figures of its report by name."""
        report = await self.report(entry)

        def make() -> Figures:
            with readable(entry):
                return figure_makers(report, self.poller.index.points(entry))

        key = (entry.run, self.poller.index.report_tag(entry))
        return await asyncio.to_thread(self._figures.get, key, make)

    async def figure(self, entry: RunEntry, name: str, theme: str) -> bytes:
        """One figure as JSON, drawn once. Raises ``DashboardProblem``."""
        made = await self.figures(entry)
        if name not in made:
            raise DashboardProblem("not-found", f"{entry.run} has no figure {name}")
        key = (entry.run, self.poller.index.report_tag(entry), name, theme)
        draw = made[name][1]

        def make() -> bytes:
            with readable(entry):
                return figure_json(draw, theme)

        return await asyncio.to_thread(self._drawn.get, key, make)

    def pair(self, cluster: str, broker: str) -> PairSeen:
        """A pair by its broker name. Raises ``DashboardProblem``."""
        for each in self.state.clusters:
            for pair in pairs_of(each, self.state.seen):
                if (each.key, pair.broker_name) == (cluster, broker):
                    return pair
        raise DashboardProblem("not-found", f"there is no {broker} in a cluster {cluster}")

    async def lineage(self, cluster: str, broker: str, key: GroupTopic, qid: int) -> Json:
        """The copies of one offset; members are asked now. Raises ``DashboardProblem``."""
        pair = self.pair(cluster, broker)
        if not any(qid in each.offsets.get(key, {}) for each in pair.brokers):
            what = f"no broker of {broker} knows queue {qid} of {key.topic} for {key.group}"
            raise DashboardProblem("not-found", what)
        memory = await self.poller.memory_of(pair.cluster, broker, key.group)
        # Members were asked later than the queue: an offset beyond its old end may be right.
        pair = await self.poller.with_ends(pair, key.topic)
        state = self.state
        return lineage_document(pair, key, qid, memory, state.rates, state.at)


@contextmanager
def readable(*entries: RunEntry) -> Iterator[None]:
    """Reports of other versions lack what is looked for, and a file may be damaged.

    Raises ``DashboardProblem``.
    """
    try:
        yield
    except ReportInputError as error:
        raise DashboardProblem("failed", str(error)) from error
    except (LookupError, TypeError, AttributeError, ValueError, UndefinedError) as error:
        names = ", ".join(each.run for each in entries)
        advice = "; ".join(typed("failback", "report", each.path) for each in entries)
        what = f"the report of {names} is not of this version ({error!r}); make it again: {advice}"
        raise DashboardProblem("failed", what) from error


def shared_of(request: Request) -> Shared:
    found: Shared = request.app.state.shared
    return found


async def _reads(request: Request) -> Identity:
    """Return a user with the right to look. Raises ``DashboardProblem``."""
    shared = shared_of(request)
    identity = shared.access.require(request, READ)
    if request.method not in ("GET", "HEAD"):
        # Questions in bodies change nothing, but need not come from other sites either.
        shared.access.check_origin(request)
    return identity


async def _operates(request: Request) -> Identity:
    """Return a user with the right to start and abort, confirmed. Raises ``DashboardProblem``."""
    shared = shared_of(request)
    identity = shared.access.require(request, OPERATE)
    shared.access.check_csrf(request, identity, request.headers.get(CSRF_HEADER))
    return identity


async def _operates_by_form(request: Request) -> Identity:
    """The same; the CSRF token is a field of the form, which the route checks."""
    return shared_of(request).access.require(request, OPERATE)


Reader = Annotated[Identity, Depends(_reads)]
Operator = Annotated[Identity, Depends(_operates)]
FormOperator = Annotated[Identity, Depends(_operates_by_form)]
Parts = Annotated[Shared, Depends(shared_of)]


async def raw_body(request: Request) -> bytes:
    """The body, at most :data:`MAX_BODY_BYTES`. Raises ``DashboardProblem``."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise DashboardProblem("too-large", f"more than {MAX_BODY_BYTES} bytes")
    return bytes(data)


async def json_body(request: Request, model: type[_Body]) -> _Body:
    """The body as a value. Raises ``DashboardProblem``."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise DashboardProblem("unsupported-type", f"{kind or 'no type'!r}, not application/json")
    data = await raw_body(request)
    try:
        return msgspec.json.decode(data, type=model)
    except msgspec.ValidationError as error:
        raise DashboardProblem("bad-request", f"body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DashboardProblem("bad-body", str(error)) from error


def _listens(shared: Parts) -> Shared:
    """Refused before the stream begins, while there is still a status to say it by."""
    if shared.hub.is_full:
        what = f"{shared.hub.readers} streams are open"
        raise DashboardProblem("too-many", what, retry_after_seconds=60)
    return shared


Listener = Annotated[Shared, Depends(_listens)]
