"""What the operator and reports take for facts about a version, asked of its real brokers."""

from __future__ import annotations

import asyncio

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.operator.engines.quirks import quirk
from failback.operator.local.apache_release import TESTED
from failback.protocol.codes import PULL_SUBSCRIPTION, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import PullMessageRequestHeader
from failback.protocol.route import TopicConfig
from tests.support.brokers.request_client import GROUP, PULLED, STORED, Asker, asker
from tests.support.java.java_lab import Lab

CARRIES_A_COMMIT = 1
"""Flag of a pull."""
COMMITTED = 2
ASKED_BY_CODE = {"haStatus": 907, "topicConfigByName": 351}
NOT_SUPPORTED = 3


@pytest.mark.soak
@pytest.mark.parametrize("lab", TESTED, indirect=True)
async def test_a_broker_is_as_the_quirks_of_its_version_say(lab: Lab) -> None:
    namesrv = await asyncio.to_thread(lab.namesrv, "apache")
    master = lab.broker("apache", namesrv)
    slave = lab.broker("apache", namesrv, broker_id=1, role="SLAVE")
    await asyncio.to_thread(master.start)
    await asyncio.to_thread(slave.start)
    async with asker(master.address) as of_master:
        shown = await of_master.admin.runtime_info(master.address)
        assert shown["brokerVersionDesc"] == f"V{lab.version.replace('.', '_')}"
        config = await of_master.admin.broker_config(master.address)
        assert config.get("enableSlaveActingMaster", "false") == "false"
        for key, code in ASKED_BY_CODE.items():
            request = RemotingCommand.request(code, ext={"topic": PULLED})
            answer = await of_master.client.invoke(master.address, request, 10_000)
            assert (answer.code != NOT_SUPPORTED) == fact(lab, key), (key, answer)
        assert await takes_a_commit(of_master)
    async with AdminClient([]) as admin, RemotingClient() as client:
        # Its master's tables come with the first copy, which 5.x makes after a minute.
        await admin.create_topic(slave.address, TopicConfig(PULLED, 1, 1))
        of_slave = Asker(client, admin, slave.address)
        assert await takes_a_commit(of_slave) == fact(lab, "commitOnSlavePull")


def fact(lab: Lab, key: str) -> object:
    return quirk(key, "apache", lab.version)


async def takes_a_commit(ask: Asker) -> bool:
    """Whether a broker keeps the offset that a pull from it carries."""
    for _ in range(300):
        if await ask.admin.max_offset(ask.address, PULLED, 0) == STORED:
            break
        await asyncio.sleep(0.1)
    flags = PULL_SUBSCRIPTION | CARRIES_A_COMMIT
    header = PullMessageRequestHeader(GROUP, PULLED, 0, 0, 1, flags, COMMITTED, 0, 0, "*")
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    await ask.client.invoke(ask.address, request, 10_000)
    table = await ask.admin.all_offsets(ask.address)
    return table.get(f"{PULLED}@{GROUP}", {}).get(0) == COMMITTED
