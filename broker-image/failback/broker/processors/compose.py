"""Which processor answers which request: all of a broker's, built from its parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from failback.broker.clients.client_calls import ClientCalls
from failback.broker.clients.client_manager import ConsumerManager, ProducerManager
from failback.broker.cluster.registration import Registration
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.filters.consumer_filters import ConsumerFilterManager
from failback.broker.ha.service import HaService
from failback.broker.messaging.delivery import Delivery
from failback.broker.messaging.put_aside import PutAside
from failback.broker.messaging.topic_admission import TopicAdmission
from failback.broker.messaging.transactions.check import TransactionCheck
from failback.broker.messaging.transactions.half_messages import HalfMessages
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.monitoring.health_endpoints import BrokerPhase
from failback.broker.monitoring.runtime_info import RuntimeSources, runtime_info
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.monitoring.stats_items import StatsItems, stats_counts
from failback.broker.processors.administration.access import AccessProcessor
from failback.broker.processors.administration.admin import AdminProcessor, CleaningProcessor
from failback.broker.processors.administration.inspection import InspectionProcessor
from failback.broker.processors.administration.queries import QueryProcessor, QueueMetaProcessor
from failback.broker.processors.consumers.client_requests import ClientRequestProcessor
from failback.broker.processors.consumers.consumption import ConsumptionProcessor, GroupProgress
from failback.broker.processors.consumers.heartbeats import ClientProcessor
from failback.broker.processors.consumers.offsets import GroupOffsetProcessor, OffsetProcessor
from failback.broker.processors.consumers.queue_locks import LOCK_LIVE_MS, LockProcessor, QueueLocks
from failback.broker.processors.pulling.pull import PullProcessor
from failback.broker.processors.registry import Handled, handled_by, register
from failback.broker.processors.sending.durability import DurabilityGate
from failback.broker.processors.sending.end_transaction import EndTransactionProcessor
from failback.broker.processors.sending.reply import ReplyProcessor
from failback.broker.processors.sending.send import SendProcessor
from failback.broker.processors.sending.send_back import SendBackProcessor
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import RemotingServer
from failback.broker.store.message_store import MessageStore

if TYPE_CHECKING:
    from failback.broker.remoting.access import AccessGuard

_Part = TypeVar("_Part")

OTHER_PROCESSORS: Final[tuple[type, ...]] = (
    AccessProcessor,
    CleaningProcessor,
    ClientRequestProcessor,
    ConsumptionProcessor,
    EndTransactionProcessor,
    GroupOffsetProcessor,
    InspectionProcessor,
    LockProcessor,
    OffsetProcessor,
    QueryProcessor,
    QueueMetaProcessor,
    ReplyProcessor,
    SendBackProcessor,
)
PROCESSORS: Final = (
    *(SendProcessor, PullProcessor, ClientProcessor, AdminProcessor),
    *OTHER_PROCESSORS,
)


def handled_codes() -> Iterator[tuple[type, Handled]]:
    """Yield every request code that a broker answers, with its processor."""
    for processor in PROCESSORS:
        for handled in handled_by(processor):
            yield processor, handled


@dataclass(kw_only=True)
class Parts:
    """What a broker is made of: an argument of a processor gets the part of the same name."""

    config: BrokerConfig
    identity: BrokerIdentity
    server: RemotingServer
    store: MessageStore
    ha: HaService
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsets
    filters: ConsumerFilterManager
    statistics: BrokerStatistics
    phase: BrokerPhase
    access: AccessGuard | None
    registrar: Registration
    check_config_change: Callable[[BrokerConfig], None]
    on_config_change: Callable[[set[str]], None]
    boot_ms: int
    clock: Callable[[], float]
    clock_ms: Callable[[], int]

    # What several processors share is built once, from the parts above.
    steady_ms: Callable[[], int] = field(init=False)
    """Measures how old heartbeats and locks are: under guarded rules it never jumps."""
    admin: AdminProcessor = field(init=False)
    clients: ClientProcessor = field(init=False)
    consumers: ConsumerManager[BrokerConnection] = field(init=False)
    producers: ProducerManager[BrokerConnection] = field(init=False)
    calls: ClientCalls = field(init=False)
    admission: TopicAdmission = field(init=False)
    gate: DurabilityGate = field(init=False)
    put_aside: PutAside = field(init=False)
    delivery: Delivery = field(init=False)
    halves: HalfMessages = field(init=False)
    transaction_check: TransactionCheck = field(init=False)
    stats_items: StatsItems = field(init=False)
    locks: QueueLocks = field(init=False)
    progress: GroupProgress = field(init=False)
    commit: Callable[[], None] = field(init=False)
    runtime_table: Callable[[], dict[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.steady_ms = (
            self._steady() if self.config.failback_rules == "guarded" else self.clock_ms
        )
        self.admin = self.build(AdminProcessor)
        self.clients = self.build(ClientProcessor)
        self.consumers, self.producers = self.clients.consumers, self.clients.producers
        self.calls = ClientCalls(self.server.limits)
        self.admission = self.build(TopicAdmission)
        self.gate = self.build(DurabilityGate)
        self.put_aside = self.build(PutAside)
        self.delivery = self.build(Delivery)
        self.halves = HalfMessages(
            self.store,
            self.topics,
            self.delivery,
            store_host=self.identity.store_host,
            clock_ms=self.clock_ms,
            on_append=self.server.note_append,
        )
        self.commit = self.server.commit_now
        self.transaction_check = self.build(TransactionCheck)
        self.stats_items = StatsItems(
            lambda: stats_counts(self.identity.cluster_name, self.admission, self.statistics),
            self.clock_ms,
        )
        self.locks = QueueLocks(self.config.time_scale.ms(LOCK_LIVE_MS))
        self.progress = self.build(GroupProgress)
        self.runtime_table = self._runtime_table

    def _steady(self) -> Callable[[], int]:
        """Return a clock that begins with the wall's time and goes on as the loop's does.

        Where the wall's clock is set two minutes forward, 4.9.8 drops all clients and locks.
        """
        wall_ms, begun = self.clock_ms(), self.clock()
        return lambda: wall_ms + int(1000 * (self.clock() - begun))

    def build(self, part: type[_Part], **more: object) -> _Part:
        """Make a part of ``more``, and of the parts that its other arguments name."""
        names = inspect.signature(part).parameters.keys() - more.keys()
        return part(**more, **{name: getattr(self, name) for name in names})

    def _runtime_table(self) -> dict[str, str]:
        """Return what GET_BROKER_RUNTIME_INFO answers."""
        info = runtime_info(
            self.build(RuntimeSources),
            now_ms=self.clock_ms(),
            sends_waiting=len(self.gate.waiting),
            head_wait_ms=self.gate.head_wait_ms(),
            pulls_deferred=sum(len(each.deferred) for each in self.server.connections),
        )
        if self.ha.client.refusal is not None:
            info["replicationStopped"] = str(self.ha.client.refusal)
        return info


def register_processors(parts: Parts) -> tuple[SendProcessor, PullProcessor]:
    """Build every processor and register it with the server; return those of the hot path."""
    server = parts.server
    server.on_response = parts.calls.answered
    send, pull = parts.build(SendProcessor), parts.build(PullProcessor)
    send.register_hot_path(server)
    pull.register_hot_path(server)
    for each in (send, pull, parts.admin, parts.clients, *map(parts.build, OTHER_PROCESSORS)):
        register(server, each)
    return send, pull
