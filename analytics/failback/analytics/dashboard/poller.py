"""The one poller: looks at clusters, runs and experiments once a second and says what changed.

Pages read :attr:`Poller.state`, an immutable picture that is replaced as a whole. Clusters, run
folders and live runs have a task each, so that a silent broker does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from failback.analytics.dashboard.clusters import ClusterRef, remember_members, unique
from failback.analytics.dashboard.events import EventHub
from failback.analytics.dashboard.experiments import Experiments
from failback.analytics.dashboard.fleet import Rates, cluster_document, user_keys
from failback.analytics.dashboard.live import LiveRun
from failback.analytics.dashboard.observe import BrokerSeen, GroupTopic, client_memory, look_at
from failback.analytics.dashboard.offset_health import ClientMemory, offset_rows
from failback.analytics.dashboard.runs import RunEntry, RunIndex
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources import (
    kubernetes_name_servers,
    local_clusters,
    named_clusters,
)
from failback.client.admin import AdminClient
from failback.client.connection import RemotingClient, RemotingSettings
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

BROKER_TIMEOUT_MS: Final = 2_000
RATE_SECONDS: Final = 30.0
_LOST_ROWS: Final = 500
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """Everything that was seen last."""

    at: float = 0.0
    clusters: tuple[ClusterRef, ...] = ()
    seen: dict[str, BrokerSeen] = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    runs: tuple[RunEntry, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def at_ns(self) -> int:
        """When the clusters were looked at, Unix time."""
        return round(self.at * 1e9)

    def run(self, name: str) -> RunEntry | None:
        return next((each for each in self.runs if each.run == name), None)

    def cluster_documents(self) -> list[Json]:
        return [cluster_document(each, self.seen, self.rates, self.at) for each in self.clusters]


class RateMeter:
    """Messages per second by key, over the last half minute of growing counts.

    A cluster whose timers are scaled commits as much more often: its window shrinks with them.
    """

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._points: dict[Any, deque[tuple[float, int]]] = {}
        self._windows: dict[Any, float] = {}

    def add(self, key: Any, at: float, count: int, time_scale: float = 1.0) -> None:
        window = self._windows[key] = self._seconds * time_scale
        points = self._points.setdefault(key, deque())
        if points and count < points[-1][1]:
            points.clear()  # it fell: a count from before says nothing
        points.append((at, count))
        while len(points) > 2 and points[1][0] <= at - window:
            points.popleft()

    def rates(self) -> dict[Any, float]:
        """Rates of what has been seen for at least a fifth of the window."""
        found = {}
        for key, points in self._points.items():
            span = points[-1][0] - points[0][0]
            if span >= self._windows[key] / 5 and span > 0:
                found[key] = round((points[-1][1] - points[0][1]) / span, 2)
        return found

    def keep(self, keys: set[Any]) -> None:
        self._points = {key: value for key, value in self._points.items() if key in keys}
        self._windows = {key: value for key, value in self._windows.items() if key in keys}


class Poller:
    """Runs until cancelled; see :meth:`run`."""

    def __init__(
        self, settings: DashboardSettings, hub: EventHub, experiments: Experiments
    ) -> None:
        self.settings = settings
        self.hub = hub
        self.experiments = experiments
        self.index = RunIndex(settings.runs)
        self.state = State()
        self.live: dict[str, LiveRun] = {}
        self.looks = 0
        self.last_look_seconds = 0.0
        self._client: RemotingClient | None = None
        self._known: dict[str, ClusterRef] = {}
        self._meter = RateMeter()
        self._told: dict[str, Any] = {}
        self._job_states: dict[str, str] = {}

    async def run(self) -> None:
        """Look again and again; a look that fails is logged and made again."""
        self._client = RemotingClient(settings=RemotingSettings(connect_timeout_ms=1000))
        try:
            async with asyncio.TaskGroup() as group:
                for look in (self.look_at_clusters, self.look_at_runs, self.look_at_live):
                    group.create_task(self._repeat(look), name=look.__name__)
        finally:
            await self._client.close()

    async def _repeat(self, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            began = time.monotonic()
            try:
                await look()
            except Exception:
                # The boundary of one look: the next one may succeed, and pages must go on.
                logger.exception("%s failed", look.__name__)
            spent = time.monotonic() - began
            await asyncio.sleep(max(self.settings.poll_seconds - spent, 0.2))

    # --- clusters ---------------------------------------------------------------------------------

    async def look_at_clusters(self) -> None:
        began = time.monotonic()
        clusters, problems = await self._find()
        members = list({each.address: each for ref in clusters for each in ref.members}.values())
        admin = self.admin()
        before = self.state.seen
        looked = await asyncio.gather(
            *(look_at(admin, member, before.get(member.address)) for member in members)
        )
        seen = {each.member.address: each for each in looked}
        self._measure(clusters, seen)
        self.state = replace(
            self.state,
            at=time.time(),
            clusters=tuple(clusters),
            seen=seen,
            rates=self._meter.rates(),
            problems=tuple(problems),
        )
        self.looks += 1
        self.last_look_seconds = time.monotonic() - began
        self._tell_clusters()

    def admin(self, namesrv: Sequence[str] = ()) -> AdminClient:
        return AdminClient(namesrv, client=self._client, timeout_ms=BROKER_TIMEOUT_MS)

    async def _find(self) -> tuple[list[ClusterRef], list[str]]:
        assert self._client is not None
        found = await asyncio.to_thread(local_clusters, self.settings)
        problems: list[str] = []
        asked: list[tuple[tuple[str, ...], str, list[str]]] = []
        if self.settings.namesrv:
            asked.append((self.settings.namesrv, "name server", []))
        if self.settings.kube_namespace:
            try:
                for where, notes in await asyncio.to_thread(kubernetes_name_servers, self.settings):
                    asked.append((where, "kubernetes", notes))
            except Exception as error:
                # Whatever the Kubernetes client raises: the page says it, and goes on without.
                problems.append(f"Kubernetes cannot be asked: {str(error).partition(chr(10))[0]}")
        for where, source, notes in asked:
            try:
                listed = await named_clusters(where, self._client, source)
            except (FailbackError, OSError) as error:
                problems.append(f"name server {';'.join(where)}: {error}")
                listed = [each for each in self._known.values() if each.namesrv == where]
            found += [replace(each, notes=tuple(notes)) for each in listed]
        found = [remember_members(self._known.get(each.key), each) for each in unique(found)]
        self._known = {each.key: each for each in found}
        return found, problems

    def _measure(self, clusters: Sequence[ClusterRef], seen: dict[str, BrokerSeen]) -> None:
        """Rates from what groups committed to whichever member of the pair knows more."""
        counts: dict[tuple[str, str, GroupTopic], tuple[float, int, float]] = {}
        for cluster in clusters:
            for pair in cluster.pairs:
                brokers = [
                    seen[each.address] for each in pair.members if seen[each.address].answered
                ]
                for key in user_keys([each.offsets for each in brokers]):
                    best: dict[int, int] = {}
                    for broker in brokers:
                        for queue, offset in broker.offsets.get(key, {}).items():
                            best[queue] = max(best.get(queue, 0), offset)
                    name = pair.members[0].broker_name
                    first = brokers[0]
                    counts[cluster.key, name, key] = (
                        first.at, sum(best.values()), first.time_scale,
                    )  # fmt: skip
        for place, (at, count, time_scale) in counts.items():
            self._meter.add(place, at, count, time_scale)
        self._meter.keep(set(counts))

    def _tell_clusters(self) -> None:
        state = self.state
        roles = {
            f"{each.member.name}@{each.member.address}": (
                each.broker_id,
                each.answered,
                each.member.state,
                each.boot_ms,
            )
            for each in state.seen.values()
        }
        if roles != self._told.get("roles"):
            self._told["roles"] = roles
            self.hub.publish("fleet", {"clusters": len(state.clusters)})
        rows = {
            f"{row['cluster']}/{row['group']}/{row['topic']}/{row['broker']}/{row['qid']}": [
                row[name] for name in ("master_memory", "master_file", "slave_table", "end")
            ]
            for row in offset_rows(state.clusters, state.seen)[:_LOST_ROWS]
        }
        before = self._told.get("rows", {})
        changed = {key: value for key, value in rows.items() if before.get(key) != value}
        if changed or len(rows) != len(before):
            self._told["rows"] = rows
            self.hub.publish("offsets", {"changed": changed})

    async def memory_of(self, cluster: ClusterRef, broker: str, group: str) -> ClientMemory:
        """Ask the members of a group where they stand, through any broker of the pair."""
        for pair in cluster.pairs:
            for member in pair.members:
                seen = self.state.seen.get(member.address)
                if member.broker_name == broker and seen is not None and seen.answered:
                    found = await client_memory(self.admin(), member.address, group)
                    if found:
                        return found
        return {}

    # --- runs -------------------------------------------------------------------------------------

    async def look_at_runs(self) -> None:
        found = await asyncio.to_thread(self.index.scan)
        before = {each.run: each for each in self.state.runs}
        self.state = replace(self.state, runs=tuple(found))
        for entry in found:
            known = before.get(entry.run)
            if known is None or known.state != entry.state:
                self.hub.publish("phase", {"state": entry.state}, entry.run)
            if entry.verdict is not None and (known is None or known.verdict != entry.verdict):
                verdict = {"verdict": entry.verdict, "sentence": entry.sentence}
                self.hub.publish("verdict", verdict, entry.run)
        await asyncio.to_thread(self.experiments.live)
        for name in self.experiments.scenarios:
            job = self.experiments.job(name)
            state = f"{job.number} {job.state}" if job else ""
            if state != self._job_states.get(name, ""):
                self._job_states[name] = state
                self.hub.publish("experiment", {"name": name, "state": job.state if job else ""})

    async def look_at_live(self) -> None:
        running = {each.run: each for each in self.state.runs if each.state == "running"}
        for name, entry in running.items():
            if name not in self.live:
                try:
                    self.live[name] = await asyncio.to_thread(LiveRun.open, name, entry.path)
                except (OSError, ValueError, KeyError):
                    continue
        for name in [name for name in self.live if name not in running]:
            last = await asyncio.to_thread(self.live[name].look, time.time_ns())
            for kind, data in last:
                if kind != "counters":
                    self.hub.publish(kind, data, name)
            del self.live[name]
        for name, live in self.live.items():
            for kind, data in await asyncio.to_thread(live.look, time.time_ns()):
                self.hub.publish(kind, data, name)
