"""Remoting frames: the envelope of every request and response, sans-I/O.

    | length int32 | serialize type uint8, header length uint24 | header | body |

Big-endian; *length* counts what follows it, so it is 4 + header + body. Source:
RemotingCommand.encodeHeader and NettyDecoder, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from failback.protocol.errors import FrameTooLarge, ProtocolError

SERIALIZE_JSON: Final = 0
SERIALIZE_ROCKETMQ: Final = 1

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""NettyDecoder's default for a whole frame, its length field included."""

PREFIX: Final = struct.Struct(">iI")  # length; serialize type in the top byte, header length
LENGTH_BYTES: Final = 4


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One whole frame: ``header`` and ``body`` are copies of their bytes."""

    serialize_type: int
    header: bytes
    body: bytes = b""


class FrameReader:
    """Rebuilds frames from a byte stream that may be cut anywhere.

    A frame in the making is kept as the list of chunks it came in and joined once: adding to
    a bytes object per chunk would be quadratic for bodies of several MiB.
    """

    __slots__ = ("_buffer", "_chunk_bytes", "_chunks", "_max_frame_bytes", "_position")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = b""
        self._position = 0
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return len(self._buffer) - self._position + self._chunk_bytes

    def receive_data(self, data: bytes) -> None:
        """Store the next piece of the stream; look at it in :meth:`next_frame` only."""
        if self._position == len(self._buffer) and not self._chunks:
            self._buffer, self._position = bytes(data), 0
        else:
            self._chunks.append(bytes(data))
            self._chunk_bytes += len(data)

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or ``None`` when more bytes are needed.

        Raises:
            FrameTooLarge: The announced length is above the limit.
            ProtocolError: The lengths contradict each other, or the serialize type is
                unknown. Close the connection: every later call raises again.
        """
        if not self._available(PREFIX.size):
            return None
        length, mark = PREFIX.unpack_from(self._buffer, self._position)
        header_bytes = mark & 0xFFFFFF
        check_prefix(length, mark >> 24, header_bytes, self._max_frame_bytes)
        if not self._available(LENGTH_BYTES + length):
            return None
        header_start = self._position + PREFIX.size
        body_start = header_start + header_bytes
        end = self._position + LENGTH_BYTES + length
        self._position = end
        return Frame(
            mark >> 24, self._buffer[header_start:body_start], self._buffer[body_start:end]
        )

    def _available(self, wanted: int) -> bool:
        """Whether ``wanted`` bytes lie in one piece at the position; joins chunks if so."""
        if wanted <= len(self._buffer) - self._position:
            return True
        if wanted > self.buffered_bytes:
            return False
        self._buffer = b"".join((self._buffer[self._position :], *self._chunks))
        self._position = 0
        self._chunks.clear()
        self._chunk_bytes = 0
        return True


def check_prefix(length: int, serialize_type: int, header_bytes: int, max_frame_bytes: int) -> None:
    """Check the lengths of a frame before any of it is buffered.

    Raises:
        FrameTooLarge: ``length`` and its own four bytes are above ``max_frame_bytes``.
        ProtocolError: Anything else is wrong with the prefix.
    """
    if length + LENGTH_BYTES > max_frame_bytes:
        raise FrameTooLarge(length + LENGTH_BYTES, max_frame_bytes)
    if header_bytes > length - 4:
        raise ProtocolError(f"header of {header_bytes} bytes in a frame of length {length}")
    if serialize_type > SERIALIZE_ROCKETMQ:
        raise ProtocolError(f"unknown serialize type {serialize_type}")


def encode_frame(serialize_type: int, header: bytes, body: bytes = b"") -> bytes:
    """Put ``header`` and ``body`` into one frame.

    Raises:
        FrameTooLarge: The peer would close the connection on it.
    """
    frame_bytes = PREFIX.size + len(header) + len(body)
    if frame_bytes > MAX_FRAME_BYTES:
        raise FrameTooLarge(frame_bytes, MAX_FRAME_BYTES)
    prefix = PREFIX.pack(frame_bytes - LENGTH_BYTES, serialize_type << 24 | len(header))
    return b"".join((prefix, header, body))
