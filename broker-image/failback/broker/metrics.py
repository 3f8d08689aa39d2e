"""Prometheus metrics, made from the counters when they are asked for.

Names follow BrokerMetricsConstant of RocketMQ 5.x where the meaning is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from failback.broker.client_manager import ConsumerManager, ProducerManager
from failback.broker.config import BrokerConfig
from failback.broker.connection import BrokerConnection
from failback.broker.identity import BrokerIdentity
from failback.broker.send_rules import FORBIDDEN_TOPICS
from failback.broker.statistics import BrokerStatistics
from failback.broker.topic_admission import TopicAdmission
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from failback.broker.ha.service import HaService
    from failback.broker.offsets.consumer_offset_manager import ConsumerOffsetManager
    from failback.broker.store.message_store import MessageStore

MAX_SERIES: Final = 200
"""Groups times topics that get a line of their own; what is beyond counts as ``other``."""
_NODE: Final = ("cluster", "node_type", "node_id")


class BrokerCollector(Collector):
    """One broker's numbers."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        identity: BrokerIdentity,
        store: MessageStore,
        statistics: BrokerStatistics,
        admission: TopicAdmission,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[BrokerConnection],
        producers: ProducerManager[BrokerConnection],
        boot_ms: int,
        persist_age_seconds: Callable[[], float],
        sync_age_seconds: Callable[[], float | None],
        offsets_kept: Callable[[], int],
        ha: HaService,
    ) -> None:
        self._config = config
        self._identity = identity
        self._store = store
        self._statistics = statistics
        self._admission = admission
        self._offsets = offsets
        self._consumers = consumers
        self._producers = producers
        self._boot_ms = boot_ms
        self._persist_age_seconds = persist_age_seconds
        self._sync_age_seconds = sync_age_seconds
        self._offsets_kept = offsets_kept
        self._ha = ha
        role = "slave" if identity.is_slave else "master"
        node_id = f"{identity.broker_name}-{identity.broker_id}"
        self._node = (identity.cluster_name, role, node_id)

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield self._messages_in()
        yield self._messages_out()
        yield self._lag()
        yield from self._guarded()

    def _guarded(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "failback_guarded_offsets",
            "Consumer offsets that the guarded rules kept from going back",
            labels=_NODE,
        )
        family.add_metric(self._node, self._offsets_kept())
        yield family
        family = CounterMetricFamily(
            "failback_ha_refused_reports",
            "Connections closed because their slave reported what this broker has not, or not sent",
            labels=_NODE,
        )
        family.add_metric(self._node, self._ha.refused_reports)
        yield family

    def _gauges(self) -> Iterator[Metric]:
        store = self._store
        unflushed = max(0, store.max_physical_offset - store.flushed_offset)
        stored = store.max_physical_offset - max(0, store.min_physical_offset)
        connections = sum(len(group.members) for group in self._consumers.groups.values())
        producers = sum(map(len, self._producers.groups.values()))
        values = [
            ("rocketmq_broker_permission", "brokerPermission", self._config.broker_permission),
            ("rocketmq_broker_start_time_seconds", "Start, Unix time", self._boot_ms / 1000),
            ("rocketmq_storage_size", "Bytes of log held", stored),
            ("rocketmq_storage_flush_behind_bytes", "Log bytes not synced yet", unflushed),
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "Log bytes not in the queues yet",
                store.dispatch_behind_bytes,
            ),
            (
                "failback_ha_connections",
                "Open connections on the HA port",
                self._ha.connection_count,
            ),
            (
                "failback_ha_acknowledged_offset",
                "The greatest physical offset that any slave has reported",
                self._ha.push2slave_max_offset,
            ),
            ("rocketmq_producer_connections", "Producers by heartbeat", producers),
            ("rocketmq_consumer_connections", "Consumers by heartbeat", connections),
            (
                "rocketmq_offset_persist_age_seconds",
                "Since consumer offsets were last written",
                self._persist_age_seconds(),
            ),
        ]
        sync_age = self._sync_age_seconds()
        if sync_age is not None:
            values.append(
                (
                    "rocketmq_slave_metadata_sync_age_seconds",
                    "Since metadata was last copied from the master",
                    sync_age,
                )
            )
        if self._identity.is_slave:
            values += self._replication()
        for name, text, value in values:
            family = GaugeMetricFamily(name, text, labels=_NODE)
            family.add_metric(self._node, value)
            yield family

    def _replication(self) -> list[tuple[str, str, float]]:
        client = self._ha.client
        refusal = client.refusal
        return [
            ("failback_ha_connected", "1 while this slave is connected", int(client.connected)),
            (
                "failback_ha_stopped",
                "1 while this slave does not replicate because its log is not its master's",
                int(refusal is not None),
            ),
            (
                "failback_ha_differs_at_offset",
                "The first byte of this slave's log that is not its master's; -1 if none is known",
                -1 if refusal is None else refusal.offset,
            ),
        ]

    def _messages_in(self) -> Metric:
        family = CounterMetricFamily(
            "rocketmq_messages_in", "Messages stored", labels=(*_NODE, "topic", *_KIND)
        )
        counts = {(topic, ""): each.messages_in for topic, each in self._admission.targets.items()}
        for (topic, _), count in limited(counts).items():
            family.add_metric((*self._node, topic, *kind_of(topic)), count)
        return family

    def _messages_out(self) -> Metric:
        family = CounterMetricFamily(
            "rocketmq_messages_out",
            "Messages handed out",
            labels=(*_NODE, "topic", "consumer_group", *_KIND),
        )
        for (topic, group), count in limited(dict(self._statistics.messages_out)).items():
            family.add_metric((*self._node, topic, group, *kind_of(topic)), count)
        return family

    def _lag(self) -> Metric:
        """Messages between a group's committed offsets and the ends of its queues."""
        family = GaugeMetricFamily(
            "rocketmq_consumer_lag_messages",
            "Messages behind the committed offsets",
            labels=(*_NODE, "topic", "consumer_group", *_KIND),
        )
        lags = {}
        for key, queues in self._offsets.table.items():
            topic, _, group = key.partition("@")
            lags[topic, group] = sum(
                max(0, self._store.max_queue_offset(topic, queue_id) - max(0, offset))
                for queue_id, offset in queues.items()
            )
        for (topic, group), lag in limited(lags).items():
            family.add_metric((*self._node, topic, group, *kind_of(topic)), lag)
        return family


_KIND: Final = ("is_retry", "is_system")


def kind_of(topic: str) -> tuple[str, str]:
    is_retry = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return str(is_retry).lower(), str(topic in FORBIDDEN_TOPICS).lower()


def limited(counts: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Keep the first :data:`MAX_SERIES` series and add the others up."""
    if len(counts) <= MAX_SERIES:
        return counts
    series = list(counts.items())
    kept = dict(series[:MAX_SERIES])
    kept["other", "other"] = sum(count for _, count in series[MAX_SERIES:])
    return kept


def render(collector: Collector) -> bytes:
    """Return the text format that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
