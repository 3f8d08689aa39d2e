"""The clients of a canary on one pair, and when its second group changes its member.

The clients are a producer, a member that keeps its queues, and a member that leaves while the
master is down. Both groups are kept a little behind the producer. So the slave has messages to
serve while the master is down, as it has for groups with a backlog.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Final

from failback.analytics.observe.canary.ledger import Names
from failback.analytics.observe.folder import Wanted
from failback.analytics.observe.looks import ANSWERED, Look, Place
from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.hot_format import ConsumeLogError
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
"""Messages by which both groups are kept behind: the slave can serve them for over a minute."""
FIRST_SENDS: Final = 400
_FIRST_SECONDS: Final = 0.02
_BEHIND_SECONDS: Final = 0.25
_CATCHING_UP_SECONDS: Final = 0.15
"""Time to handle a message. The backlog grows with the first, and shrinks with the second."""
_UNDER_WAY: Final = 64
_LEAVE_SECONDS: Final = 10.0
"""A member leaves when the slave has served it for so long: two commits of its own."""
_SUSPEND_MS: Final = 1_000


def client_settings(wanted: Wanted, names: Names, instance: str) -> ClientSettings:
    """Return the settings of a canary's clients on one pair."""
    return ClientSettings(
        namesrv_addrs=wanted.name_servers,
        access=wanted.access,
        instance_name=instance,
        default_topic=names.topic,  # no other broker may be asked to make it
        consume_threads=1,
        pull_batch_size=2,
        pull_threshold_for_queue=1,
        pull_flow_control_delay_ms=250,
        slave_behind_backoff_ms=250,
        broker_suspend_max_ms=_SUSPEND_MS,
    )


class PairClients:
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
        """``settings``: of all its clients; ``is_new``: nothing was sent to the topic yet."""
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
        """Why the clients stopped: their log took no more rows."""
        return next(
            (each.failure for each in (self._stays, self._moves) if each and each.failure), None
        )

    @property
    def has_moved_out(self) -> bool:
        """Whether the group ``moves`` has no member now."""
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
        """Shut the member of the group ``moves`` down: it commits where it can."""
        member, self._moves = self._moves, None
        if member is not None:
            await member.shutdown()

    async def move_in(self) -> None:
        """Start a new member in the group ``moves``."""
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
            return  # the member of a group has it as its failure


async def _handle(messages: list[MessageExt]) -> ConsumeResult:
    last = messages[-1]
    behind = whole_or_0(last.properties.get(MAX_OFFSET)) - last.queue_offset
    await asyncio.sleep(_BEHIND_SECONDS if behind <= BACKLOG_PER_QUEUE else _CATCHING_UP_SECONDS)
    return ConsumeResult.SUCCESS


class SlaveService:
    """Measures for how long slaves have taken the commits of one group."""

    def __init__(self, key: str) -> None:
        """``key``: of tables of offsets, ``topic@group``."""
        self._key = key
        self._before = 0
        """The group's offsets at the slave when the master was there last, added up."""
        self._since: float | None = None

    def master_is_there(self, pair: str, look: Look) -> None:
        """Begin again: the offsets that the slave has now are copies of the master's."""
        self._before, self._since = self._offsets(pair, look), None

    def is_long(self, pair: str, look: Look) -> bool:
        """Return whether slaves have served for long enough since the master went."""
        if self._since is None and self._offsets(pair, look) > self._before:
            self._since = look.ended
        return self._since is not None and look.ended - self._since >= _LEAVE_SECONDS

    def _offsets(self, pair: str, look: Look) -> int:
        """Return the sum of the group's offsets at the slave that is furthest."""
        found = [
            sum((each.offsets or {}).get(self._key, {}).values())
            for each in look.brokers
            if each.pair == pair and each.broker_id != 0
        ]
        return max(found, default=0)


def master_serves(pair: str, look: Look) -> bool:
    """Return whether new members will ask the master: it answers, and every route has it."""
    master = look.at(Place(pair, 0))
    answers = master is not None and master.state == ANSWERED and master.offsets is not None
    listings = [each for each in look.listings.values() if each is not None]
    return answers and all(0 in each.get(pair, {}) for each in listings)
