"""One round of questions to name servers and brokers.

A broker that does not answer is part of the result; a part of an answer that is missing is too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from failback.analytics.exporter.details import Details
from failback.analytics.live.facts import BROADCASTING
from failback.client.admin.admin import AdminClient
from failback.client.admin.queue_offsets import Table
from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.guarded.signing import is_refusal
from failback.common.numbers import whole_or_0
from failback.protocol.clients import ConsumerConnection
from failback.protocol.errors import BrokerError, FailbackError
from failback.protocol.message import DLQ_PREFIX
from failback.protocol.route import MessageQueue, split_offset_key
from failback.protocol.stats import ConsumeStatus, TopicOffset

logger = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Requests under way at a time."""
CLIENTS: Final = 200
"""Members that are asked for their own figures, at most."""
Answer = TypeVar("Answer")
Ends = Mapping[str, Mapping[int, int]]
"""Topic to queue id to the offset of the next message."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What one consumer says of one topic."""

    group: str
    topic: str
    client_id: str
    client_addr: str
    status: ConsumeStatus


@dataclass(frozen=True, slots=True)
class BrokerAnswers:
    """What one broker said; empty where it did not."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    up: bool = False
    runtime: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    offsets: Table | None = None
    ends: Ends = field(default_factory=dict)
    """Only of the member that acts for its pair: the one with the least id that answers."""
    groups: Mapping[str, ConsumerConnection] = field(default_factory=dict)
    members: Sequence[MemberStatus] = ()
    producers: Mapping[str, int] | None = None
    """Producer group to how many it has; ``None`` where the broker does not tell."""
    latencies_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(topic, group) to how long its oldest message waits; of those that are behind."""
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(name, key) of a broker's own counters to their rate per second over the last minute."""
    begins: Ends = field(default_factory=dict)
    """The first offsets of the queues of ``ends``."""
    settings: frozenset[str] | None = None
    """Groups that it has settings of; ``None`` where it does not tell."""
    topics: frozenset[str] | None = None
    """Topics that it has; ``None`` where it does not tell."""

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def node(self) -> tuple[str, str, str]:
        """Values of the labels that name a broker."""
        kind = "master" if self.is_master else "slave"
        return self.cluster, kind, f"{self.broker}-{self.broker_id}"

    @property
    def broadcasting(self) -> frozenset[str]:
        """Groups whose members keep their own offsets, of those that have any member."""
        return frozenset(
            group for group, each in self.groups.items() if each.message_model == BROADCASTING
        )

    @property
    def boot_ms(self) -> int:
        return whole_or_0(self.runtime.get("bootTimestamp"))


@dataclass(frozen=True, slots=True)
class Survey:
    """All answers of a round. ``at`` is monotonic, ``wall`` Unix time, both at its end."""

    at: float
    wall: float
    seconds: float
    name_servers: Mapping[str, bool]
    brokers: Sequence[BrokerAnswers]


def _standing(broker: BrokerAnswers) -> Table:
    """The offsets that stand for what groups have consumed."""
    broadcasting = broker.broadcasting
    return {
        key: queues
        for key, queues in (broker.offsets or {}).items()
        if split_offset_key(key)[1] not in broadcasting
    }


async def _nobody() -> list[MemberStatus]:
    return []


class Surveyor:
    """Asks; remembers nothing but its connections and what it has complained about."""

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        client: RemotingClient,
        timeout_ms: float = 3000,
        clients: bool = True,
    ) -> None:
        """``clients``: ask consumers for their own rates too, through their brokers."""
        self._name_servers = tuple(name_servers)
        self._admin = AdminClient(name_servers, client=client, timeout_ms=timeout_ms)
        self._apart = {
            address: AdminClient([address], client=client, timeout_ms=timeout_ms)
            for address in name_servers
        }
        self._clients = clients
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._silent: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._told: set[str] = set()

    async def survey(self) -> Survey:
        """Ask everybody; brokers that nobody lists are not known."""
        began = time.monotonic()
        listings = await asyncio.gather(*map(self._listed, self._apart.values()))
        self._complain(dict(zip(self._apart, (each is not None for each in listings), strict=True)))
        found: dict[tuple[str, str, int], str] = {}
        for listing in listings:
            found |= listing or {}
        pairs: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for (cluster, broker, number), address in sorted(found.items()):
            pairs.setdefault((cluster, broker), []).append((number, address))
        answers = await asyncio.gather(
            *(self._pair(*name, members) for name, members in pairs.items())
        )
        brokers = [broker for pair in answers for broker in pair]
        self._complain({each.address: each.up for each in brokers})
        return Survey(
            at=time.monotonic(),
            wall=time.time(),
            seconds=time.monotonic() - began,
            name_servers={
                address: each is not None
                for address, each in zip(self._apart, listings, strict=True)
            },
            brokers=brokers,
        )

    def _complain(self, answered: Mapping[str, bool]) -> None:
        """Log one line when a broker stops answering, one when it answers again."""
        for address, is_up in answered.items():
            if is_up and address in self._silent:
                logger.info("%s answers again", address)
                self._silent.discard(address)
            elif not is_up and address not in self._silent:
                why = self._reasons.get(address, "")
                logger.warning("%s does not answer%s", address, f": {why}" if why else "")
                self._silent.add(address)

    async def _listed(self, admin: AdminClient) -> dict[tuple[str, str, int], str] | None:
        info = await self._or_none(admin.cluster_info)
        return None if info is None else {each[:3]: each.addr for each in info.members()}

    async def _pair(
        self, cluster: str, broker: str, members: Sequence[tuple[int, str]]
    ) -> list[BrokerAnswers]:
        """Ask slaves first: one that copies meanwhile must not seem to be ahead of its master."""
        found: list[BrokerAnswers] = []
        for master in (False, True):
            found += await asyncio.gather(
                *(
                    self._broker(cluster, broker, number, address)
                    for number, address in members
                    if (number == 0) is master
                )
            )
        found.sort(key=lambda each: each.broker_id)
        acting = next((each for each in found if each.up), None)
        return [await self._acting(each) if each is acting else each for each in found]

    async def _broker(self, cluster: str, broker: str, number: int, address: str) -> BrokerAnswers:
        runtime = await self._or_none(lambda: self._admin.runtime_info(address))
        if runtime is None:
            return BrokerAnswers(cluster, broker, number, address)
        config, offsets = await asyncio.gather(
            self._or_none(lambda: self._admin.broker_config(address)),
            self._or_none(lambda: self._admin.all_offsets(address)),
        )
        return BrokerAnswers(cluster, broker, number, address, True, runtime, config or {}, offsets)

    async def _acting(self, broker: BrokerAnswers) -> BrokerAnswers:
        """Ask the member that acts for its pair what the pair holds and who is connected."""
        address = broker.address
        wrapper = await self._or_none(lambda: self._admin.all_topic_config(address))
        names = sorted(wrapper.topic_config_table) if wrapper is not None else []
        groups = sorted({split_offset_key(key)[1] for key in broker.offsets or {}} - {""})
        stats, members, producers, settings = await asyncio.gather(
            asyncio.gather(*(self._topic(address, name) for name in names)),
            asyncio.gather(*(self._group(address, name) for name in groups)),
            self._producers(address),
            self._or_none(lambda: self._admin.all_groups(address)),
        )
        tables = {name: each for name, each in zip(names, stats, strict=True) if each}
        connected = {
            group: found for group, found in zip(groups, members, strict=True) if found is not None
        }
        whole = replace(
            broker,
            ends={
                name: {queue.queue_id: each.max_offset for queue, each in table.items()}
                for name, table in tables.items()
            },
            begins={
                name: {queue.queue_id: each.min_offset for queue, each in table.items()}
                for name, table in tables.items()
            },
            groups=connected,
            producers=producers,
            settings=None if settings is None else frozenset(settings.subscription_group_table),
            topics=None if wrapper is None else frozenset(names),
        )
        details = Details(self._admin, self._or_none, address)
        statuses, latencies, rates = await asyncio.gather(
            self._members(address, connected) if self._clients else _nobody(),
            details.latencies_ms(_standing(whole), whole.ends, whole.begins),
            details.rates(tables, connected),
        )
        return replace(whole, members=statuses, latencies_ms=latencies, rates=rates)

    async def _topic(self, address: str, topic: str) -> Mapping[MessageQueue, TopicOffset]:
        stats = await self._or_none(lambda: self._admin.topic_stats(address, topic))
        return {} if stats is None else stats.offset_table

    async def _producers(self, address: str) -> dict[str, int] | None:
        found = await self._or_none(lambda: self._admin.producers(address))
        return None if found is None else {group: len(them) for group, them in found.data.items()}

    async def _group(self, address: str, group: str) -> ConsumerConnection | None:
        return await self._or_none(lambda: self._admin.consumer_connection(address, group))

    async def _members(
        self, address: str, connected: Mapping[str, ConsumerConnection]
    ) -> list[MemberStatus]:
        wanted = [
            (group, member.client_id, member.client_addr)
            for group, connection in connected.items()
            for member in connection.connection_set
        ][:CLIENTS]
        found = await asyncio.gather(
            *(
                self._or_none(partial(self._admin.consumer_running_info, address, group, client_id))
                for group, client_id, _ in wanted
            )
        )
        return [
            MemberStatus(group, topic, client_id, client_addr, status)
            for (group, client_id, client_addr), info in zip(wanted, found, strict=True)
            if info is not None
            for topic, status in info.status_table.items()
            if not topic.startswith(DLQ_PREFIX)
        ]

    async def _or_none(self, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """Ask when it is our turn; ``None`` for a refusal, no answer, or one that is nonsense."""
        async with self._turn:
            try:
                return await ask()
            except (FailbackError, OSError) as error:
                logger.debug("%s", error)
                self._note(error)
                return None

    def _note(self, error: Exception) -> None:
        """Remember why somebody did not answer; tell once for each right that is missing."""
        address = getattr(error, "addr", "")
        self._reasons[address] = str(error)
        if isinstance(error, BrokerError) and is_refusal(error) and error.remark not in self._told:
            self._told.add(error.remark)
            logger.warning("%s refused: %s", address, error.remark)
