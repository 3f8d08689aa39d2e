"""The one poller: looks at clusters, runs and experiments again and again and publishes changes.

Pages read :attr:`Poller.state`, an immutable picture that is replaced as a whole. Clusters, run
folders and live runs have a task each, so that a silent broker does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from failback.analytics.dashboard.events import EventHub
from failback.analytics.dashboard.experiments import Experiments
from failback.analytics.dashboard.live_history import LiveHistory
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.brokers import BrokerSeen, look_at
from failback.analytics.dashboard.sources.clusters import (
    LOCAL,
    NAME_SERVER,
    BrokerTable,
    ClusterRef,
    clusters_of_table,
    local_clusters,
    registered,
    remember_members,
    unique,
    with_known,
)
from failback.analytics.dashboard.sources.kube_clusters import KubeReader, KubeView, with_registered
from failback.analytics.dashboard.sources.live_run import LiveRun
from failback.analytics.dashboard.sources.observed_run import ObservedRun
from failback.analytics.dashboard.sources.runs import RunEntry, RunIndex
from failback.analytics.dashboard.sources.stakes import Stakes, StakesFound
from failback.analytics.dashboard.views.fleet import (
    PairSeen,
    Rates,
    cluster_document,
    committed,
    pairs_of,
)
from failback.analytics.dashboard.views.offset_health import (
    ClientMemory,
    offset_rows,
    rows_about,
    warnings,
)
from failback.analytics.live.facts import GroupTopic
from failback.analytics.live.rates import RateMeter
from failback.client.admin.admin import AdminClient
from failback.client.admin.survey import BrokerSurvey, client_memory
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.common.text import typed
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

BROKER_TIMEOUT_MS: Final = 2_000
CALM: Final = 3
"""While all brokers answer they are asked so many times less often, but for a local runtime."""
RESOURCE_SECONDS: Final = 2.0
"""Custom resources change slowly, and their API server has other clients."""
_TOLD_ROWS: Final = 500
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """The last look at everything."""

    at: float = 0.0
    clusters: tuple[ClusterRef, ...] = ()
    seen: dict[str, BrokerSeen] = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    runs: tuple[RunEntry, ...] = ()
    problems: tuple[str, ...] = ()
    stakes: StakesFound = field(default_factory=dict)
    """What was overwritten, by pair."""
    made: dict[str, list[Json]] = field(default_factory=dict)
    """Answers made for pages since the last look at the clusters, shared by all readers."""

    @property
    def at_ns(self) -> int:
        """Unix time of the look at the clusters."""
        return round(self.at * 1e9)

    def run(self, name: str) -> RunEntry | None:
        return next((each for each in self.runs if each.run == name), None)

    @property
    def is_calm(self) -> bool:
        """Whether every broker answers and no offset is at stake, on clusters of others only."""
        is_others = all(each.source != LOCAL for each in self.clusters)
        is_whole = all(each.answered for each in self.seen.values())
        return bool(self.seen) and is_others and is_whole and not self.warnings()

    def cluster_documents(self) -> list[Json]:
        return self._once("clusters", lambda: [
            cluster_document(each, self.seen, self.rates, self.at, self.stakes)
            for each in self.clusters
        ])  # fmt: skip

    def offset_rows(self, group: str = "", topic: str = "") -> list[Json]:
        """One row per queue, the most urgent first."""
        rows = self._once("rows", lambda: offset_rows(self.clusters, self.seen))
        return rows_about(rows, group, topic)

    def warnings(self) -> list[Json]:
        """Pairs whose slave has the better table, or had it."""
        return self._once(
            "warnings", lambda: warnings(self.clusters, self.seen, self.at, self.stakes)
        )

    def _once(self, name: str, make: Callable[[], list[Json]]) -> list[Json]:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]


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
        self.live: dict[str, LiveRun | ObservedRun] = {}
        self.looks = 0
        self.last_look_seconds = 0.0
        self._client: RemotingClient | None = None
        self._named: RemotingClient | None = None
        """Of clusters of the settings' name servers, which may be guarded."""
        self._kube = KubeReader(settings)
        self._kube_view = KubeView()
        self._known: dict[str, ClusterRef] = {}
        self.history = LiveHistory()
        self.stakes = Stakes(settings.runs / ".dashboard")
        self._meters: dict[tuple[str, str], RateMeter[GroupTopic]] = {}
        self._told: dict[str, Any] = {}
        self._job_states: dict[str, str] = {}
        self._has_gone = asyncio.Event()

    async def run(self) -> None:
        """Look again and again; a look that fails is logged and made again."""
        settings, access = RemotingSettings(connect_timeout_ms=1000), self.settings.access
        self._client = self._named = RemotingClient(settings=settings, on_close=self._closed)
        if access is not None:
            settings = replace(settings, access=access)
            self._named = RemotingClient(settings=settings, on_close=self._closed)
        try:
            async with asyncio.TaskGroup() as group:
                seconds = self.settings.poll_seconds
                looks = {
                    self.look_at_clusters: lambda: seconds * (CALM if self.state.is_calm else 1),
                    self.look_at_runs: lambda: seconds,
                    self.look_at_live: lambda: seconds,
                }
                if self.settings.kube_namespaces:
                    looks[self.look_at_resources] = lambda: max(seconds, RESOURCE_SECONDS)
                for look, every in looks.items():
                    group.create_task(self._repeat(look, every), name=look.__name__)
        finally:
            await self._client.close()
            await self._named.close()
            self._kube.close()

    async def _repeat(
        self, look: Callable[[], Coroutine[Any, Any, None]], seconds: Callable[[], float]
    ) -> None:
        while True:
            began = time.monotonic()
            try:
                await look()
            except Exception:
                # The boundary of one look: the next one may succeed, and pages must go on.
                logger.exception("%s failed", look.__name__)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(seconds() - (time.monotonic() - began), 0.2)):
                    await self._next(look)

    async def _next(self, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Return when a look is due early: at calm clusters, when a connection has ended."""
        if look == self.look_at_clusters and self.state.is_calm:
            self._has_gone.clear()
            await self._has_gone.wait()
        else:
            await asyncio.Event().wait()

    def _closed(self, addr: str, why: str) -> None:
        """Look at once when a broker ends its connection: most that do have died."""
        self._has_gone.set()

    # --- clusters ---------------------------------------------------------------------------------

    async def look_at_resources(self) -> None:
        """Read the custom resources; a silent API server does not hold up the brokers' looks."""
        self._kube_view = await asyncio.to_thread(self._kube.look)

    async def look_at_clusters(self) -> None:
        began = time.monotonic()
        clusters, problems = await self._find()
        members = {each.address: (ref, each) for ref in clusters for each in ref.members}
        before = self.state.seen
        seen: dict[str, BrokerSeen] = {}
        # Slaves first: one that copies meanwhile must not seem to be ahead of its master.
        for is_master in (False, True):
            looked = await asyncio.gather(
                *(
                    look_at(self.admin(ref), member, before.get(address))
                    for address, (ref, member) in members.items()
                    if (member.broker_id == 0) is is_master
                )
            )
            seen |= {each.member.address: each for each in looked}
        self._measure(clusters, seen)
        self._keep(clusters, seen)
        self.state = replace(
            self.state,
            at=time.time(),
            clusters=tuple(clusters),
            seen=seen,
            rates={pair: each.per_second for pair, each in self._meters.items()},
            problems=tuple(problems),
            stakes=dict(self.stakes.found),
            made={},
        )
        self.history.note(self.state.at, self.state.cluster_documents())
        self.looks += 1
        self.last_look_seconds = time.monotonic() - began
        self._tell_clusters()

    def admin(self, cluster: ClusterRef) -> AdminClient:
        """Return the admin client of a cluster."""
        client = self._named if cluster.source == NAME_SERVER else self._client
        return AdminClient(client=client, timeout_ms=BROKER_TIMEOUT_MS)

    async def _find(self) -> tuple[list[ClusterRef], list[str]]:
        found = await asyncio.to_thread(local_clusters, self.settings)
        view, own = self._kube_view, self.settings.namesrv
        wheres = list(dict.fromkeys(
            where for where in (own, *(each.namesrv for each in view.clusters)) if where
        ))  # fmt: skip
        tables = dict(zip(wheres, await asyncio.gather(*map(self._table, wheres)), strict=True))
        problems = list(view.problems)
        problems += [problem for _, problem in tables.values() if problem]
        if own:
            table, problem = tables[own]
            known = [each for each in self._known.values() if each.source == NAME_SERVER]
            found += (
                known if problem else with_known(clusters_of_table(table, NAME_SERVER, own), known)
            )
        for cluster in view.clusters:
            found.append(with_registered(cluster, tables.get(cluster.namesrv, ({}, ""))[0]))
        found = [remember_members(self._known.get(each.key), each) for each in unique(found)]
        self._known = {each.key: each for each in found}
        return found, problems

    async def _table(self, where: tuple[str, ...]) -> tuple[BrokerTable, str]:
        """What name servers list; or nothing, and why."""
        client = self._named if where == self.settings.namesrv else self._client
        assert client is not None
        try:
            return await registered(where, client), ""
        except (FailbackError, OSError) as error:
            asked = ";".join(where)
            check = typed("failback", "doctor", "-n", asked)
            return {}, f"name server {asked} does not answer: {error}. Check it with: {check}"

    def _measure(self, clusters: Sequence[ClusterRef], seen: dict[str, BrokerSeen]) -> None:
        """Rates from what groups committed to whichever member of the pair knows more."""
        meters = {}
        for cluster in clusters:
            for pair in pairs_of(cluster, seen):
                place = cluster.key, pair.broker_name
                meters[place] = meter = self._meters.get(place) or RateMeter()
                brokers = [each for each in pair.brokers if each.answered]
                if brokers:
                    meter.look(brokers[0].at, committed(brokers), brokers[0].time_scale)
        self._meters = meters

    def _keep(self, clusters: Sequence[ClusterRef], seen: dict[str, BrokerSeen]) -> None:
        """Put what each pair had before its master's last start beside its brokers."""
        for cluster in clusters:
            for pair in pairs_of(cluster, seen):
                facts = replace(pair.tables, at=time.time())
                before = self.stakes.look((cluster.key, pair.broker_name), facts)
                for each in pair.brokers:
                    seen[each.member.address] = replace(each, before=before)

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
            self.hub.publish("fleet")
        rows = [
            [row[name] for name in ("group", "master_memory", "master_file", "slave_table", "end")]
            for row in state.offset_rows()[:_TOLD_ROWS]
        ]
        if rows != self._told.get("rows"):
            self._told["rows"] = rows
            self.hub.publish("offsets")

    async def with_ends(self, pair: PairSeen, topic: str) -> PairSeen:
        """Return a pair with the queues of a topic as its brokers have them now."""
        brokers = []
        for each in pair.brokers:
            if each.answered:
                asked = BrokerSurvey(self.admin(pair.cluster), each.member.address)
                queues = await asked.queues([topic])
                ends, begins = {**each.ends, **queues.ends}, {**each.begins, **queues.begins}
                each = replace(each, ends=ends, begins=begins)
            brokers.append(each)
        return replace(pair, brokers=tuple(brokers))

    async def memory_of(self, cluster: ClusterRef, broker: str, group: str) -> ClientMemory:
        """Ask the members of a group for their positions, through any broker of the pair."""
        for pair in cluster.pairs:
            for member in pair.members:
                seen = self.state.seen.get(member.address)
                if member.broker_name == broker and seen is not None and seen.answered:
                    found = await client_memory(self.admin(cluster), member.address, group)
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
                self.hub.publish("phase", entry.run)
            if entry.verdict is not None and (known is None or known.verdict != entry.verdict):
                self.hub.publish("verdict", entry.run)
        await asyncio.to_thread(self.experiments.live)
        for name in self.experiments.scenarios:
            job = self.experiments.job(name)
            state = f"{job.number} {job.state}" if job else ""
            if state != self._job_states.get(name, ""):
                self._job_states[name] = state
                self.hub.publish("experiment")

    async def look_at_live(self) -> None:
        running = {each.run: each for each in self.state.runs if each.state == "running"}
        for name, entry in running.items():
            if name not in self.live:
                try:
                    self.live[name] = await asyncio.to_thread(opened, entry)
                except (OSError, ValueError, KeyError, TypeError, AttributeError):
                    continue  # no run.json, or one that says otherwise than the harness
        for name in [name for name in self.live if name not in running]:
            last = await asyncio.to_thread(self.live[name].look, time.time_ns())
            for kind in last - {"counters"}:
                self.hub.publish(kind, name)
            del self.live[name]
        for name, live in self.live.items():
            for kind in await asyncio.to_thread(live.look, time.time_ns()):
                self.hub.publish(kind, name)


def opened(entry: RunEntry) -> LiveRun | ObservedRun:
    """Begin to read a run that goes on. Raises what a missing or wrong run.json raises."""
    kind = ObservedRun if entry.is_observed else LiveRun
    return kind.open(entry.run, entry.path)
