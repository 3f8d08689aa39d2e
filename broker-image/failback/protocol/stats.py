"""Bodies of inspection: offsets and statistics per queue, and small lists.

Source: packages common.admin, common.protocol.body and common.subscription,
apache/rocketmq 4.9.8.
"""

# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty list or dict
from __future__ import annotations

from typing import Any, Self

import msgspec

from failback.protocol.body import (
    Body,
    MessageQueue,
    QueueKeyedBody,
    convert,
    members,
    queue_table,
    read_int,
)
from failback.protocol.clients import SubscriptionData
from failback.protocol.errors import ProtocolError


class KVTable(Body):
    """Answers 28 and 219, and carries the order topics in a registration's answer."""

    table: dict[str, str] = {}


class TopicList(Body):
    """Answers 206, 224, 304, 305; ``broker_addr`` only in 304."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class GroupList(Body):
    """Answers 300."""

    group_list: list[str] = []


class QueryCorrectionOffsetBody(Body):
    """Answers 308: queue id to offset."""

    correction_offsets: dict[int, int] = {}


class TopicOffset(Body):
    """Range of one queue; the time of its last message in ms, 0 when empty."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(QueueKeyedBody):
    """Answers 202."""

    offset_table: dict[MessageQueue, TopicOffset] = {}

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        table = members(value).get("offsetTable", {})
        return cls(queue_table(table, TopicOffset.from_builtins))


class OffsetWrapper(Body):
    """Progress of a group on one queue; ``last_timestamp`` of its last consumed message, ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(QueueKeyedBody):
    """Answers 208."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        parts = members(value)
        table = queue_table(parts.get("offsetTable", {}), OffsetWrapper.from_builtins)
        return cls(table, convert(parts.get("consumeTps", 0.0), float))


class ConsumeStatsList(QueueKeyedBody):
    """Answers 317: per group one :class:`ConsumeStats` per topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: int = 0

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        parts = members(value)
        groups = [
            {
                group: [ConsumeStats.from_builtins(stats) for stats in _items(topics)]
                for group, topics in members(entry).items()
            }
            for entry in _items(parts.get("consumeStatsList", []))
        ]
        address = convert(parts.get("brokerAddr"), str | None)
        return cls(groups, address, read_int(parts.get("totalDiff", 0)))


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ProtocolError(f"expected a JSON array, not {type(value).__name__}")
    return value


class ResetOffsetBody(QueueKeyedBody):
    """Body of 220, answers 222."""

    offset_table: dict[MessageQueue, int] = {}

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        """Read either form: a table keyed by queue, or the list sent to C++ clients."""
        table = members(value).get("offsetTable", {})
        if isinstance(table, list):
            entries = convert(table, list[_QueueOffset])
            return cls({entry.queue(): entry.offset for entry in entries})
        return cls(queue_table(table, read_int))


class _QueueOffset(Body):
    topic: str
    broker_name: str
    queue_id: int
    offset: int

    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class GetConsumerStatusBody(QueueKeyedBody):
    """Answers 221 (``message_queue_table``) and 223 (``consumer_table``, by client id)."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        parts = members(value)
        own = queue_table(parts.get("messageQueueTable", {}), read_int)
        clients = members(parts.get("consumerTable", {}))
        return cls(own, {name: queue_table(table, read_int) for name, table in clients.items()})


class QueueTimeSpan(Body):
    """Times in ms; the ``_str`` members repeat three of them for readers."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body):
    """Answers 303."""

    consume_time_span_set: list[QueueTimeSpan] = []


class BrokerStatsItem(Body):
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Answers 315."""

    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


class ConsumeQueueData(Body):
    """One entry of a consume queue; ``eval`` says whether the group's filter takes it."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False
    extend_data_json: str | None = None
    bit_map: str | None = None
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Answers 321."""

    queue_data: list[ConsumeQueueData] = []
    max_queue_index: int = 0
    min_queue_index: int = 0
    filter_data: str | None = None
    subscription_data: SubscriptionData | None = None


class ProcessQueueInfo(Body):
    """What a consumer holds of one queue; times in ms. ``droped`` is the wire's spelling."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(Body):
    """Rates of one topic; times in ms."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(QueueKeyedBody):
    """Answers 307."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    jstack: str | None = None

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        parts = members(value)
        return cls(
            convert(parts.get("properties", {}), dict[str, str]),
            convert(parts.get("subscriptionSet", []), list[SubscriptionData]),
            queue_table(parts.get("mqTable", {}), ProcessQueueInfo.from_builtins),
            convert(parts.get("statusTable", {}), dict[str, ConsumeStatus]),
            convert(parts.get("jstack"), str | None),
        )


class ConsumeMessageDirectlyResult(Body):
    """Answers 309; ``consume_result`` is CR_SUCCESS, CR_LATER, CR_THROW_EXCEPTION, ..."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str = "CR_SUCCESS"
    remark: str | None = None
    spent_time_mills: int = 0
