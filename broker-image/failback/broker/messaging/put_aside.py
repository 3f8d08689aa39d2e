"""Messages that can't be delivered are parked where people see them, and the rest goes on.

An accepted message that can't be stored in its queue must not delay the messages behind it.
A retry goes to its group's dead letters, as one that was tried too often does. All else, and what
has no dead letters, is kept in :data:`PUT_ASIDE_TOPIC`, with where it was for and why it is not
there among its properties. A record that can't be read at all leaves a message without a body.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from failback.broker.messaging.delayed import append_copy
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.metadata.versioned_table import now
from failback.broker.store.log.results import MessageIllegal
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import PERM_READ, PERM_WRITE, PUT_ASIDE_TOPIC
from failback.protocol.errors import ProtocolError
from failback.protocol.message import (
    DLQ_PREFIX,
    KEYS,
    MAX_TOPIC_BYTES,
    PUT_ASIDE_FOR,
    PUT_ASIDE_OFFSET,
    PUT_ASIDE_REASON,
    RETRY_PREFIX,
    UNIQ_KEY,
    MessageExt,
    unpack_host,
)

logger = logging.getLogger(__name__)

_MOST_CHARACTERS: Final = 300
"""Of a name or a reason that is kept."""


@dataclass(slots=True)
class PutAside:
    """Keeps what can't be delivered. Appends are committed by the caller's run."""

    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager

    def keep(
        self, message: MessageExt | None, physical_offset: int, reason: str, topic: str = ""
    ) -> None:
        """Put a message aside that was for ``topic``; ``None`` if its record can't be read.

        Raises:
            StoreError: The store refuses all writes now, of any message.
        """
        reason, topic = _short(reason), _short(topic)
        dead = self._dead_letters(topic) if message is not None else None
        place = dead or PUT_ASIDE_TOPIC
        logger.error(
            "message at physical offset %d for topic %r can't be delivered: %s. It is parked in %s",
            physical_offset,
            topic,
            reason,
            place,
        )
        note = {
            PUT_ASIDE_REASON: reason,
            PUT_ASIDE_OFFSET: str(physical_offset),
            PUT_ASIDE_FOR: topic,
        }
        if message is not None:
            known = message.properties
            for properties in (known | note, _identity(known) | note, note):
                if self._append(message, place, properties):
                    return
        self._append(_nothing(self.store.config.store_host), PUT_ASIDE_TOPIC, note)

    def _dead_letters(self, topic: str) -> str | None:
        """Return the dead letter topic of the group of a retry topic, if it may have one."""
        if not topic.startswith(RETRY_PREFIX):
            return None
        group = topic.removeprefix(RETRY_PREFIX)
        name = DLQ_PREFIX + group
        is_group = group in self.groups.table and len(name.encode()) <= MAX_TOPIC_BYTES
        return name if is_group else None

    def _append(self, message: MessageExt, topic: str, properties: Mapping[str, str]) -> bool:
        try:
            append_copy(
                self.store,
                message,
                topic=topic,
                queue_id=0,
                properties=properties,
                reconsume_times=message.reconsume_times,
            )
        except MessageIllegal:
            return False
        self._topic(topic)
        return True

    def _topic(self, name: str) -> None:
        try:
            now(lambda: self.topics.create_in_send_back(name, 1, PERM_READ | PERM_WRITE))
        except (ProtocolError, OSError) as error:
            logger.error("messages are parked in %s, which can't be a topic: %s", name, error)


def _short(text: str) -> str:
    """Return what of ``text`` can be a property and a part of a line."""
    shown = "".join(each if each.isprintable() else "?" for each in text[:_MOST_CHARACTERS])
    return shown or "?"


def _identity(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what a message is known by."""
    return {name: properties[name][:1000] for name in (UNIQ_KEY, KEYS) if name in properties}


def _nothing(host: bytes) -> MessageExt:
    """Return the message that replaces a record that can't be read."""
    ip, port = unpack_host(host)
    return MessageExt(
        topic="",
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=(ip, port),
        store_timestamp=0,
        store_host=(ip, port),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"",
        properties={},
        store_size=0,
        body_crc=0,
    )
