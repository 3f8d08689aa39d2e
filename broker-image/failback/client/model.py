"""The values that users of the client hand in and get back."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from failback.client.errors import MessageInvalid
from failback.protocol.body import MessageQueue
from failback.protocol.codes import PUT_ASIDE_TOPIC, SCHEDULE_TOPIC
from failback.protocol.message import RETRY_PREFIX, MessageExt

INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

_NAME: Final = re.compile(r"^[%|a-zA-Z0-9_-]+$")
_FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        PUT_ASIDE_TOPIC,
    }
)


def retry_topic(group: str) -> str:
    """Return the topic in which the broker keeps what ``group`` has to consume again."""
    return RETRY_PREFIX + group


class Message:
    """A message to send. The first send adds ``UNIQ_KEY`` to ``properties``; it stays there, so a
    second send of the same object has the same one.

    Args:
        topic: At most 127 characters of ``%|a-zA-Z0-9_-``.
        body: 1 byte to 4 MiB.
        tags: One tag, for the consumers' filters.
        keys: Space-separated keys, for the broker's index.
        properties: User properties; copied.
        delay_level: 1 to 18, or 0 for none.
        due_ns, okey, kseq: Planned time, ordering key and its sequence: for the consume log only.
    """

    __slots__ = ("body", "due_ns", "flag", "kseq", "okey", "properties", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes,
        keys: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        flag: int = 0,
        delay_level: int = 0,
        due_ns: int | None = None,
        okey: str | None = None,
        kseq: int | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        self.properties: dict[str, str] = {**(properties or {}), "WAIT": "true"}
        if keys:
            self.properties["KEYS"] = keys
        if tags:
            self.properties["TAGS"] = tags
        if delay_level:
            self.properties["DELAY"] = str(delay_level)
        self.due_ns = due_ns
        self.okey = okey
        self.kseq = kseq

    @property
    def delay_level(self) -> int:
        return int(self.properties.get("DELAY", 0))

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, {len(self.body)} bytes, {self.properties})"


class SendStatus(Enum):
    """How far the broker got. All four mean that the message is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class SendResult:
    """The broker's answer. ``msg_id`` is the UNIQ_KEY (of a batch: comma-joined),
    ``offset_msg_id`` names the place in the broker's log, ``queue_offset`` that of the first."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int


class ConsumeResult(Enum):
    """What a handler says about the messages it was given."""

    SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(frozen=True, slots=True)
class Consumed:
    """A handler's answer in full, where :class:`ConsumeResult` alone does not say enough.

    Attributes:
        ack_index: With SUCCESS: messages after this index are sent back. ``None``: all are done.
        delay_level: For what is sent back: -1 at once to the dead-letter queue, 0 the broker's
            steps, 1 to 18 that level.
    """

    result: ConsumeResult
    ack_index: int | None = None
    delay_level: int = 0


HandlerAnswer = ConsumeResult | Consumed | None
Handler = Callable[[list[MessageExt]], Awaitable[HandlerAnswer] | HandlerAnswer]
"""A plain function is called on the event loop's thread and must not block it."""


class MessageModel(Enum):
    """Do members of a group share the queues, or does each get all of them?"""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFrom(Enum):
    """Where a queue without a stored offset is begun."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class FoundBroker(NamedTuple):
    """An address chosen for a call, with the broker id the table had for it."""

    addr: str
    broker_id: int

    @property
    def is_slave(self) -> bool:
        return self.broker_id != 0


def check_group(group: str) -> None:
    """Raise :class:`MessageInvalid` for a group name the broker would not take (Validators)."""
    if not group or len(group) > 255 or not _NAME.match(group):
        raise MessageInvalid(f"the group name {group!r} is not 1 to 255 of %|a-zA-Z0-9_-")


def check_topic(topic: str) -> None:
    """Raise :class:`MessageInvalid` for a topic name the broker would not take (Validators)."""
    if not topic or len(topic) > 127 or not _NAME.match(topic):
        raise MessageInvalid(f"the topic name {topic!r} is not 1 to 127 of %|a-zA-Z0-9_-")


def check_message(message: Message, max_message_bytes: int) -> None:
    """Raise :class:`MessageInvalid` unless ``message`` may be sent (Validators.checkMessage)."""
    check_topic(message.topic)
    if message.topic in _FORBIDDEN_TOPICS:
        raise MessageInvalid(f"sending message to topic {message.topic} is forbidden")
    if not message.body:
        raise MessageInvalid("the message body is empty")
    if len(message.body) > max_message_bytes:
        raise MessageInvalid(
            f"the message body of {len(message.body)} bytes is above {max_message_bytes}"
        )


@dataclass(slots=True)
class Subscription:
    """What one consumer wants of one topic; ``version`` grows when its queues change."""

    topic: str
    expression: str
    version: int
    tags: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        if self.expression in ("*", ""):
            self.tags = frozenset()
            return
        self.tags = frozenset(t for part in self.expression.split("||") if (t := part.strip()))
        if not self.tags:
            raise MessageInvalid(
                f"the subscription of {self.topic} names no tag: {self.expression!r}"
            )

    def accepts(self, tag: str | None) -> bool:
        """Tell whether a message with this tag is wanted; without a tag only ``*`` wants it."""
        return not self.tags or tag in self.tags
