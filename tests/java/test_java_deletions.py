"""Topics that are deleted and made again where a broker of Apache's reads or writes the log."""

from __future__ import annotations

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.message import decode_records
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import pull_header
from tests.support.brokers.replica_lab import TOPIC, eventually, send, until_equal
from tests.support.java.apache import Broker, Engine
from tests.support.java.java_lab import Lab

OLD, NEW, LATER = [b"old0", b"old1"], [b"new0"], [b"later"]


async def bodies(broker: Broker) -> list[bytes]:
    """Return what queue 0 of the topic holds."""
    async with RemotingClient() as client:
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, pull_header(topic=TOPIC))
        answer = await client.invoke(broker.address, request, 30_000)
    if answer.code != ResponseCode.SUCCESS:
        return []
    return [message.body for message in decode_records(answer.body)]


async def make_anew(broker: Broker, admin: AdminClient) -> None:
    """Leave records of two lives of the topic, and of a group that is deleted."""
    config = TopicConfig(TOPIC, 1, 1)
    await admin.create_topic(broker.address, config)
    assert await send(broker, OLD) == [0, 0]
    await eventually(lambda: bodies(broker), lambda found: found == OLD, "the first life")
    await admin.create_group(broker.address, SubscriptionGroupConfig("billing"))
    await admin.update_offset(broker.address, "billing", TOPIC, 0, 2)
    await admin.delete_topic(broker.address, TOPIC)
    await admin.delete_group(broker.address, "billing", remove_offset=True)
    await admin.create_topic(broker.address, config)
    assert await send(broker, NEW) == [0]
    await eventually(lambda: bodies(broker), lambda found: found == NEW, "the second life")


@pytest.mark.soak
async def test_a_java_broker_passes_over_what_our_log_says_of_deletions(lab: Lab) -> None:
    broker = lab.broker("failback", lab.namesrv())
    broker.start()
    async with AdminClient() as admin:
        await make_anew(broker, admin)
        broker.stop()
        broker.engine = "apache"
        broker.start()
        assert await send(broker, LATER) == [0]
        await eventually(lambda: bodies(broker), lambda found: found == NEW + LATER, "on 4.9.7")
        broker.stop()
        broker.engine = "failback"
        broker.start()
        assert await bodies(broker) == NEW + LATER


@pytest.mark.few(1, 1)
@pytest.mark.parametrize(("one", "other"), [("failback", "apache"), ("apache", "failback")])
async def test_a_pair_of_both_engines_goes_on(lab: Lab, one: Engine, other: Engine) -> None:
    ns = lab.namesrv()
    master = lab.broker(one, ns)
    slave = lab.broker(other, ns, broker_id=1, role="SLAVE")
    slave.settings["haMasterAddress"] = f"{master.ip}:{master.port + 1}"
    master.start()
    slave.start()
    async with AdminClient() as admin:
        await make_anew(master, admin)

        async def end() -> tuple[str, str]:
            infos = [await admin.runtime_info(each.address) for each in (master, slave)]
            return infos[0]["commitLogMaxOffset"], infos[1]["commitLogMaxOffset"]

        await eventually(end, lambda found: found[0] == found[1], "the slave has the log")
        if other == "failback":
            await until_equal(slave, master)
            await eventually(lambda: bodies(slave), lambda found: found == NEW, "on the slave", 60)
        else:  # 4.9.7 keeps the first life on a slave, and goes on
            await eventually(lambda: bodies(slave), lambda found: found[-1:] == NEW, "there", 60)
