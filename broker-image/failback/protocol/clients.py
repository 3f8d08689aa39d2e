"""Bodies by which clients make themselves known: heartbeats, locks, connections.

Source: packages common.protocol.heartbeat and common.protocol.body, apache/rocketmq 4.9.8.
What Java calls a set is a list here: its order on the wire carries no meaning.
"""

# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty list or dict
from __future__ import annotations

import msgspec

from failback.protocol.body import Body, MessageQueue


class SubscriptionData(Body):
    """A consumer's interest in a topic; ``sub_version`` is its creation time in ms."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[int] = []
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    group_name: str


class ConsumerData(Body):
    """One group of a client.

    ``consume_type`` CONSUME_ACTIVELY or CONSUME_PASSIVELY, ``message_model`` CLUSTERING or
    BROADCASTING, ``consume_from_where`` CONSUME_FROM_LAST_OFFSET, _FIRST_OFFSET or _TIMESTAMP.
    """

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
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
    version: int = 0


class ConsumerConnection(Body):
    """Answers 203."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body):
    """Answers 204."""

    connection_set: list[Connection] = []


class ProducerInfo(Body):
    """``remote_ip`` has Java's leading slash: ``/10.0.0.1:5555``."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body):
    """Answers 328: producer group to its members."""

    data: dict[str, list[ProducerInfo]] = {}
