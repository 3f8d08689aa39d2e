"""Who serves a pull: a sample of the table, asked of a real pair of either engine.

Ours is asked for the whole table by a faster test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.route import SubscriptionGroupConfig
from tests.support.brokers.request_client import GROUP, PULLED, STORED, Asker, asker
from tests.support.brokers.serving_rules import Case, combinations, expected
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker, Engine
from tests.support.java.java_lab import Lab

BROKER_ID, SLOW_ID = 3, 7
OFFSETS = {"found-near": 0, "found-far": 0, "at-end": STORED, "behind-end": STORED + 2}


@pytest.mark.parametrize("engine", ["apache", pytest.param("failback", marks=pytest.mark.soak)])
async def test_a_pair_serves_by_the_table(lab: Lab, engine: Engine) -> None:
    ns = lab.namesrv()
    master, slave = lab.broker(engine, ns), lab.broker(engine, ns, broker_id=1, role="SLAVE")
    master.start()
    group = SubscriptionGroupConfig(
        GROUP, broker_id=BROKER_ID, which_broker_when_consume_slowly=SLOW_ID
    )
    async with asker(master.address) as of_master:
        await of_master.admin.create_group(master.address, group)
        await asyncio.to_thread(slave.start)
        await until_it_follows(of_master.admin, slave)
        await ask_all(of_master, "master")
        async with AdminClient([]) as admin, RemotingClient() as client:
            await ask_all(Asker(client, admin, slave.address), "slave")


async def until_it_follows(admin: AdminClient, slave: Broker) -> None:
    """Wait until a slave has its master's messages, topics and groups."""

    async def has_messages() -> bool:
        return await admin.max_offset(slave.address, PULLED, 0) == STORED

    async def has_tables() -> bool:
        topics = (await admin.all_topic_config(slave.address)).topic_config_table
        groups = (await admin.all_groups(slave.address)).subscription_group_table
        return PULLED in topics and groups.get(GROUP, None) == SubscriptionGroupConfig(
            GROUP, broker_id=BROKER_ID, which_broker_when_consume_slowly=SLOW_ID
        )

    for check in (has_messages, has_tables):
        await until(check)


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(1200):
        if await check():
            return
        await asyncio.sleep(0.1 * SCALE)
    raise AssertionError("the slave does not follow its master")


async def ask_all(ask: Asker, role: str) -> None:
    for case in combinations():
        ids = (case.group_broker_id, case.slow_broker_id)
        if case.role != role or case.situation not in OFFSETS or ids != (3, 7):
            continue
        assert await answer(ask, case) == (expected(case).code, expected(case).suggested), case


async def answer(ask: Asker, case: Case) -> tuple[int, int | None]:
    await ask.set(
        slaveReadEnable=str(case.slave_read_enable).lower(),
        offsetCheckInSlave=str(case.offset_check_in_slave).lower(),
        accessMessageInMemoryMaxRatio="0" if case.is_far else "40",
    )
    found = await ask.pull(most=1, offset=OFFSETS[case.situation])
    return found.code, found.suggested
