"""Which processor answers which request: all of a broker's, built from its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from failback.broker.clients.client_calls import ClientCalls
from failback.broker.config.config import BrokerConfig
from failback.broker.messaging.topic_admission import TopicAdmission
from failback.broker.messaging.transactions.check import TransactionCheck
from failback.broker.messaging.transactions.half_messages import HalfMessages
from failback.broker.metadata.topics import system_topic_names
from failback.broker.monitoring.stats_counts import stats_counts
from failback.broker.monitoring.stats_items import StatsItems
from failback.broker.processors.administration import access
from failback.broker.processors.administration.admin import AdminProcessor
from failback.broker.processors.administration.cleaning import CleaningProcessor
from failback.broker.processors.administration.inspection import InspectionProcessor
from failback.broker.processors.administration.query import QueryProcessor
from failback.broker.processors.administration.queue_meta import QueueMetaProcessor
from failback.broker.processors.consumers.client import ClientProcessor
from failback.broker.processors.consumers.client_requests import ClientRequestProcessor
from failback.broker.processors.consumers.consumption import ConsumptionProcessor
from failback.broker.processors.consumers.group_offsets import GroupOffsetProcessor
from failback.broker.processors.consumers.locks import LockProcessor
from failback.broker.processors.consumers.offsets import OffsetProcessor
from failback.broker.processors.consumers.queue_locks import LOCK_LIVE_MS, QueueLocks
from failback.broker.processors.pulling.pull import PullProcessor
from failback.broker.processors.sending.durability import DurabilityGate
from failback.broker.processors.sending.end_transaction import EndTransactionProcessor
from failback.broker.processors.sending.reply import ReplyProcessor
from failback.broker.processors.sending.send import SendProcessor
from failback.broker.processors.sending.send_back import SendBackProcessor

if TYPE_CHECKING:
    from failback.broker.cluster.registration import Registration
    from failback.broker.config.identity import BrokerIdentity
    from failback.broker.filters.consumer_filters import ConsumerFilterManager
    from failback.broker.ha.service import HaService
    from failback.broker.metadata.delay_offsets import DelayOffsets
    from failback.broker.metadata.groups import SubscriptionGroupManager
    from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
    from failback.broker.metadata.topics import TopicConfigManager
    from failback.broker.monitoring.health_endpoints import BrokerPhase
    from failback.broker.monitoring.statistics import BrokerStatistics
    from failback.broker.remoting.server import RemotingServer
    from failback.broker.store.message_store import MessageStore


@dataclass(frozen=True)
class Tables:
    """A broker's metadata."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsets
    filters: ConsumerFilterManager


class Processors:
    """All processors, registered with the server, and what they share."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        identity: BrokerIdentity,
        server: RemotingServer,
        store: MessageStore,
        ha: HaService,
        tables: Tables,
        statistics: BrokerStatistics,
        phase: BrokerPhase,
        registrar: Registration,
        on_config_change: Callable[[set[str]], None],
        runtime_info: Callable[[], dict[str, str]],
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        topics, groups, offsets = tables.topics, tables.groups, tables.offsets
        self.clients = ClientProcessor(
            config=config,
            topics=topics,
            groups=groups,
            offsets=offsets,
            filters=tables.filters,
            clock_ms=clock_ms,
        )
        consumers, producers = self.clients.consumers, self.clients.producers
        self.calls = ClientCalls()
        server.on_response = self.calls.answered
        self.admission = TopicAdmission(
            config=config, topics=topics, groups=groups, clock_ms=clock_ms
        )
        self.gate = DurabilityGate(config=config, store=store, ha=ha, clock=clock)
        halves = HalfMessages(
            store,
            topics,
            store_host=identity.store_host,
            clock_ms=clock_ms,
            on_append=server.note_append,
        )
        self.send = SendProcessor(
            config=config,
            identity=identity,
            server=server,
            store=store,
            admission=self.admission,
            gate=self.gate,
            statistics=statistics,
            phase=phase,
            halves=halves,
        )
        EndTransactionProcessor(identity=identity, halves=halves).register(server)
        self.transaction_check = TransactionCheck(
            config=config,
            store=store,
            offsets=offsets,
            producers=producers,
            halves=halves,
            commit=server.commit_now,
            clock_ms=clock_ms,
        )
        self.pull = PullProcessor(
            config=config,
            identity=identity,
            server=server,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            statistics=statistics,
            clock=clock,
            clock_ms=clock_ms,
        )
        admin = AdminProcessor(
            config=config,
            identity=identity,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            registrar=registrar,
            on_config_change=on_config_change,
            clock_ms=clock_ms,
        )
        self.stats_items = StatsItems(
            lambda: stats_counts(identity.cluster_name, self.admission, statistics), clock_ms
        )
        self.send.register(server)
        self.pull.register(server)
        self.clients.register(server)
        admin.register(server)
        OffsetProcessor(
            identity=identity,
            store=store,
            topics=topics,
            offsets=offsets,
            delay_offsets=tables.delay_offsets,
            consumers=consumers,
        ).register(server)
        QueueMetaProcessor(store).register(server)
        QueryProcessor(config=config, store=store).register(server)
        LockProcessor(QueueLocks(config.time_scale.ms(LOCK_LIVE_MS)), clock_ms).register(server)
        InspectionProcessor(
            identity=identity,
            store=store,
            topics=topics,
            offsets=offsets,
            consumers=consumers,
            producers=producers,
            statistics=statistics,
            stats_items=self.stats_items,
            runtime_info=runtime_info,
            system_topics=lambda: system_topic_names(config),
        ).register(server)
        SendBackProcessor(
            config=config,
            server=server,
            store=store,
            topics=topics,
            groups=groups,
            statistics=statistics,
        ).register(server)
        ConsumptionProcessor(
            identity=identity,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            filters=tables.filters,
            statistics=statistics,
            clock_ms=clock_ms,
        ).register(server)
        GroupOffsetProcessor(
            store=store, topics=topics, offsets=offsets, consumers=consumers
        ).register(server)
        ClientRequestProcessor(
            identity=identity,
            store=store,
            consumers=consumers,
            calls=self.calls,
            scale=config.time_scale,
        ).register(server)
        CleaningProcessor(config=config, store=store, topics=topics).register(server)
        ReplyProcessor(
            config=config,
            identity=identity,
            server=server,
            store=store,
            admission=self.admission,
            producers=producers,
            calls=self.calls,
            statistics=statistics,
            clock_ms=clock_ms,
        ).register(server)
        access.register(server)
