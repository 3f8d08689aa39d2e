"""Random deaths of brokers and members in virtual time: what must hold whatever happens.

Every message is delivered at least once. No life of a queue delivers a copy twice, unless the
handler asked for it. What is committed never passes a message that nobody has finished. Every
assignment has one end.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.client.errors import ClientError
from failback.client.model import ConsumeFrom, ConsumeResult
from failback.protocol.message import MessageExt
from tests.support.clients.client_lab import GROUP, TOPIC, Lab, Member
from tests.support.common.counts import examples, some
from tests.support.common.virtual_time import now, run_virtual, until, virtual_time

QUEUES = 3


class Faulty:
    """One random story, from a seed."""

    def __init__(self, lab: Lab, rng: random.Random) -> None:
        self.lab = lab
        self.rng = rng
        self.members: list[Member] = []
        self.started = 0
        self.finished: set[tuple[int, int]] = set()
        self.stored: list[tuple[int, int]] = []

    async def handle(self, messages: list[MessageExt]) -> ConsumeResult:
        await asyncio.sleep(self.rng.choice((0, 0, 0.01, 1.5)))
        self.finished.update((m.queue_id, m.queue_offset) for m in messages)
        return ConsumeResult.SUCCESS

    async def join(self) -> None:
        self.started += 1
        member = self.lab.member(self.started, self.handle, consume_from=ConsumeFrom.FIRST_OFFSET)
        try:
            await member.consumer.start()
        except ClientError:
            return
        self.members.append(member)

    async def leave(self) -> None:
        if len(self.members) > 1:
            member = self.members.pop(self.rng.randrange(len(self.members)))
            if self.rng.random() < 0.5:
                await member.consumer.shutdown()
            else:
                await member.consumer._stop_at_once()  # no commit, no goodbye

    def check_commits(self) -> None:
        """No broker's offset may lie above a message that no handler has finished."""
        for broker in self.lab.cluster.brokers:
            for (_, topic, queue_id), offset in broker.offsets.items():
                if topic == TOPIC:
                    behind = {(queue_id, o) for o in range(offset)}
                    assert behind <= self.finished

    async def run(self) -> None:
        master, slave = self.lab.pair(slaves=1, queues=QUEUES)
        await self.join()
        alive = True
        for _ in range(12):
            for _ in range(self.rng.randrange(40)):
                queue_id = self.rng.randrange(QUEUES)
                _, offset = master.store(TOPIC, queue_id, b"x")
                self.stored.append((queue_id, offset))
            action = self.rng.choice(("kill", "kill", "boot", "join", "leave", "wait"))
            if action == "kill" and alive:
                self.check_commits()
                file = {k: max(0, o - self.rng.randrange(8)) for k, o in master.offsets.items()}
                master.kill(reset=self.rng.random() < 0.3)
                alive = False
            elif action == "boot" and not alive:
                master.boot(offsets=file)
                slave.offsets.update(file)
                alive = True
            elif action == "join":
                await self.join()
            elif action == "leave":
                await self.leave()
            await asyncio.sleep(self.rng.choice((0.3, 4, 17, 33)))
            self.check_commits()
        if not alive:
            master.boot(offsets=file)
        everything = set(self.stored)
        await until(lambda: self.finished >= everything, within=200)
        await asyncio.sleep(40)
        for queue_id in range(QUEUES):
            stored = sum(1 for q, _ in self.stored if q == queue_id)
            assert (master.offset(GROUP, TOPIC, queue_id) or 0) == stored


def check_rows(members: list[Member]) -> None:
    for member in members:
        begun = Counter((r.pqe, r.offset) for r in member.hook.of("deliver_begin"))
        assert max(begun.values(), default=0) <= 1  # CLIENT_BUG otherwise
        assigned = Counter(r.pqe for r in member.hook.of("assign"))
        ended = Counter(r.pqe for r in member.hook.of("assign_end"))
        assert max(assigned.values(), default=0) <= 1
        assert max(ended.values(), default=0) <= 1
        assert ended.keys() <= assigned.keys()


@settings(max_examples=examples(25, quick=5), deadline=None)
@given(seed=st.integers(0, 2**32), eof=st.booleans(), strict=st.booleans())
def test_at_least_once_whatever_dies(seed: int, eof: bool, strict: bool) -> None:
    async def main() -> None:
        async with Lab(fail_inflight_on_eof=eof, strict_single_thread=strict) as lab:
            story = Faulty(lab, random.Random(seed))
            await story.run()
        check_rows(lab._members)

    run_virtual(main())


@pytest.mark.parametrize("steps", some(range(0, 120, 3), 4))
@virtual_time
async def test_a_start_cancelled_anywhere_leaves_nothing_running(steps: int) -> None:
    async with Lab(start_phase_ms=1) as lab:
        lab.pair()
        member = lab.member()
        starting = asyncio.create_task(member.consumer.start())
        for _ in range(steps):
            await asyncio.sleep(0 if steps % 2 else 0.0001)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await member.consumer.shutdown()
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert now() < 5


@pytest.mark.parametrize("steps", some(range(1, 40, 2), 4))
@virtual_time
async def test_a_shutdown_cancelled_anywhere_leaves_nothing_running(steps: int) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 5)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await until(lambda: len(member.handler.got) == 5)
        stopping = asyncio.create_task(member.consumer.shutdown())
        for _ in range(steps):
            await asyncio.sleep(0 if steps % 4 == 1 else 0.0002)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await asyncio.sleep(5)
        assert asyncio.all_tasks() == {asyncio.current_task()}
