"""The answers of a pair's brokers at one instant, as exporter and dashboard use them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from failback.client.admin.queue_offsets import Span
from failback.common.numbers import whole_or_0
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.route import split_offset_key

SYSTEM_GROUPS: Final = (
    "CID_RMQ_SYS_",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "FAILBACK_WITNESS",
)
CANARY: Final = "failback-canary-"
"""The begin of the names of an observer's own topics and groups."""
BROADCASTING: Final = "BROADCASTING"
"""The message model of members that get every message and keep their own offsets."""
Queues = Mapping[int, int]
"""Queue id to an offset."""
Positions = Mapping[str, Queues]
"""Topic to its queues."""


class GroupTopic(NamedTuple):
    """One line of an offset table."""

    group: str
    topic: str


Table = Mapping[GroupTopic, Queues]


@lru_cache(maxsize=1 << 18)
def group_topic(key: str) -> GroupTopic:
    """Read ``topic@group``."""
    topic, group = split_offset_key(key)
    return GroupTopic(group, topic)


def table_of(offsets: Mapping[str, Queues]) -> dict[GroupTopic, Queues]:
    """Return a table of a broker's answer or file by group and topic."""
    return {group_topic(key): queues for key, queues in offsets.items()}


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """A consumerOffset.json that this machine can read."""

    path: str
    table: Table
    age_seconds: float


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One broker. A silent broker keeps its last answers."""

    address: str
    broker_id: int | None = None
    """0 is the master; ``None``: it never answered."""
    answered: bool = True
    boot_ms: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    offsets: Table | None = None
    """Its table in memory; ``None`` without an answer."""
    file: OffsetFile | None = None
    persist_age: float | None = None
    """Seconds since it wrote its offsets, where that is known."""
    sync_age: float | None = None
    """Of a slave: seconds since it copied its master's offsets, where that is known."""
    stored_since_ms: int = 0
    """When its oldest message was stored; -1: it has none, 0: that is not known."""
    version: str = ""
    """``brokerVersionDesc``."""

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def was_asked(self) -> bool:
        """Whether it ever answered: then its offsets are those of its last answer."""
        return self.answered or self.boot_ms > 0

    @property
    def time_scale(self) -> float:
        return time_scale_of(self.config)

    def offset(self, key: GroupTopic, queue: int) -> int | None:
        return (self.offsets or {}).get(key, {}).get(queue)

    def file_offset(self, key: GroupTopic, queue: int) -> int | None:
        return None if self.file is None else self.file.table.get(key, {}).get(queue)


@dataclass(frozen=True, slots=True)
class PairFacts:
    """One pair; its members in no order."""

    broker: str
    members: tuple[MemberFacts, ...]
    at: float
    """Unix time of the answers, seconds."""
    ends: Positions = field(default_factory=dict)
    """The offset that the next message of a queue gets."""
    begins: Positions = field(default_factory=dict)
    """The first offset that a queue still has."""
    group_members: Mapping[str, int] = field(default_factory=dict)
    """Group to the number of its members, of those that have any."""
    broadcasting: frozenset[str] = frozenset()
    """Groups whose members keep their own offsets: those of brokers are old."""
    deleted: frozenset[str] = frozenset()
    """Groups that were deleted: tables may still hold their offsets."""
    seen: Table | None = None
    """The highest offsets that were seen before the master's last start, of groups that may not
    have passed them; ``None``: the pair was not watched then."""

    @property
    def master(self) -> MemberFacts | None:
        """The master that answers."""
        return next((each for each in self.members if each.is_master and each.answered), None)

    @property
    def last_master(self) -> MemberFacts | None:
        """The master, answering or not; the one silent broker if all others are slaves."""
        known = self.master or next((each for each in self.members if each.is_master), None)
        if known is not None or not self.slaves:
            return known
        silent = [each for each in self.members if each.broker_id is None]
        return silent[0] if len(silent) == 1 else None

    @property
    def slaves(self) -> tuple[MemberFacts, ...]:
        """The slaves that answer."""
        return tuple(each for each in self.members if not each.is_master and each.answered)

    def offsets_count(self, group: str) -> bool:
        """Whether the brokers' offsets of a group are what it has consumed."""
        return group not in self.broadcasting and group not in self.deleted

    def is_gone(self, topic: str, queue: int) -> bool:
        """Whether a topic has no such queue any more. Tables may still hold its offsets."""
        ends = self.ends.get(topic) or {}
        return len(ends) > 0 and queue not in ends

    def span(self, topic: str, queue: int) -> Span | None:
        """Return the offsets of a queue; ``None`` where its end is not known."""
        end = self.ends.get(topic, {}).get(queue)
        return None if end is None else Span(self.begins.get(topic, {}).get(queue, 0), end)

    @property
    def slave_count(self) -> int:
        """All slaves, answering or not."""
        return sum(not each.is_master for each in self.members)


def time_scale_of(config: Mapping[str, str]) -> float:
    """The factor of a broker's timers."""
    try:
        return float(config.get("failbackTimeScale", "1"))
    except ValueError:
        return 1.0


def runtime_facts(runtime: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of ``MemberFacts`` that a broker's runtime information has."""
    return {
        "boot_ms": whole_or_0(runtime.get("bootTimestamp")),
        "stored_since_ms": whole_or_0(runtime.get("earliestMessageTimeStamp")),
        "version": runtime.get("brokerVersionDesc", ""),
    }


def is_system(group: str) -> bool:
    """Whether a group is RocketMQ's own or a tool's."""
    return group.startswith(SYSTEM_GROUPS)


def is_canary(group: str) -> bool:
    """Whether a group is one that an observer made, to be re-consumed."""
    return group.startswith(CANARY)


def user_keys(tables: Iterable[Mapping[GroupTopic, Any]]) -> list[GroupTopic]:
    """Return users' groups and topics, sorted, without retry topics and tools."""
    keys = {key for table in tables for key in table}
    return sorted(
        key
        for key in keys
        if key.group
        and not key.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        and not is_system(key.group)
    )
