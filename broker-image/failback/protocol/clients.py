"""Bodies by which clients make themselves known: heartbeats, locks, connections.

Source: packages common.protocol.heartbeat and common.protocol.body, apache/rocketmq 4.9.8.
What Java calls a set is a list here: its order on the wire carries no meaning.
"""

# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty list or dict
from __future__ import annotations

from typing import Literal

import msgspec

from failback.protocol.body import Body, MessageQueue
from failback.protocol.headers import Int32, Int64

ConsumeType = Literal["CONSUME_ACTIVELY", "CONSUME_PASSIVELY"]
MessageModel = Literal["BROADCASTING", "CLUSTERING"]
ConsumeFromWhere = Literal[
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
]
"""The second to the fourth are of old clients; brokers only show them."""


class SubscriptionData(Body):
    """A consumer's interest in a topic; ``sub_version`` is its creation time in ms."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[Int32] = []
    sub_version: Int64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    group_name: str


class ConsumerData(Body):
    """One group of a client."""

    group_name: str
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    message_model: MessageModel = "CLUSTERING"
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body):
    """Body of 34."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []


class CheckClientRequestBody(Body):
    """Body of 46."""

    client_id: str
    group: str
    subscription_data: SubscriptionData


class LockBatchRequestBody(Body):
    """Body of 41 and 42."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(Body):
    """Answers 41: the queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


class ConsumerIdList(Body):
    """Answers 38 (GetConsumerListByGroupResponseBody)."""

    consumer_id_list: list[str] = []


class Connection(Body):
    """One member of a group; ``client_addr`` is ``ip:port`` as the broker sees it."""

    client_id: str
    client_addr: str
    language: str = "JAVA"
    version: Int64 = 0


class ConsumerConnection(Body):
    """Answers 203."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body):
    """Answers 204."""

    connection_set: list[Connection] = []


class ProducerInfo(Body):
    """``remote_ip`` has Java's leading slash: ``/10.0.0.1:5555``."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str = "JAVA"
    version: Int64 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(Body):
    """Answers 328: producer group to its members."""

    data: dict[str, list[ProducerInfo]] = {}
