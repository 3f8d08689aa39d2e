"""What the parts of one push consumer share: identity, settings, state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from failback.client.clock import Clock
from failback.client.consumelog.hook import ConsumeHook
from failback.client.instance.instance import MQClientInstance
from failback.client.model import ConsumeFrom, MessageModel, Subscription
from failback.client.remoting.settings import ClientSettings


class ConsumerState(Enum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    SHUTDOWN = "SHUTDOWN"
    FAILED = "FAILED"


@dataclass(slots=True)
class ConsumerContext:
    """Made by a consumer's start; ``settings`` are scaled.

    Attributes:
        consume_timestamp_ms: Where ConsumeFrom.TIMESTAMP begins.
        threshold_for_queue, threshold_mib_for_queue: The settings', or the per-topic limits
            divided among the held queues.
    """

    group: str
    instance: MQClientInstance
    settings: ClientSettings
    hook: ConsumeHook
    message_model: MessageModel
    consume_from: ConsumeFrom
    consume_timestamp_ms: int
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    state: ConsumerState = ConsumerState.CREATED
    is_paused: bool = False
    threshold_for_queue: int = field(init=False)
    threshold_mib_for_queue: int = field(init=False)

    def __post_init__(self) -> None:
        self.threshold_for_queue = self.settings.pull_threshold_for_queue
        self.threshold_mib_for_queue = self.settings.pull_threshold_mib_for_queue

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    @property
    def clock(self) -> Clock:
        return self.instance.clock

    @property
    def is_running(self) -> bool:
        return self.state is ConsumerState.RUNNING

    @property
    def is_clustering(self) -> bool:
        return self.message_model is MessageModel.CLUSTERING

    @property
    def max_reconsume_times(self) -> int:
        """-1 means 16 for concurrent consumption."""
        own = self.settings.max_reconsume_times
        return 16 if own == -1 else own
