"""Asks one broker everything that a page shows of it, by the admin protocol; nothing is written."""

from __future__ import annotations

import asyncio
import http.client
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from failback.analytics.dashboard.sources.clusters import MemberRef
from failback.client.admin.admin import AdminClient
from failback.protocol.errors import FailbackError, ProtocolError
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.route import parse_offset_table, split_offset_key

MOST_TOPICS: Final = 100
"""Topics whose ends are asked for with each look; those of the largest tables first."""
_AGES: Final = {
    "persist_age": re.compile(rb"^rocketmq_offset_persist_age_seconds(?:\{[^}]*\})? (\S+)", re.M),
    "sync_age": re.compile(rb"^rocketmq_slave_metadata_sync_age_seconds(?:\{[^}]*\})? (\S+)", re.M),
}
CONFIG_SECONDS: Final = 5.0
_HTTP_SECONDS: Final = 2.0
_MOST_HTTP_BYTES: Final = 8 << 20


class GroupTopic(NamedTuple):
    """One line of an offset table."""

    group: str
    topic: str


Table = dict[GroupTopic, dict[int, int]]


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
    file_offsets: Table | None = None
    """consumerOffset.json, where this machine can read it."""
    file_age: float | None = None
    persist_age: float | None = None
    sync_age: float | None = None
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The offset that the next message of a (topic, queue id) gets."""
    config_at: float = 0.0
    """When it was asked for its configuration."""

    @property
    def answered(self) -> bool:
        return not self.problem

    @property
    def was_asked(self) -> bool:
        """Whether it has ever answered: then its offsets are what it said last."""
        return self.boot_ms > 0

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def time_scale(self) -> float:
        try:
            return float(self.config.get("failbackTimeScale", "1"))
        except ValueError:
            return 1.0


def table_of(offsets: Mapping[str, Mapping[int, int]]) -> Table:
    """``topic@group`` keys as pairs."""
    found: Table = {}
    for key, queues in offsets.items():
        topic, group = split_offset_key(key)
        found[GroupTopic(group, topic)] = dict(queues)
    return found


async def look_at(admin: AdminClient, member: MemberRef, known: BrokerSeen | None) -> BrokerSeen:
    """Ask one broker. Its configuration, which changes live, is asked for every few seconds.

    A broker that is silent keeps what was known of it, with the problem and the time of now.
    """
    began = time.time()
    try:
        runtime, offsets = await asyncio.gather(
            admin.runtime_info(member.address), admin.all_offsets(member.address)
        )
        boot_ms = int(runtime.get("bootTimestamp") or 0)
        config: Mapping[str, str]
        if (
            known is not None
            and known.answered
            and known.boot_ms == boot_ms
            and 0 <= began - known.config_at < CONFIG_SECONDS
        ):
            config, config_at = known.config, known.config_at
        else:
            config, config_at = await admin.broker_config(member.address), began
        table = table_of(offsets)
        ends = await _ends(admin, member.address, table)
        broker_id = int(config.get("brokerId", member.broker_id or 0))
        log_end = int(runtime.get("commitLogMaxOffset") or 0)
    except (FailbackError, OSError, ValueError, TimeoutError) as error:
        return _silent(known, member, str(error) or type(error).__name__, began)
    expected = member.broker_name
    if expected and config.get("brokerName", expected) != expected:
        other = config["brokerName"]
        return _silent(known, member, f"the address now belongs to {other}", began)
    ages = await asyncio.to_thread(_beside, member)
    return BrokerSeen(
        member=member,
        at=began,
        broker_id=broker_id,
        boot_ms=boot_ms,
        log_end=log_end,
        config=config,
        offsets=table,
        file_offsets=ages.file_offsets,
        file_age=ages.file_age,
        persist_age=ages.persist_age,
        sync_age=ages.sync_age,
        ends=ends,
        config_at=config_at,
    )


def _silent(known: BrokerSeen | None, member: MemberRef, problem: str, began: float) -> BrokerSeen:
    file = _read_file(member)
    if known is None:
        return BrokerSeen(
            member, began, problem, member.broker_id, file_offsets=file[0], file_age=file[1]
        )
    return BrokerSeen(
        member=member,
        at=began,
        problem=problem,
        broker_id=known.broker_id,
        boot_ms=known.boot_ms,
        log_end=known.log_end,
        config=known.config,
        offsets=known.offsets,
        file_offsets=file[0] if file[0] is not None else known.file_offsets,
        file_age=file[1],
        ends=known.ends,
    )


async def _ends(admin: AdminClient, addr: str, table: Table) -> dict[tuple[str, int], int]:
    weight: dict[str, int] = {}
    for key, queues in table.items():
        if not key.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            weight[key.topic] = weight.get(key.topic, 0) + len(queues)
    topics = sorted(weight, key=lambda topic: (-weight[topic], topic))[:MOST_TOPICS]
    found: dict[tuple[str, int], int] = {}
    for topic in topics:
        try:
            stats = await admin.topic_stats(addr, topic)
        except FailbackError:  # deleted, and its offsets are still there
            continue
        for queue, offset in stats.offset_table.items():
            found[topic, queue.queue_id] = offset.max_offset
    return found


class _Beside(NamedTuple):
    persist_age: float | None
    sync_age: float | None
    file_offsets: Table | None
    file_age: float | None


def _beside(member: MemberRef) -> _Beside:
    """What the admin protocol does not say: ages from ``/metrics``, the file on the disk."""
    ages: dict[str, float | None] = dict.fromkeys(_AGES)
    if member.http:
        text = _fetch_metrics(member.http)
        for name, pattern in _AGES.items():
            found = pattern.search(text)
            ages[name] = _seconds(found[1]) if found else None
    table, age = _read_file(member)
    persist = ages["persist_age"] if ages["persist_age"] is not None else age
    return _Beside(persist, ages["sync_age"], table, age)


def _seconds(text: bytes) -> float | None:
    """A sample's value; ``None`` when it is none, or no number to reckon with."""
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


def _read_file(member: MemberRef) -> tuple[Table | None, float | None]:
    """consumerOffset.json of a store on this machine, and how old it is."""
    if not member.store:
        return None, None
    path = Path(member.store) / "config" / "consumerOffset.json"
    try:
        with path.open("rb") as file:
            content = file.read()
        age = max(0.0, time.time() - path.stat().st_mtime)
        return table_of(parse_offset_table(content)), age
    except (OSError, ProtocolError):
        return None, None
