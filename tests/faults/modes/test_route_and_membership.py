"""Queues that change their owner: modes 9, 11, 18 and 24 of the failure modes' page."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from failback.client.model import ConsumeResult
from failback.protocol.body import MessageQueue
from failback.protocol.clients import LockBatchRequestBody, LockBatchResponseBody
from failback.protocol.codes import RequestCode
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from tests.faults.modes.mode_evidence import (
    NEVER_MS,
    PATIENT_SECONDS,
    Bound,
    Member,
    again,
    in_file,
    most_within,
    unpersisted_seconds,
)
from tests.faults.modes.mode_lab import ENGINES_SLOW, ModeLab, unique
from tests.support.common.polling import SCALE, until
from tests.support.java.apache import Broker

GROUP = "billing"


@pytest.mark.parametrize("lab", ENGINES_SLOW, indirect=True)
async def test_a_broker_that_leaves_the_route_takes_the_memory_of_its_queues_along(
    lab: ModeLab,
) -> None:
    killed, other = lab.node(), lab.node()
    await lab.start(killed, other)
    topic = await lab.new_topic(killed)
    await lab.admin.create_topic(other.address, TopicConfig(topic, 1, 1))
    member = await lab.consume(GROUP, topic)
    queue = (killed.name, 0)
    await until(lambda: len(member.held()) == 2, "both brokers' queues", PATIENT_SECONDS)
    load = lab.load(killed, topic)
    await until(lambda: in_file(killed, GROUP, topic) > 0, "a persist", PATIENT_SECONDS)
    await until(
        lambda: len(member.got) >= in_file(killed, GROUP, topic) + 10,
        "progress that is not persisted",
        PATIENT_SECONDS,
    )
    killed.kill()
    period = unpersisted_seconds(lab.periods, killed, member)
    before = member.times
    await load.stop()
    await until(lambda: queue not in member.held(), "the queue's loss", PATIENT_SECONDS)
    handled = list(member.got)
    kept, consumed = in_file(killed, GROUP, topic), len(handled)
    lost = MessageQueue(topic, *queue)
    assert [row.reason for row in member.hook.of("assign_end", queue=lost)] == ["REBALANCE"]

    await lab.start(killed)
    await until(lambda: queue in member.held(), "the queue's return", PATIENT_SECONDS)
    fresh = await lab.send(killed, topic, 1)
    await member.gets(fresh)
    assert member.start.offset == kept
    assert again(member) == consumed - kept > 0
    formula = "R · (flushConsumerOffsetInterval + commits) + the local cache"
    most = most_within(before, period) + len(handled) - len(before)
    Bound(9, formula, most).holds(again(member))


@dataclass
class Two:
    """Two members with a queue each, of which only one says soon that it is there.

    The other's heartbeat is a period later, as they are when members were not started together.
    """

    lab: ModeLab
    master: Broker
    topic: str
    prompt: Member
    tardy: Member
    queue_id: int

    @classmethod
    async def begin(cls, lab: ModeLab, **settings: object) -> Two:
        master = lab.node(scale=0.1, settings=settings)  # it forgets a silent client in 12 s
        await lab.start(master)
        topic = await lab.new_topic(master, queues=2)
        prompt = await lab.consume(GROUP, topic)
        tardy = await lab.consume(
            GROUP, topic, heartbeat_interval_ms=NEVER_MS, rebalance_interval_ms=NEVER_MS
        )
        found = cls(lab, master, topic, prompt, tardy, 0)
        await found.share()
        ((_, found.queue_id),) = tardy.held()
        sent = await lab.send(master, topic, 10, queue_id=found.queue_id)
        await tardy.gets(sent)
        await until(found.is_persisted, "the persist", PATIENT_SECONDS)
        return found

    def is_persisted(self) -> bool:
        return in_file(self.master, GROUP, self.topic, self.queue_id) == 10

    async def share(self) -> None:
        """Wait until both have a queue, and no queue has both.

        The tardy one says that it is there as often as needed: a slow machine may take longer to
        get here than a broker remembers a silent client.
        """
        deadline = time.monotonic() + PATIENT_SECONDS * SCALE
        instance = self.tardy.consumer.instance
        while not self.is_shared():
            assert time.monotonic() < deadline, "no queue each"
            await instance.heartbeat_all()
            instance.wake_rebalance("share")
            await asyncio.sleep(0.2)

    def is_shared(self) -> bool:
        prompt, tardy = self.prompt.held(), self.tardy.held()
        return len(prompt) == len(tardy) == 1 and prompt != tardy

    async def get(self, count: int) -> list[bytes]:
        """Send to the tardy one's queue; return what was delivered of it, each time."""
        sent = await self.lab.send(self.master, self.topic, count, queue_id=self.queue_id)
        await self.tardy.gets(sent)
        return [body for body in self.prompt.bodies + self.tardy.bodies if body in set(sent)]


async def test_a_restarted_master_has_forgotten_members_and_locks(lab: ModeLab) -> None:
    two = await Two.begin(lab)
    master, prompt, tardy = two.master, two.prompt, two.tardy
    queue = MessageQueue(two.topic, master.name, two.queue_id)
    assert await locked_by(lab, master, "first", queue)
    assert not await locked_by(lab, master, "second", queue)
    master.kill()
    await lab.start(master)

    await until(lambda: len(prompt.held()) == 2, "the one that sees itself alone", PATIENT_SECONDS)
    assert len(tardy.held()) == 1
    assert prompt.start.offset == 10
    doubled = await lab.send(master, two.topic, 5, queue_id=two.queue_id)
    await asyncio.gather(prompt.gets(doubled), tardy.gets(doubled))
    assert again(prompt, tardy) == len(doubled)
    Bound(11, "R · heartbeatBrokerInterval", len(doubled)).holds(again(prompt, tardy))

    # An ordered consumer believes for up to 30 s in a lock that the second one has by now.
    assert await locked_by(lab, master, "second", queue)
    assert not await locked_by(lab, master, "first", queue)
    Bound(18, "R · rocketmq.client.rebalance.lockMaxLiveTime", len(doubled)).holds(len(doubled))

    await tardy.consumer.instance.heartbeat_all()
    await two.share()
    assert len(await two.get(5)) == 5


async def test_a_guarded_master_tells_no_members_before_all_could_be_back(lab: ModeLab) -> None:
    two = await Two.begin(lab, failbackGuardConsumerList="true")
    two.master.kill()
    two.master.settings["failbackTimeScale"] = 0.5  # half of the 35 s
    await lab.start(two.master)
    hook, restarted = two.prompt.hook, asyncio.get_running_loop().time()

    def was_refused() -> bool:
        """Whether the prompt one was told no list though its heartbeat had been taken."""
        beats = [row.time for row in hook.of("heartbeat", ok=True) if row.time > restarted]
        asked = [row for row in hook.of("rebalance", topic=two.topic) if row.time > restarted]
        return any(row.time > min(beats) and not row.members for row in asked if beats)

    await until(was_refused, "a list that is not to be had", PATIENT_SECONDS)
    assert len(two.prompt.held()) == len(two.tardy.held()) == 1
    await two.tardy.consumer.instance.heartbeat_all()
    assert len(await two.get(5)) == 5
    assert again(two.prompt, two.tardy) == 0


async def locked_by(lab: ModeLab, broker: Broker, client: str, queue: MessageQueue) -> bool:
    """Ask for the lock of a queue; tell whether the client holds it now."""
    body = LockBatchRequestBody("ordered", client, [queue])
    answer = await lab.admin.ask(broker.address, RequestCode.LOCK_BATCH_MQ, body=body.to_json())
    return queue in LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set


async def test_a_queue_that_is_not_pulled_for_long_is_read_from_the_broker_again(
    lab: ModeLab, standing: Broker
) -> None:
    group, slow = unique(GROUP), 3
    topic = await lab.new_topic(standing)
    bodies = await lab.send(standing, topic, 10)
    gate = asyncio.Event()

    async def wait_once(message: MessageExt) -> ConsumeResult:
        if message.body == bodies[slow]:
            await gate.wait()
        return ConsumeResult.SUCCESS

    # The broker holds the pull at the queue's end for longer than pullMaxIdleTime.
    member: Member = await lab.consume(
        group,
        topic,
        answer=wait_once,
        broker_suspend_max_ms=NEVER_MS,
        pull_timeout_ms=NEVER_MS,
        pull_expired_ms=1_000,
    )
    await member.gets(b for b in bodies if b != bodies[slow])
    finished = [got.offset for got in member.got]
    await until(lambda: len(member.assignments) > 1, "the queue is taken again", PATIENT_SECONDS)
    reasons = [r.reason for r in member.hook.of("assign_end") if r.queue.topic == topic]
    assert reasons[0] == "PULL_EXPIRED"
    assert member.start.offset == slow
    gate.set()
    above = [offset for offset in finished if offset > slow]
    await member.gets(bodies)
    await until(lambda: len(member.got) >= 10 + len(above), "the rest again", PATIENT_SECONDS)
    repeated = {got.offset for got in member.got[len(finished) :]} & set(finished)
    assert repeated == set(above)
    Bound(24, "Q · (finished above the lowest unfinished)", len(bodies)).holds(len(repeated))
