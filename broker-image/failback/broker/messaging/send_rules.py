"""Which messages may be sent, and which properties a stored message has. Pure.

Source: TopicValidator, AbstractSendMessageProcessor.msgCheck, SendMessageProcessor of
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import re
from typing import Final

from failback.broker.metadata.topics import (
    OFFSET_MOVED_TOPIC,
    SELF_TEST_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from failback.common.text import visible
from failback.protocol.codes import PUT_ASIDE_TOPIC, SCHEDULE_TOPIC, ResponseCode
from failback.protocol.message import (
    CLUSTER,
    DELAY,
    MAX_TOPIC_BYTES,
    NAME_END,
    PROPERTY_END,
    TAGS,
    TRAN_MSG,
    WAIT,
    decode_properties,
    join_properties,
)

FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        PUT_ASIDE_TOPIC,
    }
)
WAIT_KEY: Final = WAIT + NAME_END
TAGS_KEY: Final = TAGS + NAME_END
DELAY_KEY: Final = DELAY + NAME_END
TRAN_KEY: Final = TRAN_MSG + NAME_END
CLUSTER_KEY: Final = CLUSTER + NAME_END
_TOPIC_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)


class SendRefused(Exception):
    """A check failed: the code and remark to answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def check_topic_name(topic: str) -> None:
    """Refuse what no topic may be called (TopicValidator).

    Raises:
        SendRefused: With code 1 and what is wrong.
    """
    if not topic.strip():
        raise SendRefused(ResponseCode.SYSTEM_ERROR, "The specified topic is blank.")
    if not _TOPIC_NAME.fullmatch(topic):
        remark = f"The specified topic[{topic[:200]}] contains illegal characters,"
        raise SendRefused(ResponseCode.SYSTEM_ERROR, remark + " allowing only ^[%|a-zA-Z0-9_-]+$")
    if len(topic) > MAX_TOPIC_BYTES:
        remark = f"The specified topic is longer than topic max length {MAX_TOPIC_BYTES}."
        raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)


def property_of(properties: str, key: str) -> str | None:
    """Return the value of ``key`` (its end mark included) in a properties text."""
    start = _find(properties, key)
    if start < 0:
        return None
    end = properties.find(PROPERTY_END, start)
    return properties[start + len(key) : end if end >= 0 else None]


def _find(properties: str, key: str) -> int:
    """Where ``key`` begins as a key, not as the end of another one; -1 if nowhere."""
    start = properties.find(key)
    while start > 0 and properties[start - 1] != PROPERTY_END:
        start = properties.find(key, start + 1)
    return start


def without_wait(properties: str) -> tuple[str, bool]:
    """Cut ``WAIT`` out; also return whether the sender waits for flush and slave."""
    start = _find(properties, WAIT_KEY)
    if start < 0:
        return properties, True
    end = properties.find(PROPERTY_END, start)
    value = properties[start + len(WAIT_KEY) : end if end >= 0 else None]
    rest = "" if end < 0 else properties[end + 1 :]
    return properties[:start] + rest, value.lower() == "true"


def with_cluster(properties: str, cluster_property: str) -> str:
    """Append ``CLUSTER``; one that is there already (a message sent on) is replaced."""
    if _find(properties, CLUSTER_KEY) >= 0:
        table = decode_properties(properties)
        table.pop(CLUSTER, None)
        properties = join_properties(table)
    if not properties or properties[-1] == PROPERTY_END:
        return properties + cluster_property
    return properties + PROPERTY_END + cluster_property


def check_delay(properties: str) -> None:
    """Refuse a delay level that is none: its message would come at once.

    Raises:
        SendRefused: Names the property.
    """
    value = property_of(properties, DELAY_KEY)
    try:
        int(value or 0)
    except ValueError:
        remark = f'the property DELAY is "{visible(value or "", 40)}", which is no number'
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark) from None


def delay_level(properties: str) -> int:
    """Return the message's delay level; 0 without one. A text that is no number counts as 0."""
    value = property_of(properties, DELAY_KEY)
    try:
        return int(value) if value else 0
    except ValueError:
        return 0


def with_cluster_first(properties: str, cluster_property: str) -> str:
    """Put ``CLUSTER`` before a batch's own properties, where 4.9.8 has it."""
    properties = properties.strip(PROPERTY_END)
    return cluster_property + PROPERTY_END + properties if properties else cluster_property
