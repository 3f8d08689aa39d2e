"""Deletions, as records of the log: a reader of the log meets them in their order.

A topic that is deleted leaves its records behind, and one that is made again begins at queue offset
0 again. So that a recovery and a slave take no record of the earlier life for one of the later, the
deletion itself is a record. It is of type rollback and for SCHEDULE_TOPIC_XXXX, which no client may
send to, with what was deleted as a property. It has no queue entry and no key, and a Java broker
passes it over.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from failback.broker.store.log.record import Record, property_value
from failback.protocol.codes import SCHEDULE_TOPIC, TRANSACTION_MASK, TRANSACTION_ROLLBACK

DELETION_TOPIC: Final = SCHEDULE_TOPIC.encode()


class Deleted(Enum):
    """What was deleted, with the name of the property that says which."""

    TOPIC = b"FAILBACK_DELETED_TOPIC\x01"
    """Its queues and the offsets of all groups on it."""
    GROUP = b"FAILBACK_DELETED_GROUP\x01"
    """Its configuration; its offsets stay."""
    GROUP_AND_OFFSETS = b"FAILBACK_DELETED_GROUP_AND_OFFSETS\x01"


class Deletion(NamedTuple):
    """One deletion, as the log tells it."""

    kind: Deleted
    name: str
    at_ms: int
    """The record's store timestamp; never smaller than that of an earlier deletion."""


def pack_deletion(kind: Deleted, name: str) -> bytes:
    """Return the properties of the record that says so."""
    return kind.value + name.encode(errors="surrogateescape")


def deletion_of(record: Record) -> Deletion | None:
    """Return what a record without a queue entry says was deleted; ``None`` for any other."""
    if record.topic != DELETION_TOPIC or (
        record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    ):
        return None
    for kind in Deleted:
        name = property_value(record.properties, kind.value)
        if name:
            return Deletion(kind, name.decode(errors="surrogateescape"), record.store_timestamp)
    return None
