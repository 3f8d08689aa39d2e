"""A push consumer from start to shutdown, on a fake cluster in virtual time."""

from __future__ import annotations

import asyncio

from failback.client.model import ConsumeFrom, Message
from failback.protocol.codes import RequestCode
from tests.support.clients.client_lab import GROUP, TOPIC, Lab
from tests.support.common.virtual_time import until, virtual_time


@virtual_time
async def test_messages_reach_the_handler_once_each() -> None:
    async with Lab() as lab:
        (master,) = lab.cluster.add_pair("broker-a")
        lab.cluster.add_topic(TOPIC, ["broker-a"], 2)
        lab.cluster.add_group(GROUP, ["broker-a"])
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        producer, _ = await lab.producer()
        for number in range(10):
            await producer.send(Message(TOPIC, b"%d" % number))
        await until(lambda: len(member.handler.got) == 10)
        await asyncio.sleep(30)
        assert sorted(member.handler.bodies) == sorted(map(str, range(10)))
        assert {master.offset(GROUP, TOPIC, q) for q in (0, 1)} == {5}
        await member.consumer.shutdown()
        last = [r.code for r in master.requests][-3:]
        assert last[-1] == RequestCode.UNREGISTER_CLIENT
