"""Questions to brokers and name servers: what is due is asked, the newest answers are kept.

A slave is read before its master, so that a lag is never under-stated. Everything here may be lost
at any time; it is asked again. A peer that does not answer within the limit is unknown and is asked
nothing else in that round. It is asked again after pauses that grow, or at once when a sign says
that it may answer.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from failback.carry.merge import Table
from failback.carry.online import Seen, look_at
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.common.numbers import signed
from failback.operator.brokers.backlogs import Backlogs
from failback.operator.brokers.http_answers import read_bounded
from failback.operator.brokers.questions import Questions
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Broker, Carried, Route
from failback.protocol.calls import parse_properties
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.errors import BrokerError
from failback.protocol.route import DataVersion

logger = logging.getLogger(__name__)

_ROUTE_SECONDS: Final = 5.0
_STATE_SECONDS: Final = 10.0
_TABLE_SECONDS: Final = 30.0
_FAST_SECONDS: Final = 2.0
_SILENT_SECONDS: Final = (10.0, 20.0, 30.0)
"""Until a broker is asked again that gave no answer once, twice, more often."""
_KEPT_OFFSETS: Final = 8
_FORGET_SECONDS: Final = 60.0
_UNUSED_SECONDS: Final = 130.0
"""Two rounds of passes, and how late one may be; of longer rounds it is more."""
_ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
_MOST_METRICS_BYTES: Final = 4 * 1024**2
_MOST_TABLE: Final = 4 * 1024**2
"""Bytes of an answer of a broker: offsets of some 40,000 groups and topics."""
_MOST_ROUTES: Final = 256 * 1024
"""Bytes of an answer of a name server: some 2,500 brokers."""
_MOST_ROUTES_IN_ALL: Final = 2 * 1024**2
_MOST_GAUGES: Final = 1000
_MOST_CARRY_BYTES: Final = 64 * 1024
_CARRIED: Final = msgspec.json.Decoder(Carried)
_GAUGE: Final = re.compile(
    rb"^(rocketmq_slave_[a-z_]+|failback_tls_certificate_not_after_timestamp_seconds)"
    rb"(?:\{[^}\n]*\})? (\S+)",
    re.MULTILINE,
)
_NO_STATE: Final[Mapping[str, Any]] = dict.fromkeys(
    ("config", "config_version", "runtime", "end", "end_at", "start", "metrics")
)
_NO_TABLES: Final[Mapping[str, Any]] = dict.fromkeys(
    ("topics", "groups", "offsets", "offsets_at", "offsets_before")
)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Target:
    """One broker to ask."""

    address: str
    """Where this very pod answers."""
    incarnation: str
    """uid of its pod: another pod shares nothing with it."""
    is_master: bool
    sync_seconds: float = 10.0
    """How often a slave of this engine copies its master's tables."""
    http: str = ""
    """``http://host:port`` of its metrics; empty for engine apache."""
    carry: str = ""
    """The same of the sidecar that gives it offsets before it starts; empty without one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the broker that is meant says of itself (26): a stranger may have got its address."""
    signs: object = None
    """What changes when a silent broker may answer: its pod's state, its registrations."""


@dataclass(slots=True)
class _Known:
    """What is known of one broker."""

    broker: Broker
    incarnation: str
    due: dict[str, float] = field(default_factory=dict)
    stranger: bool = False
    """Another broker answers at this address."""
    silences: int = 0
    """How often in a row it did not answer."""
    signs: object = None
    """Those of the target when it was asked last."""
    read_at: float = 0.0
    """Time of the clock when a pass read it last."""
    history: deque[tuple[float, Mapping[str, Mapping[int, int]]]] = field(
        default_factory=lambda: deque(maxlen=_KEPT_OFFSETS)
    )


def _size(route: Route) -> int:
    """Return how many bytes the names and addresses of a route have."""
    brokers = route.brokers or {}
    return sum(
        len(name) + sum(map(len, addresses.values())) + 64 * (1 + len(addresses))
        for name, addresses in brokers.items()
    )


class Peers:
    """The answers of all brokers and name servers that any resource asks for."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        timeout_seconds: float = 2.0,
        scale: float = 1.0,
        clock: Callable[[], float] = time.time,
        resync_seconds: float = 60.0,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._scale = scale
        self._unused_seconds = max(_UNUSED_SECONDS, 2.2 * resync_seconds)
        self._clock = clock
        # A frame takes twenty times its bytes once it is decoded; the pod has 256 MiB.
        self._remoting = RemotingClient(settings=RemotingSettings(max_frame_bytes=_MOST_TABLE))
        self._named = RemotingClient(settings=RemotingSettings(max_frame_bytes=_MOST_ROUTES))
        self._admin = AdminClient(client=self._remoting, timeout_ms=timeout_seconds * 1000)
        self._http: aiohttp.ClientSession | None = None
        self._questions = Questions(metrics, timeout_seconds)
        self._ask = self._questions.ask
        self.backlogs = Backlogs(self._questions, self._admin)
        self._brokers: dict[str, _Known] = {}
        self._routes: dict[str, Route] = {}
        self._left_out: set[str] = set()
        """Name servers whose lists were too long for all of them together, each told once."""
        self._route_due: dict[str, float] = {}
        self._forget_at = 0.0
        self._asking: dict[str, asyncio.Task[None]] = {}

    @property
    def admin(self) -> AdminClient:
        """The connections, for orders: see :meth:`tell`."""
        return self._admin

    async def close(self) -> None:
        """Close all connections."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        await asyncio.gather(self._remoting.close(), self._named.close())

    # --- orders -------------------------------------------------------------------------

    async def tell(self, code: int, address: str, order: Awaitable[Value]) -> Value:
        """Send an order to a peer; everything of that broker is asked again afterwards."""
        try:
            return await self._questions.order(code, order)
        finally:
            known = self._brokers.get(address)
            if known is not None:
                known.due.clear()

    async def look_at(self, address: str, kept: Table) -> Seen:
        """Ask a master what giving it ``kept`` needs to know."""
        order = self._questions.order
        return await look_at(
            self._admin, address, kept, tell=lambda code, _, asked: order(code, asked)
        )

    def ask_soon(self, address: str) -> None:
        """Have a broker asked for its tables with the next look at its pair."""
        if known := self._brokers.get(address):
            known.due.pop("tables", None)

    # --- name servers -------------------------------------------------------------------------

    async def refresh_routes(self, addresses: Sequence[str], *, fast: bool) -> None:
        """Ask those name servers that are due; several resources share one question."""
        for address in addresses:
            if address not in self._asking and self.is_route_due(address, fast=fast):
                task = asyncio.create_task(self._ask_route(address))
                self._asking[address] = task
                task.add_done_callback(functools.partial(self._asked, address))
        waiting = [self._asking[address] for address in addresses if address in self._asking]
        if waiting:
            await asyncio.wait(waiting)
        self.forget_unused()

    def use(self, address: str, access: ClusterAccess | None, name: str) -> None:
        """Ask a broker or name server so from now on.

        Args:
            access: ``None``: unsigned and without TLS.
            name: What its certificate is for.
        """
        for client in (self._remoting, self._named):
            if access is None:
                client.accesses.pop(address, None)
                client.names.pop(address, None)
            else:
                client.accesses[address], client.names[address] = access, name

    def is_route_due(self, address: str, *, fast: bool) -> bool:
        """Tell whether a name server is to be asked now, or is just being asked."""
        period = (_FAST_SECONDS if fast else _ROUTE_SECONDS) * self._scale
        asked = self._route_due.get(address)
        return address in self._asking or asked is None or self._clock() >= asked + period * 0.9

    def _asked(self, address: str, _: asyncio.Task[None]) -> None:
        self._asking.pop(address, None)

    async def _ask_route(self, address: str) -> None:
        admin = AdminClient([address], client=self._named, timeout_ms=self._timeout_seconds * 1000)
        info = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, address, admin.cluster_info())
        brokers = None
        if info is not None:
            brokers = {
                name: dict(data.broker_addrs) for name, data in info.broker_addr_table.items()
            }
        self._routes[address] = Route(address, brokers, problem=self._questions.problem(address))
        self._keep_within_bound()
        self._route_due[address] = self._clock()

    def _keep_within_bound(self) -> None:
        """Forget the longest lists of brokers: those of name servers that others need are short."""
        sizes = {address: _size(route) for address, route in self._routes.items()}
        while sum(sizes.values()) > _MOST_ROUTES_IN_ALL:
            longest = max(sizes, key=lambda each: sizes[each])
            del sizes[longest]
            self._routes[longest] = Route(longest, problem=f"the list of {longest} is too long")
            if longest not in self._left_out:
                self._left_out.add(longest)
                logger.warning("name server %s is left out: its list of brokers is long", longest)

    def route(self, address: str) -> Route:
        """Return what a name server said last."""
        return self._routes.get(address, Route(address))

    def forget_unused(self) -> None:
        """Drop, once a minute, what two rounds of passes have not read: those pods are gone."""
        if self._clock() < self._forget_at:
            return
        self._forget_at = self._clock() + _FORGET_SECONDS
        kept = self._clock() - self._unused_seconds
        for address in [each for each, known in self._brokers.items() if known.read_at < kept]:
            del self._brokers[address]
            self._questions.forget(address)
            self.use(address, None, "")
        for address in [each for each, asked in self._route_due.items() if asked < kept]:
            del self._route_due[address]
            self._routes.pop(address, None)
            self._questions.forget(address)
            self.use(address, None, "")

    async def permissions(self, address: str, topics: Mapping[str, str]) -> dict[str, int] | None:
        """Return broker name → lowest permission (105) of its topic; ``None`` if unknown.

        Args:
            topics: Broker name → the topic to look at.
        """
        admin = AdminClient([address], client=self._named, timeout_ms=self._timeout_seconds * 1000)
        found: dict[str, int] = {}
        for name, topic in topics.items():
            route = await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, address, admin.route(topic))
            if route is None:
                continue
            perms = [data.perm for data in route.queue_datas if data.broker_name == name]
            if perms:
                found[name] = min(perms)
        return found or None

    async def order_config(self, address: str) -> dict[str, str] | None:
        """Return topic → queues of order topics at a name server (219)."""

        async def table() -> dict[str, str]:
            try:
                return await self._admin.kv_list(address, _ORDER_NAMESPACE)
            except BrokerError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    return {}
                raise

        return await self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, address, table())

    # --- brokers ------------------------------------------------------------------------------

    def broker(self, target: Target) -> Broker:
        """Return what is known of a broker."""
        return self._known(target).broker

    def _known(self, target: Target) -> _Known:
        known = self._brokers.get(target.address)
        if known is None or known.incarnation != target.incarnation:
            known = _Known(Broker(target.address), target.incarnation)
            self._brokers[target.address] = known
        known.read_at = self._clock()
        return known

    async def refresh_pair(self, targets: Sequence[Target], *, fast: bool) -> None:
        """Ask the members of one pair what is due: slaves first, masters last."""
        slaves = [target for target in targets if not target.is_master]
        masters = [target for target in targets if target.is_master]
        before = {target.address: self.broker(target) for target in slaves}
        awaited = self._awaited(targets)
        for group in (slaves, masters):
            await asyncio.gather(
                *(self._refresh(target, fast, awaited=target in awaited) for target in group)
            )
        if any(self.broker(target).config is not None for target in awaited):
            # A master that comes back may know less than its slave, which will copy it soon.
            for group in (slaves, masters):
                await asyncio.gather(*map(self._read_known_tables, group))
        if masters:
            end = self.broker(masters[0]).end
            for target in slaves:
                self._note_stall(target, before[target.address], end)

    def _note_stall(self, target: Target, before: Broker, master_end: int | None) -> None:
        known = self._known(target)
        slave = known.broker
        behind = slave.end is not None and master_end is not None and slave.end < master_end
        since = None
        if behind and before.end == slave.end:
            since = before.stalled_since if before.stalled_since is not None else self._clock()
        if slave.stalled_since != since:
            known.broker = replace(slave, stalled_since=since)

    async def _refresh(self, target: Target, fast: bool, *, awaited: bool = False) -> None:
        known = self._known(target)
        due = self._due(target, known, fast=fast, awaited=awaited)
        if "state" in due:
            known.due["state"] = self._clock()
            await self._read_state(target, known)
        if "tables" in due and not known.stranger:
            known.due["tables"] = self._clock()
            if known.silences:
                known.broker = replace(known.broker, **_NO_TABLES)
            else:
                await self._read_tables(target, known)
        problem = self._questions.problem(target.address)
        if known.stranger:  # nothing it says is about the broker that is meant
            known.broker = Broker(target.address, problem=f"{target.address} is another broker")
        elif known.broker.problem != problem:
            known.broker = replace(known.broker, problem=problem)

    async def _read_known_tables(self, target: Target) -> None:
        known = self._known(target)
        if known.broker.config is not None:
            known.due["tables"] = self._clock()
            await self._read_tables(target, known)

    def is_due(self, targets: Sequence[Target], *, fast: bool) -> bool:
        """Tell whether :meth:`refresh_pair` would ask any of a pair's members anything."""
        awaited = self._awaited(targets)
        return any(
            self._due(target, self._known(target), fast=fast, awaited=target in awaited)
            for target in targets
        )

    def _awaited(self, targets: Sequence[Target]) -> list[Target]:
        """Return the silent masters of slaves that are known."""
        slaves_known = any(
            self.broker(target).offsets is not None for target in targets if not target.is_master
        )
        return [
            target
            for target in targets
            if target.is_master and slaves_known and self.broker(target).config is None
        ]

    def _due(self, target: Target, known: _Known, *, fast: bool, awaited: bool) -> list[str]:
        """Return which parts of the answers of a broker are to be asked for now."""
        state = _FAST_SECONDS if fast or awaited else _STATE_SECONDS
        if known.silences and not (fast or awaited):
            pauses = (0.0,) if known.signs != target.signs else _SILENT_SECONDS
            state = pauses[min(known.silences, len(pauses)) - 1]
        periods = {"state": state, "tables": _FAST_SECONDS if fast else _TABLE_SECONDS}
        now = self._clock()
        return [
            part
            for part, period in periods.items()
            if part not in known.due or now >= known.due[part] + period * self._scale * 0.9
        ]

    async def _read_state(self, target: Target, known: _Known) -> None:
        was_silent, known.signs = known.silences > 0, target.signs
        await self._read_config(target, known)
        if was_silent and not known.silences:
            known.due.pop("tables", None)
        if known.silences:
            known.broker = replace(known.broker, **_NO_STATE)
        elif not known.stranger:
            await self._read_runtime(target, known)
            if target.http:
                metrics = await self._get(f"{target.http}/metrics", _MOST_METRICS_BYTES, gauges_of)
                known.broker = replace(known.broker, metrics=metrics)
            if target.carry:
                url = f"{target.carry}/carry"
                carried = await self._get(url, _MOST_CARRY_BYTES, _CARRIED.decode)
                known.broker = replace(known.broker, carried=carried or known.broker.carried)

    async def _read_config(self, target: Target, known: _Known) -> None:
        code = RequestCode.GET_BROKER_CONFIG
        answer = await self._ask(code, target.address, self._admin.ask(target.address, code))
        known.silences = known.silences + 1 if answer is None else 0
        if answer is None:
            known.broker = replace(known.broker, config=None, config_version=None)
            return
        version = None
        text = (answer.ext_fields or {}).get("version")
        if text:
            version = DataVersion.from_json(text.encode()).counter
        config = parse_properties(answer.body)
        known.stranger = any(config.get(key) != name for key, name in target.names.items())
        if known.stranger:
            logger.warning("%s is a broker of somebody else: %s", target.address, target.names)
            known.broker = Broker(target.address)
            return
        known.broker = replace(known.broker, config=config, config_version=version)

    async def _read_runtime(self, target: Target, known: _Known) -> None:
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        runtime = await self._ask(code, target.address, self._admin.runtime_info(target.address))
        end = _integer(runtime, "commitLogMaxOffset")
        changed_at = known.broker.end_changed_at
        if end is not None and end != known.broker.end:
            changed_at = self._clock()
        known.broker = replace(
            known.broker,
            runtime=runtime,
            end=end,
            end_at=None if end is None else self._clock(),
            end_changed_at=changed_at,
            start=_integer(runtime, "commitLogMinOffset"),
        )

    async def _read_tables(self, target: Target, known: _Known) -> None:
        admin, address = self._admin, target.address
        topics = await self._ask(
            RequestCode.GET_ALL_TOPIC_CONFIG, address, admin.all_topic_config(address)
        )
        groups = await self._ask(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, address, admin.all_groups(address)
        )
        offsets = await self._ask(
            RequestCode.GET_ALL_CONSUMER_OFFSET, address, admin.all_offsets(address)
        )
        now = self._clock()
        earlier = None
        if offsets is not None:
            old = [item for item in known.history if item[0] <= now - 3 * target.sync_seconds]
            earlier = old[-1][1] if old else None
            known.history.append((now, offsets))
        known.broker = replace(
            known.broker,
            topics=_builtins(topics.topic_config_table) if topics is not None else None,
            groups=_builtins(groups.subscription_group_table) if groups is not None else None,
            offsets=offsets,
            offsets_at=now if offsets is not None else None,
            offsets_before=earlier,
        )

    async def _get(
        self, url: str, most_bytes: int, decode: Callable[[bytes], Value]
    ) -> Value | None:
        """Return an answer of a pod over HTTP; ``None`` without one that can be read."""
        if self._http is None:
            self._http = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout_seconds)
            )
        try:
            async with self._questions.turn(), self._http.get(url) as answer:
                if answer.status == 200:
                    return decode(await read_bounded(answer, most_bytes))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            pass
        return None


def gauges_of(text: bytes) -> dict[str, float]:
    """Return what a broker's ``/metrics`` says of its slaves.

    Raises:
        ValueError: A value is no number.
    """
    found = itertools.islice(_GAUGE.finditer(text), _MOST_GAUGES)
    return {match[1].decode(): float(match[2]) for match in found}


def _integer(table: Mapping[str, str] | None, key: str) -> int | None:
    return signed((table or {}).get(key))


def _builtins(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: msgspec.to_builtins(value) for name, value in table.items()}
