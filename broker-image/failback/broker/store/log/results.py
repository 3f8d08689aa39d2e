"""What the store answers: results of appending and of reading, and its refusals."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, NamedTuple

import msgspec

from failback.protocol.codes import ResponseCode
from failback.protocol.errors import StoreError


class PutRefused(StoreError):
    """The store did not take a message; :attr:`code` answers it."""

    code: ClassVar[ResponseCode]


class MessageIllegal(PutRefused):
    """The message breaks a limit of the format or of the configuration. Nothing was written."""

    code = ResponseCode.MESSAGE_ILLEGAL


class ServiceNotAvailable(PutRefused):
    """The store takes no writes: it is a slave's, closed, or its disk is full or failed."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE


class WriteFailed(StoreError):
    """The disk broke at a write; the pending records are dropped and the store takes no more."""


class WriteRefused(StoreError):
    """The disk had no room for a write after all; the pending records are dropped.

    The store takes messages again when there is room.
    """


class Appended(NamedTuple):
    """Where a record went. It is readable after the next ``commit_pending``."""

    physical_offset: int
    """Byte of the log where it starts."""
    queue_offset: int
    end_offset: int
    """Byte behind it: what a flush or a slave must reach to hold it."""
    store_timestamp: int
    """Milliseconds; never smaller than that of the record before."""


class AppendedBatch(NamedTuple):
    """Where the messages of a batch went, one behind the other."""

    physical_offsets: list[int]
    queue_offset: int
    """Of the first."""
    end_offset: int
    """Byte behind the last."""
    store_timestamp: int


class GetStatus(IntEnum):
    """What a read found; the names are those of Java's GetMessageStatus."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class GetResult(msgspec.Struct, frozen=True, gc=False):
    """Messages of one queue and where to go on. Offsets are queue offsets.

    ``chunks`` are views of the mapped log; each holds one or several whole records, and all of
    them joined are the body of a pull answer. A view keeps its mapping alive, so drop it soon.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_pulling_from_slave: bool = False
    chunks: tuple[memoryview, ...] = ()
    message_count: int = 0
    bytes: int = 0
