"""Where a delayed message waits, and how a stored message is stored once more.

A message with ``DELAY`` = n > 0 goes to queue n - 1 of SCHEDULE_TOPIC_XXXX and says in
``REAL_TOPIC`` and ``REAL_QID`` where it belongs. What is delivered later, and what a consumer sends
back, are copies: same body and birth, another place. ``delay_service`` delivers it; how long a
level takes says ``DEFAULT_DELAY_LEVELS`` in store/config.py.

Source: CommitLog.asyncPutMessage, ScheduleMessageService.messageTimeup,
SendMessageProcessor.asyncConsumerSendMsgBack, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from failback.broker.messaging.send_rules import delay_level
from failback.broker.store.log.results import Appended
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import (
    BORN_HOST_V6,
    SCHEDULE_TOPIC,
    STORE_HOST_V6,
    TRANSACTION_MASK,
)
from failback.protocol.errors import ProtocolError
from failback.protocol.message import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    MessageExt,
    decode_properties,
    decode_record,
    join_properties,
    pack_host,
    tags_code,
)

SCHEDULE_TOPIC_BYTES: Final = SCHEDULE_TOPIC.encode()
_QUEUE_ID: Final = re.compile(r"[0-9]{1,10}")
_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6


class Waiting(NamedTuple):
    """A delayed message's place until it is due: a queue of SCHEDULE_TOPIC_XXXX."""

    queue_id: int
    properties: dict[str, str]


def waiting_place(properties: str, topic: str, queue_id: int, levels: int) -> Waiting | None:
    """Return where a message has to wait; ``None`` for one that is not delayed.

    A level above the highest of ``levels`` counts as that. ``WAIT`` stays among the properties, as
    they are written again from the table, which is what 4.9.8 does too.
    """
    level = min(delay_level(properties), levels)
    if level <= 0:
        return None
    table = decode_properties(properties)
    table |= {DELAY: str(level), REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    return Waiting(level - 1, table)


def real_place(message: MessageExt) -> tuple[str, int] | None:
    """Return topic and queue id that a delayed message is for; ``None`` if it does not say."""
    topic, queue_id = message.properties.get(REAL_TOPIC), message.properties.get(REAL_QID, "")
    if not topic or _QUEUE_ID.fullmatch(queue_id) is None:
        return None
    return topic, int(queue_id)


def stored_message(store: MessageStore, physical_offset: int) -> MessageExt | None:
    """Return the message that begins there, its body as stored; ``None`` if it is damaged."""
    record = store.record_at(physical_offset) if physical_offset >= 0 else None
    try:
        message = None if record is None else decode_record(record, decompress=False)[0]
    except ProtocolError:
        return None
    if message is None or zlib.crc32(message.body) & 0x7FFFFFFF != message.body_crc:
        return None
    return message


def append_copy(
    store: MessageStore,
    message: MessageExt,
    *,
    topic: str,
    queue_id: int,
    properties: Mapping[str, str],
    reconsume_times: int,
    transaction_type: int | None = None,
    prepared_transaction_offset: int = 0,
) -> Appended:
    """Append a stored message again; its body is as stored, compressed or not.

    Without ``transaction_type`` it keeps its own.

    Raises:
        MessageIllegal: It can't be a record: its place has no such name, or it is too long.
        StoreError: The store refuses all writes.
    """
    sys_flag = message.sys_flag & ~_HOST_BITS
    if transaction_type is not None:
        sys_flag = sys_flag & ~TRANSACTION_MASK | transaction_type
    return store.append(
        topic=topic.encode(errors="replace"),
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=pack_host(*message.born_host),
        reconsume_times=reconsume_times,
        body=message.body,
        properties=join_properties(properties).encode(errors="replace"),
        tags_code=tags_code(properties.get(TAGS)),
        prepared_transaction_offset=prepared_transaction_offset,
        was_accepted=True,
    )
