"""The two directions of an HA connection, sans-I/O.

    slave -> master   | int64 |                                   the slave's max physical offset
    master -> slave   | int64 offset | int32 size | size bytes |  a slice of the commit log

Big-endian, no handshake, no version. The first report of a connection is the *start request*,
every report is also an acknowledgement. A frame of size 0 is a heartbeat carrying the next
offset. A frame never crosses the end of a commit log file, but cuts records anywhere. Source:
HAConnection and HAService.HAClient, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

REPORT: Final = struct.Struct(">q")
FRAME_HEADER: Final = struct.Struct(">qi")

_MOST_OFFSET: Final = 2**63 - 1
"""The largest end of a log that a report can carry."""

encode_report = REPORT.pack
"""``encode_report(max_physical_offset) -> bytes``."""

encode_frame_header = FRAME_HEADER.pack
"""``encode_frame_header(physical_offset, body_bytes) -> bytes``."""


def start_position(report: int, max_physical_offset: int, mapped_file_bytes: int) -> int:
    """Choose the first byte for a slave that reported ``report``.

    An empty slave starts with the master's last file, so it never gets the older ones; any other
    report is taken as it is.
    """
    if report == 0:
        return max_physical_offset - max_physical_offset % mapped_file_bytes
    return report


class ReportReader:
    """Reads a slave's reports from a stream that may be cut anywhere."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def receive_data(self, data: bytes) -> int | None:
        """Return the last complete report in ``data``; earlier ones are overtaken by it."""
        data = self._rest + data
        end = len(data) - len(data) % REPORT.size
        self._rest = data[end:]
        if end == 0:
            return None
        report: int = REPORT.unpack_from(data, end - REPORT.size)[0]
        return report


class LogRun(NamedTuple):
    """Adjacent bytes of the commit log, within one file."""

    physical_offset: int
    pieces: list[memoryview]


class Received(NamedTuple):
    """What one read from the master brought."""

    runs: list[LogRun]
    failure: str | None
    """Why the connection has to be closed, after the runs were appended."""


class SlaveStream:
    """Rebuilds the commit log from a master's frames.

    A body is handed on piece by piece as it arrives. What was received of a frame that a broken
    connection cut is a correct prefix of the master's log; the next report asks for the rest.
    """

    __slots__ = ("_any_offset", "_header", "_left", "_mapped_file_bytes", "_position")

    def __init__(self, max_physical_offset: int, mapped_file_bytes: int) -> None:
        self._position = max_physical_offset
        self._any_offset = max_physical_offset == 0  # no data yet: the first frame names the file
        self._left = 0  # body bytes still to come
        self._header = b""  # an incomplete header
        self._mapped_file_bytes = mapped_file_bytes

    def receive_data(self, data: bytes | memoryview) -> Received:
        """Take in ``data``; never raises: a bad frame ends the result with its ``failure``.

        The runs are views of ``data``.
        """
        runs: list[LogRun] = []
        view = memoryview(data)
        at, end = 0, len(data)
        while at < end:
            if self._left == 0:
                wanted = FRAME_HEADER.size - len(self._header)
                self._header += data[at : at + wanted]
                at += wanted
                if len(self._header) < FRAME_HEADER.size:
                    break
                failure = self._start_frame(self._header)
                self._header = b""
                if failure is not None:
                    return Received(runs, failure)
                continue
            piece = view[at : at + self._left]
            at += len(piece)
            self._add(runs, piece)
        return Received(runs, None)

    def _start_frame(self, header: bytes) -> str | None:
        offset, size = FRAME_HEADER.unpack(header)
        if not self._any_offset and offset != self._position:
            return f"the master sent offset {offset}, this slave is at {self._position}"
        if size < 0 or offset < 0 or offset + size > _MOST_OFFSET:
            return f"the master sent a frame of {size} bytes at offset {offset}"
        if offset % self._mapped_file_bytes + size > self._mapped_file_bytes:
            return (
                f"the master's frame of {size} bytes at offset {offset} crosses a commit log file "
                f"of {self._mapped_file_bytes} bytes: both brokers need one file size"
            )
        if size:
            self._position, self._left, self._any_offset = offset, size, False
        return None

    def _add(self, runs: list[LogRun], piece: memoryview) -> None:
        if not runs or self._position % self._mapped_file_bytes == 0:
            runs.append(LogRun(self._position, []))
        runs[-1].pieces.append(piece)
        self._position += len(piece)
        self._left -= len(piece)
