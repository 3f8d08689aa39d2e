"""Producers and consumers on a :class:`FakeCluster`, as tests of the client set them up.

Each member is a process of its own: own manager, own client id, own random numbers from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from failback.client.consumelog.hook import ConsumeHook, ProduceRecord, PullRecord, StartOffset
from failback.client.consumer.consumer import PushConsumer
from failback.client.instance.instance import ClientManager
from failback.client.model import ConsumeFrom, ConsumeResult, Handler
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.protocol.body import MessageQueue
from failback.protocol.message import MessageExt
from tests.support.clients.fake_cluster import FakeBroker, FakeCluster
from tests.support.common.virtual_time import LoopClock, now

GROUP = "billing"
TOPIC = "orders"


@dataclass
class Row:
    """One call of the hook."""

    time: float
    table: str
    columns: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.columns[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class RecordingHook(ConsumeHook):
    """Keeps every row."""

    rows: list[Row] = field(default_factory=list)
    _dids: int = 0

    def of(self, table: str, **columns: Any) -> list[Row]:
        """Rows of a table whose columns have the given values."""
        return [
            row
            for row in self.rows
            if row.table == table and columns.items() <= row.columns.items()
        ]

    def _add(self, table: str, **columns: Any) -> None:
        self.rows.append(Row(now(), table, columns))

    def produce(self, record: ProduceRecord) -> None:
        self._add("produce", record=record, result=record.result, attempt=record.attempt)

    def pull(self, group: str, record: PullRecord) -> None:
        self._add(
            "pull",
            record=record,
            queue=record.queue,
            result=record.result,
            code=record.code,
            broker_id=record.broker_id,
            commit_bit=record.commit_bit,
        )

    def deliver_begin(
        self,
        group: str,
        client_id: str,
        call_id: int,
        pqe: int,
        pull_id: int | None,
        queue: MessageQueue,
        message: MessageExt,
    ) -> int:
        self._dids += 1
        self._add(
            "deliver_begin", did=self._dids, queue=queue, offset=message.queue_offset, pqe=pqe
        )
        return self._dids

    def deliver_end(
        self, did: int, status: str, applied: bool | None, remove_result: int | None
    ) -> None:
        self._add(
            "deliver_end", did=did, status=status, applied=applied, remove_result=remove_result
        )

    def assign(
        self, group: str, client_id: str, pqe: int, queue: MessageQueue, t: int, start: StartOffset
    ) -> None:
        self._add("assign", pqe=pqe, queue=queue, start=start)

    def assign_end(
        self, group: str, pqe: int, queue: MessageQueue, end_t: int, reason: str
    ) -> None:
        self._add("assign_end", pqe=pqe, queue=queue, reason=reason)

    def rebalance(
        self,
        group: str,
        topic: str,
        t: int,
        trigger: str,
        answered_by: str | None,
        members: Sequence[str],
        queues: int,
        result: int,
    ) -> None:
        self._add(
            "rebalance",
            topic=topic,
            trigger=trigger,
            answered_by=answered_by,
            members=list(members),
            result=result,
        )

    def commit(
        self, group: str, client_id: str, queue: MessageQueue, offset: int, **rest: Any
    ) -> None:
        self._add("commit", queue=queue, offset=offset, **rest)

    def sendback(self, group: str, client_id: str, message: MessageExt, **rest: Any) -> None:
        self._add("sendback", offset=message.queue_offset, **rest)

    def route(self, topic: str, before: str | None, after: str | None, trigger: str) -> None:
        self._add("route", topic=topic, before=before, after=after, trigger=trigger)

    def heartbeat(self, addr: str, ok: bool, code: int | None) -> None:
        self._add("heartbeat", addr=addr, ok=ok, code=code)

    def life(self, state: str) -> None:
        self._add("life", state=state)


class Collector:
    """A handler that notes what it gets; answers SUCCESS unless told otherwise."""

    def __init__(self) -> None:
        self.got: list[tuple[float, MessageExt]] = []
        self.answer: Callable[[MessageExt], Any] = lambda message: ConsumeResult.SUCCESS

    async def __call__(self, messages: list[MessageExt]) -> Any:
        self.got += [(now(), message) for message in messages]
        answer = self.answer(messages[0])
        return await answer if hasattr(answer, "__await__") else answer

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for _, message in self.got]

    def offsets(self, queue_id: int = 0) -> list[int]:
        return [m.queue_offset for _, m in self.got if m.queue_id == queue_id]


@dataclass
class Member:
    """A consumer with what it did."""

    consumer: PushConsumer
    hook: RecordingHook
    handler: Any


class Lab:
    """A cluster and its clients. Make it inside a virtual loop, ``close`` it at the end."""

    def __init__(self, **switches: Any) -> None:
        self.cluster = FakeCluster()
        self.name_server = self.cluster.name_server
        self.switches = switches
        self._members: list[Member] = []
        self._producers: list[Producer] = []

    async def __aenter__(self) -> Lab:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def settings(self, ip: str, **changes: Any) -> ClientSettings:
        given = {"namesrv_addrs": (self.name_server.addr,), **self.switches, **changes}
        return ClientSettings(client_ip=ip, **given)

    def member(
        self,
        number: int = 1,
        handler: Handler | None = None,
        *,
        topic: str = TOPIC,
        group: str = GROUP,
        expression: str = "*",
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        model: str = "CLUSTERING",
        **settings: Any,
    ) -> Member:
        """Make a consumer that isn't started. Client ids sort by ``number``."""
        hook = RecordingHook()
        handle = handler or Collector()
        consumer = PushConsumer(
            group,
            self.settings(f"10.1.0.{number}", **{"instance_name": f"m{number}", **settings}),
            handle,
            hook=hook,
            message_model=model,
            consume_from=consume_from,
            clock=LoopClock(),
            manager=ClientManager(),
            rng=random.Random(number),
        )
        consumer.subscribe(topic, expression)
        member = Member(consumer, hook, handle)
        self._members.append(member)
        return member

    async def start(self, number: int = 1, handler: Handler | None = None, **rest: Any) -> Member:
        member = self.member(number, handler, **rest)
        await member.consumer.start()
        return member

    def pair(self, name: str = "broker-a", slaves: int = 0, queues: int = 1) -> list[FakeBroker]:
        """Add a broker pair that has the topic and the group's retry topic; master first."""
        brokers = self.cluster.add_pair(name, slaves)
        names = {broker.name for broker in self.cluster.brokers}
        self.cluster.add_topic(TOPIC, names, queues)
        self.cluster.add_group(GROUP, names)
        return brokers

    async def producer(self, number: int = 1, **settings: Any) -> tuple[Producer, RecordingHook]:
        hook = RecordingHook()
        producer = Producer(
            "shop",
            self.settings(f"10.2.0.{number}", instance_name=f"p{number}", **settings),
            hook=hook,
            clock=LoopClock(),
            manager=ClientManager(),
            rng=random.Random(number),
        )
        await producer.start()
        self._producers.append(producer)
        return producer, hook

    async def close(self) -> None:
        for member in self._members:
            await member.consumer.shutdown()
        for producer in self._producers:
            await producer.shutdown()
        for broker in self.cluster.brokers:
            broker.kill()
        self.name_server.stop()
