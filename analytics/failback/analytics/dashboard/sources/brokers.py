"""Asks one broker for everything that a page shows of it. No broker is changed."""

from __future__ import annotations

import asyncio
import http.client
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from failback.analytics.dashboard.sources.clusters import MemberRef
from failback.analytics.live.facts import (
    BROADCASTING,
    MemberFacts,
    OffsetFile,
    Positions,
    Table,
    runtime_facts,
    table_of,
    time_scale_of,
    user_keys,
)
from failback.analytics.live.offset_file import in_store, of_broker
from failback.client.admin.admin import AdminClient
from failback.client.admin.survey import BrokerSurvey
from failback.common.numbers import whole_or_0
from failback.protocol.errors import FailbackError
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX

MOST_TOPICS: Final = 100
"""Topics whose ends are asked for with each look; those of the largest tables first."""
MOST_GROUPS: Final = 200
"""Groups whose members are counted."""
_AGES: Final = {
    "persist_age": re.compile(rb"^rocketmq_offset_persist_age_seconds(?:\{[^}]*\})? (\S+)", re.M),
    "sync_age": re.compile(rb"^rocketmq_slave_metadata_sync_age_seconds(?:\{[^}]*\})? (\S+)", re.M),
}
CONFIG_SECONDS: Final = 5.0
_HTTP_SECONDS: Final = 2.0
_MOST_HTTP_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """One broker at one instant; times are Unix seconds. ``problem`` when it did not answer."""

    member: MemberRef
    at: float
    problem: str = ""
    broker_id: int | None = None
    boot_ms: int = 0
    log_end: int = 0
    """Where its commit log ends, bytes."""
    config: Mapping[str, str] = field(default_factory=dict)
    offsets: Table = field(default_factory=dict)
    file: OffsetFile | None = None
    """consumerOffset.json, where this machine can read it."""
    persist_age: float | None = None
    sync_age: float | None = None
    ends: Positions = field(default_factory=dict)
    """The offset that the next message of a queue gets, by topic and queue id."""
    begins: Positions = field(default_factory=dict)
    """The first offset that a queue still has."""
    group_members: Mapping[str, int] = field(default_factory=dict)
    """Group to how many members it has, asked as often as the configuration."""
    broadcasting: frozenset[str] = frozenset()
    """Of a master: groups whose members keep their own offsets, now or when some were online."""
    groups: frozenset[str] = frozenset()
    """Of a master: groups that it has or had settings of."""
    deleted: frozenset[str] = frozenset()
    """Of a master: those of ``groups`` that it has no more."""
    config_at: float = 0.0
    """When it was asked for its configuration."""
    stored_since_ms: int = 0
    """When its oldest message was stored; -1: it has none, 0: that is not known."""
    version: str = ""
    """``brokerVersionDesc``."""
    before: Table | None = None
    """What its pair had before the master's last start; ``None``: the pair was not watched."""

    @property
    def answered(self) -> bool:
        return not self.problem

    @property
    def was_asked(self) -> bool:
        """Whether it ever answered: then its offsets are those of its last answer."""
        return self.boot_ms > 0

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def time_scale(self) -> float:
        return time_scale_of(self.config)

    @property
    def facts(self) -> MemberFacts:
        """Its part of the live view that all tools share."""
        return MemberFacts(
            self.member.address,
            self.broker_id,
            self.answered,
            self.boot_ms,
            self.config,
            self.offsets,
            self.file,
            self.persist_age if self.answered else None,
            self.sync_age,
            self.stored_since_ms,
            self.version,
        )


async def look_at(admin: AdminClient, member: MemberRef, known: BrokerSeen | None) -> BrokerSeen:
    """Ask one broker. Its configuration, which changes live, is asked for every few seconds.

    A broker that is silent keeps what was known of it, with the problem and the time of now.
    """
    began = time.time()
    try:
        runtime, offsets = await asyncio.gather(
            admin.runtime_info(member.address), admin.all_offsets(member.address)
        )
        started = runtime_facts(runtime)
        config: Mapping[str, str]
        if (
            known is not None
            and known.answered
            and known.boot_ms == started["boot_ms"]
            and 0 <= began - known.config_at < CONFIG_SECONDS
        ):
            config, config_at = known.config, known.config_at
        else:
            config, config_at = await admin.broker_config(member.address), began
        table, consumers = table_of(offsets), _remembered(known)
        asked = BrokerSurvey(admin, member.address)
        queues = await asked.queues(_largest_topics(table))
        broker_id = int(config.get("brokerId", member.broker_id or 0))
        if config_at == began:
            consumers = await _consumers(asked, table, consumers, is_master=broker_id == 0)
        log_end = whole_or_0(runtime.get("commitLogMaxOffset"))
    except (FailbackError, OSError, ValueError, TimeoutError) as error:
        return _silent(known, member, str(error) or type(error).__name__, began)
    expected = member.broker_name
    if expected and config.get("brokerName", expected) != expected:
        other = config["brokerName"]
        return _silent(known, member, f"the address now belongs to {other}", began)
    ages = await asyncio.to_thread(_beside, member, config if broker_id == 0 else {})
    return BrokerSeen(
        member=member,
        at=began,
        broker_id=broker_id,
        log_end=log_end,
        config=config,
        offsets=table,
        file=ages.file,
        persist_age=ages.persist_age,
        sync_age=ages.sync_age,
        ends=queues.ends,
        begins=queues.begins,
        group_members=consumers.members,
        broadcasting=consumers.broadcasting,
        groups=consumers.groups,
        deleted=consumers.deleted,
        config_at=config_at,
        **started,
    )


def _silent(known: BrokerSeen | None, member: MemberRef, problem: str, began: float) -> BrokerSeen:
    file = _read_file(member, known.config if known is not None and known.is_master else {})
    if known is None:
        return BrokerSeen(member, began, problem, member.broker_id, file=file)
    return replace(
        known,
        member=member,
        at=began,
        problem=problem,
        file=known.file if file is None else file,
        persist_age=None,
        sync_age=None,
        config_at=0.0,
    )


def _largest_topics(table: Table) -> list[str]:
    """Return the topics with the largest tables, the largest first."""
    weight: dict[str, int] = {}
    for key, queues in table.items():
        if not key.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            weight[key.topic] = weight.get(key.topic, 0) + len(queues)
    return sorted(weight, key=lambda topic: (-weight[topic], topic))[:MOST_TOPICS]


class _Consumers(NamedTuple):
    """The groups of a master beyond their offsets."""

    members: Mapping[str, int]
    broadcasting: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()


def _remembered(known: BrokerSeen | None) -> _Consumers:
    if known is None:
        return _Consumers({})
    return _Consumers(known.group_members, known.broadcasting, known.groups, known.deleted)


async def _consumers(
    asked: BrokerSurvey, table: Table, known: _Consumers, *, is_master: bool
) -> _Consumers:
    """Return the members of each user's group, the groups that broadcast, and deleted groups.

    A slave has members too: they stay with it while their master is down. Only a master deletes.
    A group that broadcast once does so until members of it say something else.
    """
    found: dict[str, int] = {}
    broadcasting = set(known.broadcasting)
    groups = sorted({key.group for key in user_keys([table])})[:MOST_GROUPS]
    for group, connection in (await asked.connections(groups)).items():
        if connection is None:
            continue
        found[group] = len(connection.connection_set)
        broadcasting.discard(group)
        if connection.message_model == BROADCASTING:
            broadcasting.add(group)
    now = await asked.groups() if is_master else None
    if now is None:
        return known._replace(members=found, broadcasting=frozenset(broadcasting))
    ever = known.groups | now
    return _Consumers(found, frozenset(broadcasting), ever, ever - now - found.keys())


class _Beside(NamedTuple):
    persist_age: float | None
    sync_age: float | None
    file: OffsetFile | None


def _beside(member: MemberRef, config: Mapping[str, str]) -> _Beside:
    """Read what the admin protocol does not have: ages from ``/metrics``, the file on the disk."""
    ages: dict[str, float | None] = dict.fromkeys(_AGES)
    if member.http:
        text = _fetch_metrics(member.http)
        for name, pattern in _AGES.items():
            found = pattern.search(text)
            ages[name] = _seconds(found[1]) if found else None
    file = _read_file(member, config)
    persist = ages["persist_age"]
    if persist is None and file is not None:
        persist = file.age_seconds
    return _Beside(persist, ages["sync_age"], file)


def _seconds(text: bytes) -> float | None:
    """Return a sample's value; ``None`` for text that is no finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _fetch_metrics(address: str) -> bytes:
    try:
        connection = http.client.HTTPConnection(address, timeout=_HTTP_SECONDS)
    except http.client.InvalidURL:
        return b""
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(_MOST_HTTP_BYTES)
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()


def _read_file(member: MemberRef, config: Mapping[str, str]) -> OffsetFile | None:
    """Read the file that a kill would leave.

    It is in the store that the runtime names, else in that of a master on this host.
    """
    return in_store(member.store) if member.store else of_broker(member.address, config)
