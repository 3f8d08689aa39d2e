"""A broker is killed when it has acknowledged new names: its tables have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.client.remoting.connection import RemotingClient
from failback.protocol.clients import ConsumerData, HeartbeatData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import CreateTopicRequestHeader
from failback.protocol.route import SubscriptionGroupConfig
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker

KILLS = 4


def requests_of(life: int) -> dict[str, list[RemotingCommand]]:
    """Return what makes topics, and what makes groups, each under a name of its own."""
    group = SubscriptionGroupConfig(group_name=f"ordered{life}").to_json()
    beat = HeartbeatData("c", [], [ConsumerData(f"beat{life}")]).to_json()
    order = CreateTopicRequestHeader(f"Ordered{life}", "TBW102", 4, 4, 6, "SINGLE_TAG")
    return {
        "topics": [
            RemotingCommand.request(
                RequestCode.SEND_MESSAGE_V2, send_header(topic=f"Sent{life}"), b"m"
            ),
            RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, order),
        ],
        "groups": [
            RemotingCommand.request(RequestCode.HEART_BEAT, body=beat),
            RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group),
        ],
    }


def on_disk(broker: Broker) -> set[str]:
    folder, config = broker.store / "config", BrokerConfig()
    topics = TopicConfigManager(folder / "topics.json", config)
    groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config)
    topics.load()
    groups.load()
    return {*topics.table, *groups.table}


async def test_what_was_acknowledged_is_in_the_tables_after_a_kill(tmp_path: Path) -> None:
    """All are asked for at once, so that they share writes; the kill follows the last answer."""
    broker = Broker("failback", tmp_path, "")
    wanted = set[str]()
    for life in range(KILLS):
        broker.start()
        try:
            async with RemotingClient() as client:
                requests = requests_of(life)
                answers = await asyncio.gather(
                    *(
                        client.invoke(broker.address, request, 20_000 * SCALE)
                        for request in (*requests["topics"], *requests["groups"])
                    )
                )
                broker.kill()
        finally:
            broker.process.dispose()
        assert [answer.code for answer in answers] == [0] * 4
        wanted |= {f"Sent{life}", f"Ordered{life}", f"beat{life}", f"ordered{life}"}
        wanted.add(f"%RETRY%beat{life}")
        assert wanted <= on_disk(broker)
