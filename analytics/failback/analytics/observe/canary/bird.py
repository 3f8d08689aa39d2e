"""A canary on one pair: a producer, a member that stays, and one that is handed over.

Its groups are kept a little behind what is sent: so the slave has something to serve while the
master is away, as it has for groups with a backlog.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Final

from failback.analytics.observe.canary.ledger import Names
from failback.client.consumelog.errors import ConsumeLogError
from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.lab_id import LAB_ID_PROPERTY, format_lab_id
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.common.numbers import whole_or_0
from failback.protocol.errors import FailbackError
from failback.protocol.message import MAX_OFFSET, MessageExt

logger = logging.getLogger(__name__)

SENDS_PER_SECOND: Final = 5.0
BACKLOG_PER_QUEUE: Final = 100
"""So far behind its groups are kept: for over a minute the slave has something to serve."""
FIRST_SENDS: Final = 400
_FIRST_SECONDS: Final = 0.02
_BEHIND_SECONDS: Final = 0.25
_CATCHING_UP_SECONDS: Final = 0.15
"""Time that a message takes to handle; the queues grow with the first, shrink with the second."""
_UNDER_WAY: Final = 64


class Bird:
    """The clients of a canary on one pair."""

    def __init__(
        self,
        names: Names,
        settings: ClientSettings,
        hook: LogHook,
        lane: int,
        *,
        is_new: bool,
    ) -> None:
        """``settings``: of clients that are new; ``is_new``: nothing was sent to the topic yet."""
        self.names = names
        self._settings = settings
        self._hook = hook
        self._lane = lane
        self._first = FIRST_SENDS if is_new else 0
        self._members = 0
        self._stays: PushConsumer | None = None
        self._moves: PushConsumer | None = None
        self._sending: asyncio.Task[None] | None = None

    @property
    def failure(self) -> Exception | None:
        """Why it stands still: its log took no more rows."""
        return next(
            (each.failure for each in (self._stays, self._moves) if each and each.failure), None
        )

    @property
    def has_moved_out(self) -> bool:
        """Whether the group that is handed over has no member now."""
        return self._moves is None

    async def start(self) -> None:
        """Begin to send and to consume.

        Raises:
            FailbackError: No name server answers, or the log takes no rows.
        """
        self._sending = asyncio.create_task(self._send(), name=f"send {self.names.topic}")
        self._stays = await self._member(self.names.stays)
        await self.move_in()

    async def move_out(self) -> None:
        """End the member that is handed over, in order: it commits where it can."""
        member, self._moves = self._moves, None
        if member is not None:
            await member.shutdown()

    async def move_in(self) -> None:
        """Start a member that is new in the group that is handed over."""
        self._moves = await self._member(self.names.moves)

    async def stop(self) -> None:
        """End all clients."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        if self._stays is not None:
            await self._stays.shutdown()
        await self.move_out()

    async def _member(self, group: str) -> PushConsumer:
        self._members += 1
        settings = replace(
            self._settings, instance_name=f"{self._settings.instance_name}-{self._members}"
        )
        made = PushConsumer(
            group, settings, _handle, hook=self._hook, consume_from=ConsumeFrom.FIRST_OFFSET
        )
        made.subscribe(self.names.topic)
        await made.start()
        return made

    async def _send(self) -> None:
        settings = replace(self._settings, instance_name=f"{self._settings.instance_name}-sends")
        under_way: set[asyncio.Task[None]] = set()
        async with Producer(f"{self.names.topic}-sends", settings, hook=self._hook) as producer:
            due, sent = time.monotonic(), 0
            while True:
                due += _FIRST_SECONDS if sent < self._first else 1 / SENDS_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if len(under_way) < _UNDER_WAY:
                    task = asyncio.create_task(self._send_one(producer, sent, due))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                sent += 1

    async def _send_one(self, producer: Producer, number: int, due: float) -> None:
        message = Message(
            self.names.topic,
            b"failback canary",
            properties={LAB_ID_PROPERTY: format_lab_id(self._lane, number)},
            due_ns=round(due * 1e9),
        )
        try:
            await producer.send(message)
        except FailbackError as error:  # the log has it
            logger.debug("a canary's send failed: %s", error)
        except ConsumeLogError:
            return  # told as the failure of the bird


async def _handle(messages: list[MessageExt]) -> ConsumeResult:
    last = messages[-1]
    behind = whole_or_0(last.properties.get(MAX_OFFSET)) - last.queue_offset
    await asyncio.sleep(_BEHIND_SECONDS if behind <= BACKLOG_PER_QUEUE else _CATCHING_UP_SECONDS)
    return ConsumeResult.SUCCESS
