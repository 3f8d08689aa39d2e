"""A killed broker delivers again, as new messages, what it had delivered since its last persist."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from failback.protocol.route import DelayOffsetTable
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import Broker
from tests.support.java.java_lab import Lab

TOPIC = "TopicTest"
SETTINGS: dict[str, object] = {"messageDelayLevel": "1s", "failbackTimeScale": 0.5}
"""First persisted after 5 s, delivered after about one."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.dispose()


async def send_delayed(broker: Broker, count: int) -> None:
    async with RemotingClient() as client:
        for _ in range(count):
            header = send_header(topic=TOPIC, properties="DELAY\x011")
            request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"late")
            assert (await client.invoke(broker.address, request)).code == 0


async def until_delivered(admin: AdminClient, broker: Broker, count: int) -> None:
    deadline = time.monotonic() + 60 * SCALE
    found = -1
    while found < count:
        assert time.monotonic() < deadline, f"{found} of {count}"
        await asyncio.sleep(0.05)
        with suppress(RemotingError):  # the connection to the killed process
            found = await admin.max_offset(broker.address, TOPIC, 0)
    assert found == count


def persisted(broker: Broker) -> dict[int, int]:
    file = broker.store / "config" / "delayOffset.json"
    return DelayOffsetTable.from_json(file.read_bytes()).offset_table if file.exists() else {}


@pytest.mark.sample
async def test_what_was_delivered_since_the_last_persist_is_delivered_again(lab: Lab) -> None:
    ns = lab.namesrv()
    broker = lab.broker("failback", ns, settings=SETTINGS)
    broker.start()
    async with AdminClient([ns.address]) as admin:
        await send_delayed(broker, 5)
        await until_delivered(admin, broker, 5)
        assert persisted(broker) == {}
        broker.kill()
        broker.start()
        await until_delivered(admin, broker, 10)

        wait_until(lambda: persisted(broker) == {1: 5}, "the persist", 60)
        broker.kill()
        broker.start()
        await send_delayed(broker, 1)
        await until_delivered(admin, broker, 11)

        assert broker.stop() == 0
        assert persisted(broker) == {1: 6}, "a clean stop persists"
        broker.start()
        await send_delayed(broker, 1)
        await until_delivered(admin, broker, 12)
