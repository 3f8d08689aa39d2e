"""The backlog of a producer process: the harness waits until that of every topic is sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

from failback.chaos.workload.plan import ProcessPlan, ProducerPlan, TopicPlan
from failback.chaos.workload.producer import ProducerProcess
from failback.client.model import Message

BACKLOG = 40


class FakeProducer:
    """Takes messages of an open topic; the others wait, and so does each one's last message."""

    def __init__(self) -> None:
        self.open = {name: asyncio.Event() for name in ("first", "second")}
        self.all_but_one_taken = {name: asyncio.Event() for name in self.open}
        self.last = asyncio.Event()
        self.all_taken = {name: asyncio.Event() for name in self.open}
        self._taken: Counter[str] = Counter()

    async def send(self, message: Message) -> None:
        await self.open[message.topic].wait()
        self._taken[message.topic] += 1
        if self._taken[message.topic] == BACKLOG:
            self.all_but_one_taken[message.topic].set()
            await self.last.wait()
            self.all_taken[message.topic].set()


def producing(tmp_path: Path) -> ProducerProcess:
    plan = ProcessPlan(
        run="r", hot=tmp_path, proc_no=1, proc=None, namesrv=("127.0.0.1:1",), control=None
    )
    topics = tuple(
        TopicPlan(name, 1, rate_per_second=0.001, body_bytes=64, keys=1, preload_messages=BACKLOG)
        for name in ("first", "second")
    )
    process = ProducerProcess(ProducerPlan(plan, 0, topics))
    process._log = SimpleNamespace(last_seq=0)  # type: ignore[assignment]
    return process


@asynccontextmanager
async def sending(producer: FakeProducer, tmp_path: Path) -> AsyncIterator[ProducerProcess]:
    """A process that sends with this producer until the block ends."""
    process = producing(tmp_path)
    task = asyncio.create_task(process._send_all(producer))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(60):
            yield process
    finally:
        for event in (*producer.open.values(), producer.last):
            event.set()
        process._stop.set()
        await task


async def settled() -> None:
    """What waits for the last send goes on."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_the_backlog_is_there_when_that_of_every_topic_is(tmp_path: Path) -> None:
    producer = FakeProducer()
    producer.last.set()
    async with sending(producer, tmp_path) as process:
        producer.open["first"].set()
        await producer.all_taken["first"].wait()
        await settled()
        assert process._stats({})["preloaded"] is False
        producer.open["second"].set()
        await producer.all_taken["second"].wait()
        await settled()
        assert process._stats({})["preloaded"] is True


async def test_a_backlog_is_not_there_while_a_message_of_it_is_under_way(tmp_path: Path) -> None:
    producer = FakeProducer()
    async with sending(producer, tmp_path) as process:
        for name, event in producer.open.items():
            event.set()
            await producer.all_but_one_taken[name].wait()
        await settled()
        assert process._stats({})["in_flight"] == 2
        assert process._stats({})["preloaded"] is False
        producer.last.set()
        for event in producer.all_taken.values():
            await event.wait()
        await settled()
        assert process._stats({})["preloaded"] is True
