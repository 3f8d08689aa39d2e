"""Load of every kind of record on one broker, and what the broker acknowledged of it.

Plain sends, batches, delayed and half messages, ends of transactions, messages sent back and
commits of consumer offsets, many outstanding on one connection. A number in front of each body
tells messages apart; :class:`Acknowledged` outlives the broker's deaths.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final, cast

from failback.protocol.codes import TRANSACTION_COMMIT, TRANSACTION_PREPARED, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.frames import FrameReader
from failback.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    Header,
    UpdateConsumerOffsetRequestHeader,
)
from failback.protocol.message import BatchElement, encode_batch, parse_offset_msg_id
from tests.support.brokers.broker_lab import send_header

TOPIC: Final = "Load"
GROUP: Final = "LG"
QUEUES: Final = 3
OUTSTANDING: Final = 24
STORED_CODES: Final = frozenset((0, 10, 11, 12))
"""Answers that say a message is stored: OK, and three that say what is still missing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the broker says it stored a message."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass
class Acknowledged:
    """What was acknowledged so far, by the number of the message."""

    stored: dict[int, Place] = field(default_factory=dict)
    """Plain messages and those of batches."""
    delayed: set[int] = field(default_factory=set)
    half: dict[int, Place] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    sent_back: set[int] = field(default_factory=set)
    offsets: list[int] = field(default_factory=lambda: [-1])
    """Every consumer offset that was committed; -1 is that of nobody."""
    codes: Counter[int] = field(default_factory=Counter)
    replicated_end: int = 0
    """Largest physical offset of a message that was answered with SEND_OK."""
    next_number: int = 0

    @property
    def count(self) -> int:
        kinds = (self.stored, self.delayed, self.half, self.committed, self.sent_back)
        return sum(map(len, kinds))


class LoadConnection(asyncio.Protocol):
    """Keeps :data:`OUTSTANDING` requests under way until the connection ends."""

    def __init__(self, acknowledged: Acknowledged, random: Random) -> None:
        self._acknowledged = acknowledged
        self._random = random
        self._reader = FrameReader()
        self._waiting: dict[int, tuple[str, list[int]]] = {}
        self._next_opaque = 1
        self._transport: asyncio.Transport | None = None
        self._stopping = False
        self.first_answer = asyncio.Event()
        self.first_ok = asyncio.Event()
        """Set by the first SEND_OK: in a pair, the slave is there again."""
        self.lost = asyncio.Event()
        self.drained = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send(OUTSTANDING)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.first_answer.set()
        self.first_ok.set()
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        self._reader.receive_data(data)
        answers = 0
        while (frame := self._reader.next_frame()) is not None:
            answer = RemotingCommand.from_frame(frame)
            if answer.is_response:
                self._take(answer)
                answers += 1
        if answers:
            self.first_answer.set()
        if self._stopping:
            if not self._waiting:
                self.drained.set()
        else:
            self._send(answers)

    def stop(self) -> None:
        """Send nothing more; ``drained`` is set once everything is answered."""
        self._stopping = True
        if not self._waiting:
            self.drained.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- what is sent -----------------------------------------------------------------------

    def _send(self, count: int) -> None:
        if self._transport is not None and count:
            self._transport.write(b"".join(self._request() for _ in range(count)))

    def _request(self) -> bytes:
        random, acknowledged = self._random, self._acknowledged
        kind = random.choice(
            ("stored",) * 10
            + ("batch", "batch", "delayed", "half", "half", "end", "back", "offset")
        )
        if kind in ("end", "back"):
            known = acknowledged.half if kind == "end" else acknowledged.stored
            fresh = [n for n in list(known)[-40:] if n not in acknowledged.committed]
            if fresh:
                number = random.choice(fresh)
                return self._encode(kind, [number], *self._about(kind, number, known[number]))
            kind = "stored"
        if kind == "offset":
            offset = max(acknowledged.offsets) + 1
            commit = UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, 0, offset)
            return self._encode(kind, [offset], RequestCode.UPDATE_CONSUMER_OFFSET, commit, b"")
        if kind == "batch":
            numbers = [self._number() for _ in range(random.randint(2, 6))]
            body = encode_batch([BatchElement(0, self._body(n), b"TAGS\x01b") for n in numbers])
            header = send_header(topic=TOPIC, queue_id=0, batch=True, properties="")
            return self._encode("batch", numbers, RequestCode.SEND_BATCH_MESSAGE, header, body)
        number = self._number()
        flags = TRANSACTION_PREPARED if kind == "half" else 0
        properties = {
            "stored": f"KEYS\x01k{number}\x02TAGS\x01a",
            "delayed": f"DELAY\x01{random.choice((1, 2))}\x02KEYS\x01k{number}",
            "half": "TRAN_MSG\x01true\x02PGROUP\x01PG",
        }[kind]
        header = send_header(
            topic=TOPIC,
            queue_id=random.randrange(QUEUES),
            sys_flag=flags,
            properties=properties,
        )
        return self._encode(kind, [number], RequestCode.SEND_MESSAGE_V2, header, self._body(number))

    def _about(self, kind: str, number: int, place: Place) -> tuple[int, Header, bytes]:
        if kind == "back":
            back = ConsumerSendMsgBackRequestHeader(place.physical_offset, GROUP, 1)
            return RequestCode.CONSUMER_SEND_MSG_BACK, back, b""
        end = EndTransactionRequestHeader(
            "PG", place.queue_offset, place.physical_offset, TRANSACTION_COMMIT, str(number)
        )
        return RequestCode.END_TRANSACTION, end, b""

    def _number(self) -> int:
        self._acknowledged.next_number += 1
        return self._acknowledged.next_number

    def _body(self, number: int) -> bytes:
        return number.to_bytes(6, "big") + b"x" * self._random.choice((0, 40, 300, 2000))

    def _encode(
        self, kind: str, numbers: list[int], code: int, header: Header, body: bytes
    ) -> bytes:
        request = RemotingCommand.request(code, header, body)
        request.opaque = self._next_opaque
        self._next_opaque += 1
        self._waiting[request.opaque] = kind, numbers
        return request.encode()

    # --- what is answered -------------------------------------------------------------------

    def _take(self, answer: RemotingCommand) -> None:
        kind, numbers = self._waiting.pop(answer.opaque)
        acknowledged = self._acknowledged
        acknowledged.codes[answer.code] += 1
        if answer.code not in STORED_CODES:
            return
        if kind == "offset":
            acknowledged.offsets.append(numbers[0])
        elif kind == "end":
            acknowledged.committed.update(numbers)
        elif kind == "back":
            acknowledged.sent_back.update(numbers)
        elif kind == "delayed":
            acknowledged.delayed.update(numbers)
        else:
            self._take_places(kind, numbers, answer)

    def _take_places(self, kind: str, numbers: list[int], answer: RemotingCommand) -> None:
        fields = answer.ext_fields or {}
        queue_id, first = int(fields["queueId"]), int(fields["queueOffset"])
        ids = fields["msgId"].split(",")
        assert len(ids) == len(numbers)
        table = self._acknowledged.half if kind == "half" else self._acknowledged.stored
        for at, (number, message_id) in enumerate(zip(numbers, ids, strict=True)):
            physical_offset = parse_offset_msg_id(message_id)[2]
            table[number] = Place(TOPIC, queue_id, first + at, physical_offset)
            if answer.code == 0:
                self.first_ok.set()
                end = self._acknowledged.replicated_end
                self._acknowledged.replicated_end = max(end, physical_offset + 1)
