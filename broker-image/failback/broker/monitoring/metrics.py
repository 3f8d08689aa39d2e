"""Prometheus metrics, made from the counters when they are asked for.

Names follow BrokerMetricsConstant of RocketMQ 5.x where the meaning is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from failback.broker.clients.client_manager import ConsumerManager, ProducerManager
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.ha.service import HaService
from failback.broker.messaging.send_rules import FORBIDDEN_TOPICS
from failback.broker.messaging.topic_admission import TopicAdmission
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import RemotingServer
from failback.broker.store.message_store import MessageStore
from failback.client.remoting.tls_server import ServerTls
from failback.protocol.codes import PUT_ASIDE_TOPIC
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.metric_families import (
    ACCESS_CURRENT,
    ACCESS_REFUSED,
    ACCESS_USED,
    CONSUMERS,
    DEAD_LETTERS,
    DISK_REFUSES,
    DISPATCH_BEHIND,
    FLUSH_BEHIND,
    GUARDED,
    HA_ACKNOWLEDGED,
    HA_CONNECTED,
    HA_CONNECTIONS,
    HA_DIFFERS,
    HA_REFUSED,
    HA_STOPPED,
    HELD_PULLS,
    INFLIGHT,
    LAG,
    MAX_SERIES,
    MEMBER,
    MESSAGES_IN,
    MESSAGES_OUT,
    NOT_BELIEVED,
    OPEN_CONNECTIONS,
    OTHER,
    OVERWRITES,
    PERMISSION,
    PERSIST_AGE,
    PRODUCERS,
    PUT_ASIDE,
    READ_FAILURES,
    REFUSED,
    REGRESSION_MESSAGES,
    REGRESSIONS,
    START_TIME,
    STORAGE,
    SYNC_AGE,
    TABLES_WAITING,
    TLS_CONNECTIONS,
    TLS_FAILURES,
    TLS_NOT_AFTER,
    Family,
)
from failback.protocol.route import split_offset_key

if TYPE_CHECKING:
    from failback.broker.remoting.access import AccessGuard

BROADCASTING: Final = "BROADCASTING"
Place = TypeVar("Place", bound=tuple[str, ...])
"""Ends with a topic and a group."""
Count = TypeVar("Count")


@dataclass(eq=False, kw_only=True)
class BrokerCollector(Collector):
    """One broker's numbers."""

    config: BrokerConfig
    identity: BrokerIdentity
    store: MessageStore
    statistics: BrokerStatistics
    admission: TopicAdmission
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[BrokerConnection]
    producers: ProducerManager[BrokerConnection]
    boot_ms: int
    persist_age_seconds: Callable[[], float]
    sync_age_seconds: Callable[[], float | None]
    tables_waiting: Callable[[], int]
    offsets_kept: Callable[[], int]
    ha: HaService
    topics: TopicConfigManager
    server: RemotingServer
    not_believed: Callable[[], int]
    held_pulls: Callable[[], int]
    groups: SubscriptionGroupManager
    access: AccessGuard | None
    tls: ServerTls
    _broadcasting: set[str] = field(init=False, default_factory=set)
    _had: set[str] = field(init=False, default_factory=set)
    """Groups that had settings at some look."""
    _had_topics: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        identity = self.identity
        self._role = "slave" if identity.is_slave else "master"
        node_id = f"{identity.broker_name}-{identity.broker_id}"
        self._node = (identity.cluster_name, self._role, node_id)
        self._member = (*self._node, identity.broker_name)

    def _fallen(self) -> set[str]:
        """Groups whose offsets do not say what they consumed: broadcasting, deleted.

        A group broadcasts until members of it say something else.
        """
        online = self.consumers.groups
        self._broadcasting -= online.keys()
        self._broadcasting |= {
            name for name, each in online.items() if each.message_model == BROADCASTING
        }
        self._had |= self.groups.table.keys()
        self._had_topics |= self.topics.table.keys()
        return self._broadcasting | self._deleted()

    def _deleted(self) -> set[str]:
        return self._had - self.groups.table.keys() - self.consumers.groups.keys()

    def _there(self, counts: Mapping[Place, Count]) -> dict[Place, Count]:
        """Leave out what was counted of a topic or group that was deleted since."""
        topics, groups = self._had_topics - self.topics.table.keys(), self._deleted()
        return {
            place: count
            for place, count in counts.items()
            if place[-2] not in topics and place[-1] not in groups
        }

    def collect(self) -> Iterator[Metric]:
        fallen = self._fallen()
        yield from self._values()
        yield self._by_topic(MESSAGES_IN, self._messages_in())
        yield self._by_group(MESSAGES_OUT, self._messages_out())
        yield self._by_group(LAG, self._lags(fallen))
        yield self._by_group(INFLIGHT, self._inflight(fallen))
        yield self._dead_letters()
        yield from self._regressions()
        yield self._counted(REFUSED, self.server.limits.refusals.counts)
        if self.tls.not_after is not None:
            yield self._counted(TLS_FAILURES, self.tls.failures.counts)
        if self.access is not None:
            yield from self._access(self.access)

    def _access(self, access: AccessGuard) -> Iterator[Metric]:
        refused, used, current = made(ACCESS_REFUSED), made(ACCESS_USED), made(ACCESS_CURRENT)
        for (key, code, mode), count in access.refused.items():
            refused.add_metric((*self._member, key, str(code), mode), count)
        for key, at in access.last_used.items():
            used.add_metric((*self._member, key), at)
        current.add_metric(self._member, int(not access.files.problem))
        yield from (refused, used, current)

    def _counted(self, family: Family, counts: Mapping[str, int]) -> Metric:
        metric = made(family)
        for label, count in counts.items():
            metric.add_metric((*self._member, label), count)
        return metric

    def _values(self) -> Iterator[Metric]:
        store, ha = self.store, self.ha
        values: list[tuple[Family, float]] = [
            (PERMISSION, self.config.broker_permission),
            (START_TIME, self.boot_ms / 1000),
            (STORAGE, store.max_physical_offset - max(0, store.min_physical_offset)),
            (FLUSH_BEHIND, max(0, store.max_physical_offset - store.flushed_offset)),
            (DISPATCH_BEHIND, store.dispatch_behind_bytes()),
            (DISK_REFUSES, int(store.is_out_of_room)),
            (READ_FAILURES, store.read_check.failures),
            (TABLES_WAITING, self.tables_waiting()),
            (PRODUCERS, sum(map(len, self.producers.groups.values()))),
            (CONSUMERS, sum(len(group.members) for group in self.consumers.groups.values())),
            (PERSIST_AGE, self.persist_age_seconds()),
            (HA_CONNECTIONS, ha.connection_count),
            (HA_ACKNOWLEDGED, ha.push2slave_max_offset),
            (HA_REFUSED, ha.refused_reports),
            (GUARDED, self.offsets_kept()),
            (NOT_BELIEVED, self.not_believed()),
            (OPEN_CONNECTIONS, self.server.limits.connections.total),
            (HELD_PULLS, self.held_pulls()),
            (PUT_ASIDE, store.max_queue_offset(PUT_ASIDE_TOPIC, 0)),
        ]
        sync_age = self.sync_age_seconds()
        if sync_age is not None:
            values.append((SYNC_AGE, sync_age))
        if self.identity.is_slave:
            refusal = ha.client.refusal
            values += [
                (OVERWRITES, self.offsets.regressions.overwrites),
                (HA_CONNECTED, int(ha.client.connected)),
                (HA_STOPPED, int(refusal is not None)),
                (HA_DIFFERS, -1 if refusal is None else refusal.offset),
            ]
        if self.tls.not_after is not None:
            values += [
                (TLS_NOT_AFTER, self.tls.not_after),
                (TLS_CONNECTIONS, self.tls.connections),
            ]
        for family, value in values:
            metric = made(family)
            metric.add_metric(self._member if family.labels == MEMBER else self._node, value)
            yield metric

    def _by_topic(self, family: Family, counts: Mapping[str, float]) -> Metric:
        metric = made(family)
        for (topic, _), count in limited({(name, ""): n for name, n in counts.items()}).items():
            metric.add_metric((*self._node, topic, *kind_of(topic)), count)
        return metric

    def _by_group(self, family: Family, counts: Mapping[tuple[str, str], float]) -> Metric:
        metric = made(family)
        for (topic, group), count in limited(counts).items():
            metric.add_metric((*self._node, topic, group, *kind_of(topic)), count)
        return metric

    def _messages_in(self) -> dict[str, float]:
        targets, there = self.admission.targets, self.topics.table
        return {topic: each.messages_in for topic, each in targets.items() if topic in there}

    def _messages_out(self) -> dict[tuple[str, str], int]:
        return self._there(self.statistics.messages_out)

    def _lags(self, fallen: Container[str]) -> dict[tuple[str, str], float]:
        """Messages that are stored between a group's offsets and the ends of its queues."""
        end, begin = self.store.max_queue_offset, self.store.min_queue_offset
        lags: dict[tuple[str, str], float] = {}
        for key, queues in self.offsets.table.items():
            topic, group = split_offset_key(key)
            if group not in fallen:
                lags[topic, group] = sum(
                    max(0, end(topic, queue_id) - max(begin(topic, queue_id), offset))
                    for queue_id, offset in queues.items()
                )
        return lags

    def _inflight(self, fallen: Container[str]) -> dict[tuple[str, str], float]:
        """Messages behind the committed offset of a queue that were handed out already."""
        counts: dict[tuple[str, str], float] = {}
        for (topic, group, queue_id), reads in self.statistics.queue_reads.items():
            if group in fallen or topic not in self.topics.table:
                continue
            committed = self.offsets.query(group, topic, queue_id)
            ahead = max(0, reads.next_offset - committed) if committed >= 0 else 0
            counts[topic, group] = counts.get((topic, group), 0) + ahead
        return counts

    def _dead_letters(self) -> Metric:
        metric = made(DEAD_LETTERS)
        counts = {}
        if not self.identity.is_slave:  # its copies are no messages of their own
            for topic in self.topics.table:
                if topic.startswith(DLQ_PREFIX):
                    end = self.store.max_queue_offset(topic, 0)
                    counts[topic.removeprefix(DLQ_PREFIX), ""] = float(end)
        for (group, _), count in limited(counts).items():
            metric.add_metric((*self._node, group), count)
        return metric

    def _regressions(self) -> Iterator[Metric]:
        times, messages = made(REGRESSIONS), made(REGRESSION_MESSAGES)
        counts = self._there(self.offsets.regressions.counts)
        for (source, topic, group), count in counts.items():
            identity = self.identity
            labels = (identity.cluster_name, identity.broker_name, self._role, group, topic, source)
            times.add_metric(labels, count[0])
            messages.add_metric(labels, count[1])
        yield times
        yield messages


def made(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    """Return an empty metric of the family."""
    if family.kind == "counter":
        return CounterMetricFamily(family.name, family.text, labels=family.labels)
    return GaugeMetricFamily(family.name, family.text, labels=family.labels)


def kind_of(topic: str) -> tuple[str, str]:
    """Return the labels ``is_retry`` and ``is_system`` of a topic."""
    is_retry = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return str(is_retry).lower(), str(topic in FORBIDDEN_TOPICS).lower()


def limited(counts: Mapping[tuple[str, str], float]) -> Mapping[tuple[str, str], float]:
    """Keep the first :data:`MAX_SERIES` series and add the others up."""
    if len(counts) <= MAX_SERIES:
        return counts
    series = list(counts.items())
    kept = dict(series[:MAX_SERIES])
    kept[OTHER, OTHER] = sum(count for _, count in series[MAX_SERIES:])
    return kept


def render(collector: Collector) -> bytes:
    """Return the text format that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
