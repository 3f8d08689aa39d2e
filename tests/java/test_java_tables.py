"""The tables a fresh broker has, compared with an Apache broker's under the same settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.json_config import backup_of
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.client.admin.admin import AdminClient
from failback.protocol.codes import RequestCode
from failback.protocol.errors import BrokerError
from failback.protocol.headers import SendMessageRequestHeader
from failback.protocol.route import TopicConfig
from tests.support.java.java_lab import Lab


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param(
            {"autoCreateTopicEnable": "false", "traceTopicEnable": "true"}, marks=pytest.mark.soak
        ),
        {"clusterTopicEnable": "false", "brokerTopicEnable": "false", "defaultTopicQueueNums": 3},
    ],
)
async def test_system_topics_and_groups_are_those_of_apache(
    lab: Lab, tmp_path: Path, settings: dict[str, object]
) -> None:
    broker = lab.broker("apache", lab.namesrv(), settings=settings)
    broker.start()
    async with AdminClient([]) as admin:
        theirs = await admin.all_topic_config(broker.address)
        groups = await admin.all_groups(broker.address)
    config = BrokerConfig.load(broker.folder / "broker.conf")
    ours = TopicConfigManager(tmp_path / "topics.json", config)
    assert ours.table == theirs.topic_config_table
    assert ours.data_version.counter == theirs.data_version.counter
    assert SubscriptionGroupManager(tmp_path / "g.json", config).table == (
        groups.subscription_group_table
    )


@pytest.mark.soak
async def test_auto_creation_breaks_for_good_as_it_does_with_apache(lab: Lab) -> None:
    """A send while auto-creation is off takes the template's inherit bit: TopicConfigManager."""
    outcomes = {}
    ns = lab.namesrv()
    for engine in ("apache", "failback"):
        broker = lab.broker(engine, ns, name=engine)
        broker.start()
        async with AdminClient([]) as admin:
            perms = []
            for value in ("false", "true"):
                changed = {"autoCreateTopicEnable": value}
                await admin.update_broker_config(broker.address, changed)
                perms.append(await _create_by_sending(admin, broker.address, f"New{value}"))
            # Deleting what is not there persists nothing; making a topic persists the template.
            await admin.create_topic(broker.address, TopicConfig("Made", 1, 1))
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(broker.start)
        async with AdminClient([]) as admin:
            perms.append(await _create_by_sending(admin, broker.address, "NewAgain"))
        outcomes[engine] = perms
    assert outcomes["failback"] == outcomes["apache"] == [6, 6, 6]


async def _create_by_sending(admin: AdminClient, address: str, topic: str) -> int:
    """Try to create ``topic`` by a send that must fail; return the template's permission."""
    header = SendMessageRequestHeader("g", topic, "TBW102", 4, 0, 0, 0, 0)
    with pytest.raises(BrokerError) as caught:
        await admin.ask(address, RequestCode.SEND_MESSAGE, header, b"x")
    assert caught.value.code == 17
    table = (await admin.all_topic_config(address)).topic_config_table
    assert topic not in table
    return table["TBW102"].perm


@pytest.mark.soak
async def test_offset_files_are_exchanged_with_apache_through_its_backup(
    lab: Lab, tmp_path: Path
) -> None:
    """A torn file of ours makes an Apache broker take the .bak, and the reverse."""
    broker = lab.broker("apache", lab.namesrv())
    config = broker.store / "config"
    path = config / "consumerOffset.json"
    ours = ConsumerOffsetManager(path)
    ours.commit("g", "T", 0, 41)
    ours.persist()
    ours.commit("g", "T", 0, 42)
    ours.commit("g", "T", 3, 7)
    ours.persist()
    path.write_text(path.read_text()[:25])
    broker.start()
    async with AdminClient([]) as admin:
        assert await admin.all_offsets(broker.address) == {"T@g": {0: 41}}
        await admin.update_offset(broker.address, "g", "T", 0, 43)
        await admin.update_offset(broker.address, "g2", "%RETRY%g2", 12, 5)
    await asyncio.to_thread(broker.stop)
    ours.load()
    assert ours.table == {"T@g": {0: 43}, "%RETRY%g2@g2": {12: 5}}
    theirs = path.read_text()
    ours.persist()
    assert sorted(path.read_text().split("\n")) == sorted(theirs.split("\n"))
    assert backup_of(path).read_text() == theirs
