"""The backlog of a producer process: the harness waits until that of every topic is sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from failback.chaos.workload.plan import ProcessPlan, ProducerPlan, TopicPlan
from failback.chaos.workload.producer import ProducerProcess
from failback.client.model import Message

pytestmark = pytest.mark.unit

BACKLOG = 40


class FakeProducer:
    """Takes messages of an open topic; the others wait."""

    def __init__(self) -> None:
        self.open = {name: asyncio.Event() for name in ("first", "second")}
        self.all_taken = {name: asyncio.Event() for name in self.open}
        self._taken: Counter[str] = Counter()

    async def send(self, message: Message) -> None:
        await self.open[message.topic].wait()
        self._taken[message.topic] += 1
        if self._taken[message.topic] == BACKLOG:
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


async def settled() -> None:
    """What waits for the last send goes on."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_the_backlog_is_there_when_that_of_every_topic_is(tmp_path: Path) -> None:
    process, producer = producing(tmp_path), FakeProducer()
    sending = asyncio.create_task(process._send_all(producer))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(60):
            producer.open["first"].set()
            await producer.all_taken["first"].wait()
            await settled()
            assert process._stats({})["preloaded"] is False
            producer.open["second"].set()
            await producer.all_taken["second"].wait()
            await settled()
            assert process._stats({})["preloaded"] is True
    finally:
        for event in producer.open.values():
            event.set()
        process._stop_all({})
        await sending
