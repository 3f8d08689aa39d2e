"""Real brokers, push consumers of ours and kills: what the tests of failure modes are made of.

Periods are short and keep their proportions: a broker of ours runs at :data:`BROKER_SCALE` of its
intervals, consumers at :data:`CLIENT_SCALE` of their periods and with unscaled timeouts. An Apache
broker has its real timers.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.consumer.consumer import PushConsumer
from failback.client.instance.instance import ClientManager
from failback.client.model import ConsumeFrom
from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.settings import ClientSettings
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from tests.faults.modes.mode_evidence import (
    BROKER_SCALE,
    CLIENT_SCALE,
    PATIENT_SECONDS,
    Member,
    Periods,
    success,
)
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE as PATIENCE
from tests.support.java.apache import Broker, Engine, NameServer
from tests.support.java.java_lab import Lab

ENGINES = ["failback", "apache"]
"""For tests that take seconds on either engine."""
ENGINES_SLOW = ["failback", pytest.param("apache", marks=pytest.mark.soak)]
"""For tests that wait for several of Apache's real periods."""

_NAMES = itertools.count(1)
_ERRORS = (BrokerError, RemotingError, ProtocolError)
_PERIODS = (
    "poll_name_server_interval_ms",
    "heartbeat_interval_ms",
    "persist_offset_interval_ms",
    "persist_offset_first_ms",
    "rebalance_interval_ms",
    "offset_illegal_delay_ms",
    "pull_error_delay_ms",
    "resubmit_delay_ms",
)


def unique(name: str) -> str:
    """Return a name that no other broker, topic or group of this process has."""
    return f"{name}-{next(_NAMES)}"


class _Beside(ABC):
    """Goes on in a task of its own from :meth:`begin` to :meth:`stop`."""

    _task: asyncio.Task[None] | None = None
    _is_over: bool = False

    def begin(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def stop(self) -> None:
        self._is_over = True
        if self._task is not None:
            await self._task

    @abstractmethod
    async def _run(self) -> None:
        """What goes on beside the test, until it is over."""


@dataclass
class Load(_Beside):
    """Sends one message after another to a queue until it is stopped or the broker is gone."""

    lab: ModeLab
    broker: Broker
    topic: str
    sent: list[bytes] = field(default_factory=list)

    async def _run(self) -> None:
        while not self._is_over:
            try:
                self.sent += await self.lab.send(self.broker, self.topic, 1)
            except _ERRORS:
                return
            await asyncio.sleep(0.01)


@dataclass
class Watch(_Beside):
    """Remembers when a group's offset at a broker last changed, by :func:`time.monotonic`."""

    lab: ModeLab
    broker: Broker
    group: str
    topic: str
    changed_at: float = 0.0

    async def _run(self) -> None:
        known: int | None = None
        while not self._is_over:
            try:
                found = await self.lab.offset(self.broker, self.group, self.topic)
            except _ERRORS:
                return
            if found != known:
                known, self.changed_at = found, time.monotonic()
            await asyncio.sleep(0.02)


class ModeLab(Lab):
    """The brokers and consumers of one test: ``async with ModeLab(...) as lab``."""

    def __init__(self, folder: Path, engine: Engine, name_server: NameServer | None) -> None:
        """Without a ``name_server`` it starts one of the same engine."""
        super().__init__(folder)
        self.engine = engine
        self.periods = Periods.of(engine)
        self.ns = name_server or self.namesrv(engine)
        self._tasks: list[Load | Watch] = []
        self._members: list[Member] = []
        self._bodies = itertools.count()

    async def __aenter__(self) -> Self:
        self.admin = AdminClient([self.ns.address])
        self.client = RemotingClient()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            await task.stop()
        for member in self._members:
            await member.stop()
        await self.client.close()
        await self.admin.close()
        self.dispose()

    # --- brokers ---

    def node(self, name: str = "", scale: float = BROKER_SCALE, **fields: Any) -> Broker:
        """Return a broker of the test's engine, not started."""
        settings = {"slaveReadEnable": "false", **fields.pop("settings", {})}
        if self.engine == "failback":
            settings = {"failbackTimeScale": scale} | settings
        return self.broker(
            self.engine, self.ns, name=name or unique("broker"), settings=settings, **fields
        )

    def slave_of(self, master: Broker, **fields: Any) -> Broker:
        """Return a slave of ``master``, not started."""
        return self.node(name=master.name, broker_id=1, role="SLAVE", **fields)

    async def start(self, *brokers: Broker) -> None:
        """Start brokers one after another; each answers when the next is started."""
        for broker in brokers:
            await asyncio.to_thread(broker.start)
            await self.answers(broker)

    async def answers(self, broker: Broker) -> None:
        """Wait until a broker answers, over a connection to its present life."""
        await self.comes(lambda: self._is_up(broker), True, f"{broker.name} answers")

    async def _is_up(self, broker: Broker) -> bool:
        return bool(await self.admin.runtime_info(broker.address))

    async def ends(self, broker: Broker, topic: str, wanted: int, queue_id: int = 0) -> None:
        """Wait until a queue of a broker ends at ``wanted``."""
        await self.comes(
            lambda: self.admin.max_offset(broker.address, topic, queue_id),
            wanted,
            f"{topic} ends there",
        )

    async def topic_is_at(self, broker: Broker, topic: str) -> None:
        """Wait until a slave has copied a topic."""

        async def is_there() -> bool:
            return topic in (await self.admin.all_topic_config(broker.address)).topic_config_table

        await self.comes(is_there, True, f"{topic} at {broker.address}")

    async def comes(self, ask: Callable[[], Awaitable[Any]], wanted: Any, what: str) -> None:
        """Ask until the answer is ``wanted``; a call that fails is asked again."""
        deadline = time.monotonic() + PATIENT_SECONDS * PATIENCE
        found: Any = None
        while found != wanted:
            assert time.monotonic() < deadline, f"{what}: {found!r}, wanted {wanted!r}"
            try:
                found = await ask()
            except _ERRORS as error:
                found = error
            if found != wanted:
                await asyncio.sleep(0.02)

    # --- messages ---

    async def new_topic(self, broker: Broker, queues: int = 1) -> str:
        """Create a topic at a master; return its name."""
        name = unique("orders")
        await self.admin.create_topic(broker.address, TopicConfig(name, queues, queues))
        return name

    async def send(
        self, broker: Broker, topic: str, count: int, queue_id: int = 0, **fields: Any
    ) -> list[bytes]:
        """Send messages of which no two are equal; return their bodies.

        Args:
            fields: ``body_bytes`` makes each at least so long; the rest is the header's.
        """
        length = fields.pop("body_bytes", 0)
        bodies = [b"%d" % next(self._bodies) for _ in range(count)]
        for body in bodies:
            header = send_header(topic=topic, queue_id=queue_id, **fields)
            text = body.ljust(length, b"x")
            request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, text)
            answer = await self.client.invoke(broker.address, request, 10_000 * PATIENCE)
            if answer.code:
                raise BrokerError(answer.code, answer.remark, broker.address)
        return [body.ljust(length, b"x") for body in bodies]

    def load(self, broker: Broker, topic: str) -> Load:
        """Send about a hundred messages a second from now on."""
        load = Load(self, broker, topic).begin()
        self._tasks.append(load)
        return load

    def watch(self, broker: Broker, group: str, topic: str) -> Watch:
        """Watch an offset until the watch is stopped or the broker is gone."""
        watch = Watch(self, broker, group, topic).begin()
        self._tasks.append(watch)
        return watch

    # --- consumers ---

    def settings(self, **changes: Any) -> ClientSettings:
        """Return settings of a client with short periods; its name is its own."""
        usual = ClientSettings()
        short = {name: getattr(usual, name) * CLIENT_SCALE for name in _PERIODS}
        given: dict[str, Any] = {
            **short,
            "namesrv_addrs": (self.ns.address,),
            "client_ip": "127.0.0.1",
            "instance_name": unique("member"),
            "fail_inflight_on_eof": True,
            "slave_behind_backoff_ms": 20,
            **changes,
        }
        return ClientSettings(**given)

    async def consume(
        self,
        group: str,
        topic: str,
        *,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        answer: Callable[[MessageExt], Any] = success,
        **settings: Any,
    ) -> Member:
        """Return a running member of a group."""
        member = Member(topic)
        member.answer = answer
        member.consumer = PushConsumer(
            group,
            self.settings(**settings),
            member.handle,
            hook=member.hook,
            consume_from=consume_from,
            manager=ClientManager(),
        )
        member.consumer.subscribe(topic)
        self._members.append(member)
        await member.consumer.start()
        return member

    # --- offsets ---

    async def offset(self, broker: Broker, group: str, topic: str, queue_id: int = 0) -> int:
        """Return what a broker's table holds, -1 for nothing."""
        table = await self.admin.all_offsets(broker.address)
        return table.get(f"{topic}@{group}", {}).get(queue_id, -1)

    async def offset_is(
        self, broker: Broker, group: str, topic: str, wanted: int, queue_id: int = 0
    ) -> None:
        """Wait until a broker's table holds ``wanted``."""
        await self.comes(
            lambda: self.offset(broker, group, topic, queue_id),
            wanted,
            f"{group} on {topic} at {broker.address}",
        )

    async def commit(self, broker: Broker, group: str, topic: str, offset: int) -> None:
        """Commit as a consumer does that knows this broker."""
        await self.admin.update_offset(broker.address, group, topic, 0, offset)
