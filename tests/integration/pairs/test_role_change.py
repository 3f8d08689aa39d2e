"""A slave that configuration and a restart make the master, and the old master as its slave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.route import DelayOffsetTable, parse_offset_table
from tests.support.brokers.broker_lab import send_header
from tests.support.brokers.replica_lab import TOPIC, eventually, log_bytes, send, until_equal
from tests.support.java.apache import Broker
from tests.support.java.java_lab import Lab

GROUP = "billing"
DELAYED = 3
LATER = "1s 2h", "1s 1s"
"""Delay levels before and after the change: what waits for hours is due at once then, since no
message waits longer than its level says."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.dispose()


async def send_delayed(broker: Broker, level: int) -> None:
    async with RemotingClient() as client:
        for number in range(DELAYED):
            properties = f"DELAY\x01{level}\x02WAIT\x01true"
            header = send_header(topic="Late", properties=properties)
            request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
            assert (await client.invoke(broker.address, request, 30_000)).code == 0


def in_file(broker: Broker, name: str) -> str:
    path = broker.store / "config" / name
    return path.read_text() if path.exists() else ""


@pytest.mark.sample
@pytest.mark.few(1)
@pytest.mark.parametrize("rules", ["compat", "guarded"])
async def test_a_slave_becomes_the_master_with_all_it_copied(lab: Lab, rules: str) -> None:
    ns = lab.namesrv()
    settings: dict[str, object] = {
        "failbackTimeScale": 0.05,
        "failbackRules": rules,
        "messageDelayLevel": LATER[0],
    }
    old = lab.broker("failback", ns, settings=settings)
    new = lab.broker("failback", ns, broker_id=1, role="SLAVE", settings=settings)
    old.start()
    new.start()
    assert await send(old, [b"hello"] * 20) == [0] * 20
    await send_delayed(old, 1)
    await send_delayed(old, 2)
    async with AdminClient([ns.address]) as admin:

        async def late() -> int:
            return await admin.max_offset(new.address, "Late", 0)

        await eventually(late, lambda end: end == DELAYED, "what was due at once, on the slave")
        await admin.update_offset(old.address, GROUP, TOPIC, 0, 7)

        async def copied() -> tuple[object, object, bool, bool]:
            offsets = parse_offset_table(in_file(new, "consumerOffset.json"))
            text = in_file(new, "delayOffset.json")
            delays = DelayOffsetTable.from_json(text).offset_table if text else {}
            topics = in_file(new, "topics.json"), in_file(new, "subscriptionGroup.json")
            done = delays.get(1), delays.get(2, 0)
            return offsets.get(f"{TOPIC}@{GROUP}"), done, "Late" in topics[0], bool(topics[1])

        wanted = ({0: 7}, (DELAYED, 0), True, True)
        await eventually(copied, lambda found: found == wanted, "the four copies")
        end = await until_equal(new, old)
        old.kill()
        new.kill()

        new.role, new.broker_id = "ASYNC_MASTER", 0
        new.settings = settings | {"messageDelayLevel": LATER[1]}
        new.start()

        async def committed() -> object:
            return (await admin.all_offsets(new.address)).get(f"{TOPIC}@{GROUP}")

        await eventually(committed, lambda found: found == {0: 7}, "the offsets of the new master")
        assert await send(new, [b"after"]) == [0]
        assert await admin.max_offset(new.address, TOPIC, 0) == 21
        await eventually(late, lambda end: end >= 2 * DELAYED, "what came due meanwhile")
        assert await late() == 2 * DELAYED, "nothing that was delivered is re-consumed"

        old.role, old.broker_id = "SLAVE", 1
        old.start()
        await admin.update_offset(new.address, GROUP, TOPIC, 0, 11)
        assert await until_equal(old, new) > end

        async def follows() -> object:
            return (await admin.all_offsets(old.address)).get(f"{TOPIC}@{GROUP}")

        await eventually(follows, lambda found: found == {0: 11}, "the offsets of the new slave")
        end = await until_equal(old, new)
    assert log_bytes(old, 0, end) == log_bytes(new, 0, end)
