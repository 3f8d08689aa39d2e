"""Bodies of inspection: offsets and statistics per queue, and small lists.

Source: packages common.admin, common.protocol.body and common.subscription,
apache/rocketmq 4.9.8.
"""

# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty list or dict
from __future__ import annotations

import re
from typing import Final, Self

import msgspec

from failback.protocol.body import Body, MessageQueue
from failback.protocol.clients import SubscriptionData
from failback.protocol.errors import ProtocolError
from failback.protocol.headers import Int32, Int64


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

    correction_offsets: dict[Int32, Int64] = {}


class TopicOffset(Body):
    """Range of one queue; the time of its last message in ms, 0 when empty."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body):
    """Answers 202."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class OffsetWrapper(Body):
    """Progress of a group on one queue; ``last_timestamp`` of its last consumed message, ms."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(Body):
    """Answers 208."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(Body):
    """Answers 317: per group one :class:`ConsumeStats` per topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: Int64 = 0


class ResetOffsetBody(Body):
    """Body of 220, answers 222."""

    offset_table: dict[MessageQueue, Int64] = {}

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read either form: a table keyed by queue, or the list sent to C++ clients."""
        try:
            return super().from_json(data)
        except ProtocolError as error:
            try:
                rows = _OffsetRows.from_json(data).offset_table
            except ProtocolError:
                raise error from None
        return cls(
            {MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows}
        )


class _OffsetRow(Body):
    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class _OffsetRows(Body):
    offset_table: list[_OffsetRow] = []


class GetConsumerStatusBody(Body):
    """Answers 221 (``message_queue_table``) and 223 (``consumer_table``, by client id)."""

    message_queue_table: dict[MessageQueue, Int64] = {}
    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class QueueTimeSpan(Body):
    """Times in ms; the ``_str`` members repeat three of them for readers."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body):
    """Answers 303."""

    consume_time_span_set: list[QueueTimeSpan] = []


class BrokerStatsItem(Body):
    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Answers 315."""

    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


class ConsumeQueueData(Body):
    """One entry of a consume queue; ``eval`` says whether the group's filter takes it."""

    physic_offset: Int64
    physic_size: Int64
    tags_code: Int64
    eval: bool = False
    extend_data_json: str | None = None
    bit_map: str | None = None
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Answers 321."""

    queue_data: list[ConsumeQueueData] = []
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    filter_data: str | None = None
    subscription_data: SubscriptionData | None = None


class ProcessQueueInfo(Body):
    """What a consumer holds of one queue; times in ms. ``droped`` is the wire's spelling."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int64 = 0
    cached_msg_size_in_mi_b: Int64 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int64 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class ConsumeStatus(Body):
    """Rates of one topic; times in ms."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class HeldQueues(Body):
    """The part of an answer to 307 that says what a member holds."""

    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read Java's form, else that of C++: offsets without a sign, and a table left out.

        Source: ProcessQueueInfo.h, ConsumerRunningInfo.cpp, apache/rocketmq-client-cpp@7c8b7f8.
        """
        try:
            return super().from_json(data)
        except ProtocolError:
            text = data if isinstance(data, str) else data.decode(errors="replace")
            return super().from_json(_NO_TABLE.sub("{}", _UNSIGNED.sub(_with_sign, text)))


_NO_TABLE: Final = re.compile(r'(?<="mqTable":)(?=[,}])')
_UNSIGNED: Final = re.compile(r'"([0-9]{19,20})"')


def _with_sign(found: re.Match[str]) -> str:
    """Return a number of 64 bits as Java has it: -1 for the largest one without a sign."""
    value = int(found[1])
    return f'"{value - 2**64 if 2**63 <= value < 2**64 else value}"'


class ConsumerRunningInfo(HeldQueues):
    """Answers 307."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    status_table: dict[str, ConsumeStatus] = {}
    jstack: str | None = None
