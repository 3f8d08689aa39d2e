"""What a pair that leaves waits for: groups whose offsets stand for what they have consumed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.operator.brokers.backlogs import Backlogs
from failback.operator.brokers.questions import Questions
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import NO_GROUP
from failback.protocol import calls
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.headers import SendMessageRequestHeader
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker

pytestmark = pytest.mark.foreign
TOPIC, SENT, READ = "orders", 40, 5


@asynccontextmanager
async def broker_with_messages(folder: Path) -> AsyncIterator[tuple[AdminClient, str, Backlogs]]:
    broker = Broker("failback", folder, "127.0.0.1:9")
    broker.start()
    try:
        async with AdminClient(timeout_ms=5000 * SCALE) as admin:
            metrics = Metrics(version="0", kopf="0", kubernetes="0")
            for topic in (TOPIC, "unread"):
                await admin.create_topic(broker.address, TopicConfig(topic, 1, 1))
                header = SendMessageRequestHeader("PG", topic, "TBW102", 4, 0, 0, 1, 0, "", 0)
                for _ in range(SENT):
                    await admin.ask(broker.address, RequestCode.SEND_MESSAGE, header, b"x")
            yield admin, broker.address, Backlogs(Questions(metrics, 5 * SCALE), admin)
    finally:
        broker.process.dispose()


async def test_only_groups_that_will_read_are_waited_for(tmp_path: Path) -> None:
    topics = (TOPIC, "unread")
    nobody = {f"{NO_GROUP}@unread": SENT}
    async with broker_with_messages(tmp_path) as (admin, address, backlogs), RemotingClient() as it:
        for group in ("away", "deleted", "broadcasts"):
            await admin.create_group(address, SubscriptionGroupConfig(group))
            await admin.update_offset(address, group, TOPIC, 0, READ)
        await admin.update_offset(address, "of-a-tool", TOPIC, 0, READ)
        await admin.update_offset(address, "beyond", TOPIC, 0, SENT + 7)
        waiting = SENT - READ
        found = await backlogs.of_pair(address, topics)
        assert found is not None
        assert found.unread == nobody | {
            f"{group}@{TOPIC}": waiting for group in ("away", "broadcasts", "deleted")
        }
        assert await backlogs.of_topic(address, TOPIC) == {0: waiting}

        await admin.delete_group(address, "deleted")
        member = ConsumerData(
            "broadcasts",
            "CONSUME_PASSIVELY",
            "BROADCASTING",
            subscription_data_set=[SubscriptionData(TOPIC)],
        )
        heartbeat = calls.heartbeat(HeartbeatData("127.0.0.1@b", [], [member])).request()
        assert (await it.invoke(address, heartbeat, 5000 * SCALE)).code == 0
        found = await backlogs.of_pair(address, topics)
        assert found is not None
        assert found.unread == nobody | {f"away@{TOPIC}": waiting}

        await admin.update_offset(address, "away", TOPIC, 0, SENT)
        found = await backlogs.of_pair(address, topics)
        assert found is not None
        assert found.unread == nobody
        assert await backlogs.of_topic(address, TOPIC) == {}


async def test_a_master_that_does_not_answer_is_unknown() -> None:
    metrics = Metrics(version="0", kopf="0", kubernetes="0")
    async with AdminClient(timeout_ms=200) as admin:
        backlogs = Backlogs(Questions(metrics, 1), admin)
        assert await backlogs.of_pair("127.0.0.1:9", [TOPIC]) is None
        assert await backlogs.of_topic("127.0.0.1:9", TOPIC) is None
