"""What was deleted in a cluster is in no series after the next survey."""

from __future__ import annotations

import asyncio
from itertools import product, repeat

import pytest

from failback.analytics.exporter.figures import figures_of
from failback.analytics.exporter.pair_history import History
from failback.analytics.exporter.survey import Surveyor
from failback.client.admin.admin import AdminClient
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.settings import ClientSettings
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.common.polling import SCALE
from tests.support.java.apache import Engine
from tests.support.java.java_lab import Lab

TOPICS = ("topic-kept", "topic-gone")
GROUPS = ("group-kept", "group-gone")
LONE = "group-lone-gone"
"""It stays, but its only topic goes."""
OF_EACH = {
    "rocketmq_messages_in_total",
    "rocketmq_messages_out_total",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_offset",
    "rocketmq_offset_regressions_total",
    "rocketmq_reconsume_exposure_messages",
}


class Shown:
    """Series after one survey more each time."""

    def __init__(self, namesrv: str, client: RemotingClient) -> None:
        self._surveyor = Surveyor([namesrv], client=client, timeout_ms=30_000 * SCALE)
        self._history = History()

    async def now(self, word: str = "") -> set[str]:
        """Names of series that have this word in a label."""
        survey = await self._surveyor.survey()
        self._history.look(survey)
        return {
            sample.name
            for metric in figures_of(survey, self._history).families()
            for sample in metric.samples
            if word in " ".join(sample.labels.values())
        }

    async def wait(self, names: set[str]) -> None:
        """Survey twice a second until all of these have the word of what is deleted later."""
        missing = names
        try:
            async with asyncio.timeout(60 * SCALE):
                for pause in repeat(0.5):
                    missing = names - await self.now("gone")
                    if not missing:
                        return
                    await asyncio.sleep(pause)
        except TimeoutError:
            pytest.fail(f"in no series: {missing}")


@pytest.mark.parametrize("engine", ["failback", "apache"])
async def test_a_deleted_topic_and_group_are_in_no_series(lab: Lab, engine: Engine) -> None:
    namesrv = lab.namesrv("failback")
    broker = lab.broker(engine, namesrv)
    broker.start()
    settings = ClientSettings(namesrv_addrs=(namesrv.address,), client_ip="127.0.0.1")
    async with (
        RemotingClient() as client,
        AdminClient([namesrv.address], client=client, timeout_ms=30_000 * SCALE) as admin,
        Producer("shop", settings) as producer,
    ):
        for topic in TOPICS:
            await admin.create_topic(broker.address, TopicConfig(topic, 1, 1))
            for _ in range(5):
                await producer.send(Message(topic, b"x"))
        for group in (*GROUPS, LONE):
            await admin.create_group(broker.address, SubscriptionGroupConfig(group))
        shown = Shown(namesrv.address, client)
        await shown.wait({"rocketmq_messages_in_total"})
        for offset in (5, 3):
            for group, topic in (*product(GROUPS, TOPICS), (LONE, TOPICS[1])):
                await admin.update_offset(broker.address, group, topic, 0, offset)
            await shown.now()
        # A master of Apache tells no age of a log below 8 MiB: it may have been restarted.
        unknown = {"rocketmq_reconsume_exposure_messages"} if engine == "apache" else set()
        known = OF_EACH - unknown
        await shown.wait(known)

        await admin.delete_group(broker.address, GROUPS[1], remove_offset=False)
        await admin.delete_topic(broker.address, TOPICS[1])
        await admin.delete_topic_in_namesrv(namesrv.address, TOPICS[1])
        assert await shown.now("gone") == set()
        assert await shown.now("kept") >= known
