"""Every kind of record, stored through a broker over the wire, and what it acknowledged.

What is sent, in which order and how large, comes from a seed; several lanes send at the same
time until they are told to stop or the broker is gone. The broker may be of either engine.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from failback.broker.metadata.topics import TRANS_HALF_TOPIC
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import (
    PULL_SUBSCRIPTION,
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    RequestCode,
    ResponseCode,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from failback.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    from_ext,
)
from failback.protocol.message import (
    BatchElement,
    MessageExt,
    decode_records,
    encode_batch,
    parse_offset_msg_id,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.common.polling import SCALE, until

TOPIC: Final = "MixedTopic"
QUEUES: Final = 4
GROUP: Final = "mixed-group"
PRODUCERS: Final = "mixed-producers"
LEVELS: Final = "1s 8s 2s 2h"
"""messageDelayLevel: 2 falls due soon after the kill, 3 is that of a first retry, 4 stays."""
SOON, NEVER = 2, 4
RETRY_TOPIC: Final = f"%RETRY%{GROUP}"
DLQ_TOPIC: Final = f"%DLQ%{GROUP}"
_TIMEOUT_MS: Final = 20_000 * SCALE
_KINDS: Final = (
    "plain",
    "plain",
    "plain",
    "bare",
    "batch",
    "soon",
    "never",
    "half",
    "back",
    "dead",
)


class Busy(Exception):
    """The broker took nothing: too much at once (code 2). Apache's does that on a slow machine."""


@dataclass
class Acked:
    """One message that the broker acknowledged."""

    kind: str
    topic: str
    """Where it is stored: not the one it was sent to when it waits."""
    unique: str
    keys: list[str]
    body: bytes
    physical_offset: int
    queue_id: int
    queue_offset: int


@dataclass
class Done:
    """All that was acknowledged."""

    messages: list[Acked] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    open: list[Acked] = field(default_factory=list)
    """Half messages without an end."""
    sent_back: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    bytes: int = 0

    def of(self, *kinds: str) -> list[Acked]:
        return [message for message in self.messages if message.kind in kinds]


class MixedLoad:
    """Requests of one client process to one broker."""

    def __init__(self, address: str, client: RemotingClient, admin: AdminClient, seed: int) -> None:
        self.address = address
        self.client = client
        self.admin = admin
        self.seed = seed
        self.done = Done()
        self._count = 0
        self._stop = False

    # --- storing ----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make topic and group, wait until the topic takes messages."""
        await self.admin.create_topic(self.address, TopicConfig(TOPIC, QUEUES, QUEUES))
        await self.admin.create_group(self.address, SubscriptionGroupConfig(GROUP))

    async def run(self, lanes: int, until_bytes: int) -> None:
        """Send until ``until_bytes`` are acknowledged in all; then lanes end one by one."""
        self._stop = False
        tasks = [asyncio.create_task(self._lane(number)) for number in range(lanes)]
        try:
            await until(
                lambda: self.done.bytes >= until_bytes or all(task.done() for task in tasks),
                "the load",
                60,
            )
        finally:
            self._stop = True
        await asyncio.gather(*tasks)

    def start(self, lanes: int) -> list[asyncio.Task[None]]:
        """Send until the broker is gone."""
        self._stop = False
        return [asyncio.create_task(self._lane(number)) for number in range(lanes)]

    async def _lane(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}/{self._count}")
        while not self._stop:
            try:
                await self._one(rng)
            except Busy:
                await asyncio.sleep(0.05)
            except RemotingError:
                return  # the broker was killed

    async def _one(self, rng: random.Random) -> None:
        kind = rng.choice(_KINDS)
        if kind == "batch":
            await self._send_batch(rng)
        elif kind == "half":
            await self._send_half(rng)
        elif kind in ("back", "dead"):
            await self._send_back(rng, kind)
        else:
            await self._send(rng, kind)

    def _names(self) -> tuple[str, str]:
        """Return a unique key as clients make it, and a key of the application."""
        self._count += 1
        number = self._count
        return f"7F0000010001{self.seed & 0xFFFFFFFF:08X}{number:012X}", f"order-{number}"

    async def _send(self, rng: random.Random, kind: str) -> Acked:
        unique, key = self._names()
        keys = [] if kind == "bare" else [key, f"customer-{rng.randrange(5)}"]
        properties = {"UNIQ_KEY": unique, "WAIT": "true"}
        if keys:
            properties |= {"KEYS": " ".join(keys), "TAGS": rng.choice(("TagA", "TagB"))}
        topic = TOPIC
        if kind in ("soon", "never"):
            properties["DELAY"] = str(SOON if kind == "soon" else NEVER)
            topic = SCHEDULE_TOPIC
        body = _body(rng, unique)
        answer = await self._store(rng.randrange(QUEUES), _text(properties), body)
        return self._note(kind, topic, unique, keys, body, answer)

    async def _send_half(self, rng: random.Random) -> None:
        unique, key = self._names()
        properties = {"UNIQ_KEY": unique, "KEYS": key, "TRAN_MSG": "true", "PGROUP": PRODUCERS}
        body = _body(rng, unique)
        queue_id = rng.randrange(QUEUES)
        answer = await self._store(queue_id, _text(properties), body, TRANSACTION_PREPARED)
        half = self._note("half", TRANS_HALF_TOPIC, unique, [key], body, answer)
        end = rng.choice((TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0))
        if end == 0:
            self.done.open.append(half)
            return
        await self.end_transaction(half, end)
        if end == TRANSACTION_COMMIT:
            self.done.committed.append(unique)
        else:
            self.done.rolled_back.append(unique)

    async def end_transaction(self, half: Acked, end: int) -> None:
        """Commit or roll back; the broker must know the half message."""
        header = EndTransactionRequestHeader(
            PRODUCERS, half.queue_offset, half.physical_offset, end, half.unique
        )
        await self._ask(RequestCode.END_TRANSACTION, header)

    async def _send_batch(self, rng: random.Random) -> None:
        named = [self._names() for _ in range(rng.randrange(2, 8))]
        bodies = [_body(rng, unique) for unique, _ in named]
        elements = [
            BatchElement(0, body, _text({"UNIQ_KEY": unique, "KEYS": key}).encode())
            for (unique, key), body in zip(named, bodies, strict=True)
        ]
        header = self._header(rng.randrange(QUEUES), "WAIT\x01true", batch=True)
        answer = await self._ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(elements))
        sent = from_ext(SendMessageResponseHeader, answer.ext_fields)
        for at, (message_id, (unique, key), body) in enumerate(
            zip(sent.msg_id.split(","), named, bodies, strict=True)
        ):
            *_, physical_offset = parse_offset_msg_id(message_id)
            place = physical_offset, sent.queue_id, sent.queue_offset + at
            self._keep(Acked("batch", TOPIC, unique, [key], body, *place))

    async def _send_back(self, rng: random.Random, kind: str) -> None:
        """A consumer could not do with a message: it is re-consumed later, or it is parked."""
        failed = await self._send(rng, "plain")
        header = ConsumerSendMsgBackRequestHeader(
            failed.physical_offset,
            GROUP,
            0 if kind == "back" else -1,
            failed.unique,
            TOPIC,
            max_reconsume_times=16,
        )
        await self._ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        (self.done.sent_back if kind == "back" else self.done.dead).append(failed.unique)

    async def _store(
        self, queue_id: int, properties: str, body: bytes, sys_flag: int = 0
    ) -> SendMessageResponseHeader:
        header = self._header(queue_id, properties, sys_flag)
        answer = await self._ask(RequestCode.SEND_MESSAGE_V2, header, body)
        return from_ext(SendMessageResponseHeader, answer.ext_fields)

    def _header(
        self, queue_id: int, properties: str, sys_flag: int = 0, *, batch: bool = False
    ) -> SendMessageRequestHeaderV2:
        return SendMessageRequestHeaderV2(
            producer_group=PRODUCERS,
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=1_700_000_000_000,
            flag=7,
            properties=properties,
            reconsume_times=0,
            batch=batch,
        )

    def _note(
        self,
        kind: str,
        topic: str,
        unique: str,
        keys: list[str],
        body: bytes,
        answer: SendMessageResponseHeader,
    ) -> Acked:
        *_, physical_offset = parse_offset_msg_id(answer.msg_id)
        place = physical_offset, answer.queue_id, answer.queue_offset
        acked = Acked(kind, topic, unique, keys, body, *place)
        self._keep(acked)
        return acked

    def _keep(self, acked: Acked) -> None:
        self.done.messages.append(acked)
        self.done.bytes += len(acked.body)

    async def _ask(self, code: int, header: object, body: bytes = b"") -> RemotingCommand:
        answer = await self.client.invoke(
            self.address,
            RemotingCommand.request(code, header, body),  # type: ignore[arg-type]
            _TIMEOUT_MS,
        )
        if answer.code == ResponseCode.SYSTEM_BUSY:
            raise Busy
        assert answer.code == ResponseCode.SUCCESS, (code, answer.code, answer.remark)
        return answer

    # --- reading ----------------------------------------------------------------------------

    async def read_queue(self, topic: str, queue_id: int) -> list[MessageExt]:
        """Pull a whole queue."""
        offset = await self.admin.min_offset(self.address, topic, queue_id)
        end = await self.admin.max_offset(self.address, topic, queue_id)
        messages: list[MessageExt] = []
        while offset < end:
            header = PullMessageRequestHeader(
                GROUP, topic, queue_id, offset, 32, PULL_SUBSCRIPTION, 0, 0, 0, "*"
            )
            request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            answer = await self.client.invoke(self.address, request, _TIMEOUT_MS)
            assert answer.code == ResponseCode.SUCCESS, (topic, queue_id, offset, answer)
            messages += decode_records(answer.body)
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
        return messages

    async def read_topic(self, topic: str, queues: int = 1) -> list[MessageExt]:
        """Pull all queues of a topic."""
        return [
            message
            for queue_id in range(queues)
            for message in await self.read_queue(topic, queue_id)
        ]


@asynccontextmanager
async def mixed_load(address: str, seed: int) -> AsyncIterator[MixedLoad]:
    """Yield a client of the broker at ``address``."""
    timeout_ms = _TIMEOUT_MS
    async with AdminClient([], timeout_ms=timeout_ms) as admin, RemotingClient() as client:
        yield MixedLoad(address, client, admin, seed)


def _text(properties: dict[str, str]) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


def _body(rng: random.Random, unique: str) -> bytes:
    """Return up to 20 kB that begin with the message's id."""
    return json.dumps({"id": unique}).encode().ljust(rng.randrange(500, 20_000), b" ")
