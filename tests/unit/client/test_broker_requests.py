"""Requests that brokers send to consumers: reset, status, running info, and unknown ones."""

from __future__ import annotations

import asyncio

import pytest

from failback.client.model import ConsumeFrom, ConsumeResult
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.stats import ConsumerRunningInfo, GetConsumerStatusBody, ResetOffsetBody
from tests.support.clients.client_lab import GROUP, TOPIC, Lab
from tests.support.clients.fake_cluster import FakeBroker
from tests.support.common.virtual_time import now, until, virtual_time

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
FIRST = ConsumeFrom.FIRST_OFFSET


async def ask(
    broker: FakeBroker, client_id: str, code: int, ext: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    """Send a request to a client and return its answer."""
    command = RemotingCommand.request(code, ext=ext, body=body)
    command.opaque = 900_000 + len(broker.requests)
    answers: list[RemotingCommand] = []
    original = broker.serve

    def serve(connection: object, request: RemotingCommand) -> RemotingCommand | None:
        if request.is_response and request.opaque == command.opaque:
            answers.append(request)
            return None
        return original(connection, request)  # type: ignore[arg-type]

    broker.serve = serve  # type: ignore[method-assign]
    broker.push(client_id, command)
    await until(lambda: answers, within=1)
    return answers[0]


@virtual_time
async def test_a_reset_drops_the_queues_waits_10_s_and_replays() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 6)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 6)
        t0 = now()
        held = member.consumer.held_queues[QUEUE]
        member.handler.answer = lambda message: asyncio.sleep(1, ConsumeResult.SUCCESS)
        lab.cluster.fill(master, TOPIC, 0, 1)
        await until(lambda: len(held) == 1)
        body = ResetOffsetBody({QUEUE: 2}).to_json()
        command = RemotingCommand.request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            oneway=True,
            ext={"topic": TOPIC, "group": GROUP, "timestamp": "-1", "isForce": "true"},
            body=body,
        )
        master.push(member.consumer.client_id, command)
        await until(lambda: held.dropped)
        assert len(held) == 0
        await until(lambda: len(member.handler.got) == 12)
        assert 10 <= now() - t0 < 10.1
        assert member.handler.offsets()[7:] == [2, 3, 4, 5, 6]
        (end,) = member.hook.of("assign_end", queue=QUEUE)
        assert end.reason == "RESET"
        # Not before: meanwhile the timer commits the old offset, which must not count as a newer
        # commit than the reset.
        assert end.time >= t0 + 10
        assert member.hook.of("assign", queue=QUEUE)[-1].start.offset == 2


@virtual_time
async def test_status_tells_the_offsets_in_memory() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 6)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 6)
        answer = await ask(
            master,
            member.consumer.client_id,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            {"topic": TOPIC, "group": GROUP},
        )
        assert answer.code == 0
        assert GetConsumerStatusBody.from_json(answer.body).message_queue_table == {QUEUE: 6}


@pytest.mark.parametrize("stacks", ["true", "false"])
@virtual_time
async def test_running_info_lists_queues_and_subscriptions(stacks: str) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 6)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 6)
        await asyncio.sleep(1)
        answer = await ask(
            master,
            member.consumer.client_id,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            {
                "consumerGroup": GROUP,
                "clientId": member.consumer.client_id,
                "jstackEnable": stacks,
            },
        )
        info = ConsumerRunningInfo.from_json(answer.body)
        assert info.mq_table[QUEUE].commit_offset == 6
        assert {s.topic for s in info.subscription_set} == {TOPIC, f"%RETRY%{GROUP}"}
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert (info.jstack is not None) == (stacks == "true")


@virtual_time
async def test_an_unknown_group_and_an_unknown_code_are_answered_by_an_error() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        member = await lab.start()
        await until(lambda: master.members(GROUP))
        answer = await ask(
            master,
            member.consumer.client_id,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            {"consumerGroup": "other", "clientId": "x"},
        )
        assert (answer.code, "other" in (answer.remark or "")) == (1, True)
        answer = await ask(master, member.consumer.client_id, 4711, {})
        assert answer.code == 3
