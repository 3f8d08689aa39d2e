"""One round of questions to name servers and brokers, and its answers as facts of pairs.

A broker without an answer is part of the result. So is a part of an answer that is missing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from failback.analytics.exporter.details import Details
from failback.analytics.live.facts import (
    BROADCASTING,
    MemberFacts,
    OffsetFile,
    PairFacts,
    runtime_facts,
    table_of,
)
from failback.client.admin.admin import AdminClient
from failback.client.admin.queue_offsets import Table
from failback.client.admin.survey import BrokerSurvey
from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.guarded.signing import is_refusal
from failback.common.numbers import whole_or_0
from failback.protocol.clients import ConsumerConnection
from failback.protocol.errors import BrokerError
from failback.protocol.message import DLQ_PREFIX
from failback.protocol.route import split_offset_key
from failback.protocol.stats import ConsumeStatus

logger = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Requests under way at a time."""
CLIENTS: Final = 200
"""Members that are asked for their own figures, at most."""
Ends = Mapping[str, Mapping[int, int]]
"""Topic to queue id to the offset of the next message."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The figures of one consumer on one topic."""

    group: str
    topic: str
    client_id: str
    client_addr: str
    status: ConsumeStatus


@dataclass(frozen=True, slots=True)
class BrokerAnswers:
    """The answers of one broker; empty where it gave none."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    up: bool = False
    runtime: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    offsets: Table | None = None
    ends: Ends = field(default_factory=dict)
    """Only of the member that acts for its pair: the one with the lowest id that answers."""
    groups: Mapping[str, ConsumerConnection] = field(default_factory=dict)
    members: Sequence[MemberStatus] = ()
    producers: Mapping[str, int] | None = None
    """Producer group to its number of producers; ``None`` without an answer."""
    latencies_ms: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(topic, group) to how long its oldest message waits, for groups that are behind."""
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(name, key) of a broker's own counters to their rate per second over the last minute."""
    begins: Ends = field(default_factory=dict)
    """The first offsets of the queues of ``ends``."""
    settings: frozenset[str] | None = None
    """Groups that it has settings of; ``None`` without an answer."""
    topics: frozenset[str] | None = None
    """Its topics; ``None`` without an answer."""

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

    @property
    def standing(self) -> Table:
        """The offsets of groups whose members do not broadcast: what they have consumed."""
        broadcasting = self.broadcasting
        return {
            key: queues
            for key, queues in (self.offsets or {}).items()
            if split_offset_key(key)[1] not in broadcasting
        }


@dataclass(frozen=True, slots=True)
class Survey:
    """All answers of a round. ``at`` is monotonic, ``wall`` Unix time, both at its end."""

    at: float
    wall: float
    seconds: float
    name_servers: Mapping[str, bool]
    brokers: Sequence[BrokerAnswers]


class Surveyor:
    """Asks a cluster. It keeps its connections and what it has complained about, no answers."""

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        client: RemotingClient,
        timeout_ms: float = 3000,
        clients: bool = True,
    ) -> None:
        """``clients``: ask consumers for their own rates too, through their brokers."""
        self._admin = AdminClient(name_servers, client=client, timeout_ms=timeout_ms)
        self._clients = clients
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._silent: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._told: set[str] = set()

    def _at(self, address: str) -> BrokerSurvey:
        return BrokerSurvey(self._admin, address, turn=self._turn, failed=self._note)

    async def survey(self) -> Survey:
        """Ask all name servers, and all brokers that one of them lists."""
        began = time.monotonic()
        asked = await self._admin.name_servers()
        listings = await asyncio.gather(*map(self._listed, asked))
        name_servers = {
            address: each is not None for address, each in zip(asked, listings, strict=True)
        }
        self._complain(name_servers)
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
            name_servers=name_servers,
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

    async def _listed(self, address: str) -> dict[tuple[str, str, int], str] | None:
        info = await self._at(address).ask(lambda: self._admin.cluster_info_at(address))
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
        asked = self._at(address)
        runtime = await asked.runtime()
        if runtime is None:
            return BrokerAnswers(cluster, broker, number, address)
        config, offsets = await asyncio.gather(asked.config(), asked.offsets())
        return BrokerAnswers(cluster, broker, number, address, True, runtime, config or {}, offsets)

    async def _acting(self, broker: BrokerAnswers) -> BrokerAnswers:
        """Ask the member that acts for its pair for the pair's queues and connected clients."""
        asked = self._at(broker.address)
        topics = await asked.topics()
        groups = sorted({split_offset_key(key)[1] for key in broker.offsets or {}} - {""})
        queues, connections, producers, settings = await asyncio.gather(
            asked.queues(sorted(topics or ())),
            asked.connections(groups),
            asked.producers(),
            asked.groups(),
        )
        connected = {group: each for group, each in connections.items() if each is not None}
        whole = replace(
            broker,
            ends=queues.ends,
            begins=queues.begins,
            groups=connected,
            producers=producers,
            settings=settings,
            topics=topics,
        )
        details = Details(asked)
        statuses, latencies, rates = await asyncio.gather(
            self._members(asked, connected if self._clients else {}),
            details.latencies_ms(whole.standing, whole.ends, whole.begins),
            details.rates(
                {topic: them for topic, them in queues.tables.items() if them}, connected
            ),
        )
        return replace(whole, members=statuses, latencies_ms=latencies, rates=rates)

    async def _members(
        self, asked: BrokerSurvey, connected: Mapping[str, ConsumerConnection]
    ) -> list[MemberStatus]:
        wanted = [
            (group, member.client_id, member.client_addr)
            for group, connection in connected.items()
            for member in connection.connection_set
        ][:CLIENTS]
        found = await asyncio.gather(
            *(
                asked.ask(
                    partial(self._admin.consumer_running_info, asked.address, group, client_id)
                )
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

    def _note(self, error: Exception) -> None:
        """Keep the reason of a missing answer, and log each missing right once."""
        logger.debug("%s", error)
        address = getattr(error, "addr", "")
        self._reasons[address] = str(error)
        if isinstance(error, BrokerError) and is_refusal(error) and error.remark not in self._told:
            self._told.add(error.remark)
            logger.warning("%s refused: %s", address, error.remark)


OffsetFiles = Mapping[tuple[str, int], OffsetFile]
"""Broker name and id to its consumerOffset.json, where that is mounted."""


def pair_facts(
    survey: Survey,
    brokers: Iterable[BrokerAnswers],
    files: OffsetFiles,
    sync_age: Callable[[BrokerAnswers], float | None],
) -> PairFacts:
    """Return the members of one pair as facts.

    ``sync_age``: the seconds since a slave copied, as surveys show them.
    """
    members = tuple(brokers)
    acting = next((each for each in members if each.ends), members[0])
    found = []
    for each in members:
        file = files.get((each.broker, each.broker_id))
        facts = MemberFacts(
            each.address,
            each.broker_id,
            each.up,
            config=each.config,
            offsets=None if each.offsets is None else table_of(each.offsets),
            file=file,
            persist_age=None if file is None else file.age_seconds,
            sync_age=sync_age(each),
            **runtime_facts(each.runtime),
        )
        found.append(facts)
    return PairFacts(
        acting.broker,
        tuple(found),
        survey.wall,
        acting.ends,
        acting.begins,
        {group: len(each.connection_set) for group, each in acting.groups.items()},
    )
