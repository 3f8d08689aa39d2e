"""Asks one broker for everything that a page shows of it. No broker is changed."""

from __future__ import annotations

import asyncio
import http.client
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from failback.analytics.dashboard.sources.clusters import MemberRef
from failback.analytics.live.facts import (
    BROADCASTING,
    MemberFacts,
    OffsetFile,
    Positions,
    Table,
    runtime_facts,
    table_of,
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


class Consumers(NamedTuple):
    """The groups of a broker beyond their offsets, asked for as often as its configuration."""

    members: Mapping[str, int]
    """Group to how many members it has."""
    broadcasting: frozenset[str] = frozenset()
    """Of a master: groups whose members keep their own offsets, now or when some were online."""
    groups: frozenset[str] = frozenset()
    """Of a master: groups that it has or had settings of."""
    deleted: frozenset[str] = frozenset()
    """Of a master: those of ``groups`` that it has no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSeen(MemberFacts):
    """One broker at one instant; times are Unix seconds. ``problem`` when it did not answer."""

    member: MemberRef
    at: float
    problem: str = ""
    offsets: Table = field(default_factory=dict)
    log_end: int = 0
    """Where its commit log ends, bytes."""
    ends: Positions = field(default_factory=dict)
    """The offset that the next message of a queue gets, by topic and queue id."""
    begins: Positions = field(default_factory=dict)
    """The first offset that a queue still has."""
    consumers: Consumers = field(default_factory=lambda: Consumers({}))
    config_at: float = 0.0
    """When it was asked for its configuration."""
    before: Table | None = None
    """What its pair had before the master's last start; ``None``: the pair was not watched."""


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
        table, consumers = table_of(offsets), Consumers({}) if known is None else known.consumers
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
    beside = await asyncio.to_thread(_beside, member, config if broker_id == 0 else {})
    return BrokerSeen(
        member.address,
        broker_id,
        member=member,
        at=began,
        log_end=log_end,
        config=config,
        offsets=table,
        ends=queues.ends,
        begins=queues.begins,
        consumers=consumers,
        config_at=config_at,
        **started,
        **beside,
    )


def _silent(known: BrokerSeen | None, member: MemberRef, problem: str, began: float) -> BrokerSeen:
    file = _read_file(member, known.config if known is not None and known.is_master else {})
    if known is None:
        known = BrokerSeen(member.address, member.broker_id, member=member, at=began)
    return replace(
        known,
        answered=False,
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


async def _consumers(
    asked: BrokerSurvey, table: Table, known: Consumers, *, is_master: bool
) -> Consumers:
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
    return Consumers(found, frozenset(broadcasting), ever, ever - now - found.keys())


def _beside(member: MemberRef, config: Mapping[str, str]) -> dict[str, Any]:
    """Read what the admin protocol does not have: ages from ``/metrics``, the file on the disk."""
    ages: dict[str, float | None] = dict.fromkeys(_AGES)
    if member.http:
        text = _fetch_metrics(member.http)
        for name, pattern in _AGES.items():
            found = pattern.search(text)
            ages[name] = _seconds(found[1]) if found else None
    file = _read_file(member, config)
    if ages["persist_age"] is None and file is not None:
        ages["persist_age"] = file.age_seconds
    return {**ages, "file": file}


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
