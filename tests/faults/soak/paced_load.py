"""Steady load for a soak: a paced producer and consumers that follow it, as lean as they can be."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.frames import FrameReader
from failback.protocol.message import decode_records
from tests.support.brokers.broker_lab import pull_header, send_header

TOPIC: Final = "Soak"
QUEUES: Final = 4
_FIRST_OPAQUE: Final = 1_000_000_000  # a fixed width, so that frames differ in digits only
_TICK_SECONDS: Final = 0.01
_OUTSTANDING: Final = 64


class Producer(asyncio.Protocol):
    """Sends as fast as the broker answers, or :attr:`rate` messages a second."""

    def __init__(self, body_bytes: int) -> None:
        self.rate: float | None = None
        self.acknowledged = 0
        self.codes: Counter[int] = Counter()
        self.lost: Exception | str | None = None
        self._templates = [_template(queue, bytes(body_bytes)) for queue in range(QUEUES)]
        self._reader = FrameReader()
        self._next = _FIRST_OPAQUE
        self._budget = 0.0
        self._loop = asyncio.get_running_loop()
        self._ticked = self._loop.time()
        self._transport: asyncio.Transport | None = None

    @property
    def outstanding(self) -> int:
        return self._next - _FIRST_OPAQUE - self.acknowledged

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._fill()
        self._tick()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = error or "closed"
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._reader.receive_data(data)
        while (frame := self._reader.next_frame()) is not None:
            self.codes[RemotingCommand.from_frame(frame).code] += 1
            self.acknowledged += 1
        if self.rate is None:
            self._fill()

    def stop(self) -> None:
        """Send nothing more; answers still come."""
        self.rate, self._budget = 0.0, 0.0

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _fill(self) -> None:
        self._send(_OUTSTANDING - self.outstanding)

    def _tick(self) -> None:
        now = self._loop.time()
        passed, self._ticked = now - self._ticked, now
        if self._transport is None:
            return
        if self.rate is not None:
            # What a stalled broker missed is not made up for: the rate is an upper limit.
            self._budget = min(self._budget + passed * self.rate, self.rate / 5)
            count = min(int(self._budget), 1000 - self.outstanding)
            self._budget -= max(count, 0)
            self._send(count)
        self._loop.call_later(_TICK_SECONDS, self._tick)

    def _send(self, count: int) -> None:
        if self._transport is None or count <= 0:
            return
        parts = []
        for number in range(self._next, self._next + count):
            digits = b"%d" % number
            head, between, tail = self._templates[number % QUEUES]
            parts += [head, digits, between, digits, tail]
        self._next += count
        self._transport.write(b"".join(parts))


def _template(queue_id: int, body: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a send around its two numbers: the key of the message, and the opaque."""
    key = str(_FIRST_OPAQUE + 1)
    header = send_header(topic=TOPIC, queue_id=queue_id, properties=f"KEYS\x01{key}\x02TAGS\x01a")
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
    request.opaque = _FIRST_OPAQUE
    frame = request.encode()
    if frame.find(key.encode()) > frame.find(str(_FIRST_OPAQUE).encode()):
        raise AssertionError("the opaque is written before the fields")
    head, rest = frame.split(key.encode())
    between, tail = rest.split(str(_FIRST_OPAQUE).encode())
    return head, between, tail


class Consumer(asyncio.Protocol):
    """Pulls one queue from ``offset`` on, for ever; goes to where the broker points it."""

    def __init__(self, queue_id: int, offset: int = 0) -> None:
        self.queue_id = queue_id
        self.offset = offset
        self.consumed = 0
        self.gaps = 0
        self.moved = 0
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pull()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _pull(self) -> None:
        if self._transport is None:
            return
        header = pull_header(
            topic=TOPIC,
            queue_id=self.queue_id,
            queue_offset=self.offset,
            sys_flag=6,
            suspend_timeout_millis=1000,
        )
        self._transport.write(RemotingCommand.request(RequestCode.PULL_MESSAGE, header).encode())

    def data_received(self, data: bytes) -> None:
        self._reader.receive_data(data)
        while (frame := self._reader.next_frame()) is not None:
            answer = RemotingCommand.from_frame(frame)
            if not answer.is_response:
                continue
            if answer.code == 0:
                records = decode_records(answer.body, decompress=False)
                self.gaps += records[0].queue_offset != self.offset
                self.consumed += len(records)
                self.offset = records[-1].queue_offset + 1
            elif "nextBeginOffset" in (answer.ext_fields or {}):
                assert answer.ext_fields is not None
                target = int(answer.ext_fields["nextBeginOffset"])
                self.moved += target != self.offset
                self.offset = target
            self._pull()


def process_figures(pid: int) -> dict[str, int]:
    """Return anonymous and file memory in KiB, open files and threads of a process.

    ``others`` are the open files that are none of a consume queue: queue files stay open as long
    as they live, so there are as many as the load of the last while has filled.
    """
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(os.readlink(entry))
    return {
        "anon": int(lines["RssAnon"].split()[0]),
        "file": int(lines["RssFile"].split()[0]),
        "fds": len(names),
        "others": sum("/consumequeue/" not in name for name in names),
        "threads": int(lines["Threads"]),
    }
