"""Answers to sends, made from a template per broker.

It holds the broker's part of every message id and its region, escaped once; the pull answer,
which has neither, is :func:`failback.protocol.command.encode_pull_response_head`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from failback.broker.native import kernels
from failback.protocol.codes import VERSION
from failback.protocol.frames import PREFIX

_TAIL: Final = b'"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
_message_ids: Final[Callable[[bytes, list[int]], bytes] | None] = (
    kernels.message_ids if kernels is not None else None
)


class SendAnswers:
    """Formats the answers to SEND_MESSAGE for one broker.

    The message id is the hexadecimal ``store_host`` and the record's physical offset.
    """

    __slots__ = ("_id_prefix", "_many", "_one", "pieces")

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        self._id_prefix = store_host.hex().upper().encode()
        extra = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
        # Twice formatted: a per cent sign in the region must survive both times.
        escaped = msgspec.json.encode(extra)[:-1].replace(b"%", b"%%")
        tail = b'"flag":1,"language":"PYTHON","opaque":%d,' + _TAIL
        fields = b'"queueId":"%d","queueOffset":"%d"},' + tail
        head = b'{"code":%d,"extFields":' + escaped + b',"msgId":"'
        self._one = head + self._id_prefix + b'%016X",' + fields
        self._many = head + b'%s",' + fields
        self.pieces = (
            b'{"code":0,"extFields":%s,"msgId":"%s'
            % (msgspec.json.encode(extra)[:-1], self._id_prefix),
            b'","queueId":"',
            b'","queueOffset":"',
            b'"},"flag":1,"language":"PYTHON","opaque":',
            b"," + _TAIL,
        )
        """Of :meth:`one` with code 0: between them go the offset, 16 hex digits, queue id, queue
        offset and opaque."""

    def message_id(self, physical_offset: int) -> bytes:
        return b"%s%016X" % (self._id_prefix, physical_offset)

    def message_ids(self, physical_offsets: list[int]) -> bytes:
        """Return the ids of a batch's messages, joined by commas; twin in ``native/batch.c``."""
        if _message_ids is not None:
            return _message_ids(self._id_prefix, physical_offsets)
        return b",".join(map(self.message_id, physical_offsets))

    def one(
        self, code: int, opaque: int, physical_offset: int, queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the whole frame that answers a single message."""
        header = self._one % (code, physical_offset, queue_id, queue_offset, opaque)
        size = len(header)
        return PREFIX.pack(size + 4, size) + header

    def many(
        self, code: int, opaque: int, message_ids: bytes, queue_id: int, queue_offset: int
    ) -> bytes:
        """Return the whole frame that answers a batch; ``message_ids`` joined by commas."""
        header = self._many % (code, message_ids, queue_id, queue_offset, opaque)
        size = len(header)
        return PREFIX.pack(size + 4, size) + header
