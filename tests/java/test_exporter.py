"""The exporter asks Apache's brokers, with a Java consumer at work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.analytics.exporter.figures import figures_of
from failback.analytics.exporter.pair_history import History
from failback.analytics.exporter.survey import Surveyor
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.route import TopicConfig
from tests.support.common.polling import SCALE
from tests.support.java.java_lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.dispose()


async def test_an_apache_broker_has_the_same_names(lab: Lab) -> None:
    namesrv = lab.namesrv("failback")
    broker = lab.broker("apache", namesrv)
    broker.start()
    async with (
        RemotingClient() as client,
        AdminClient([namesrv.address], client=client, timeout_ms=30_000) as admin,
    ):
        await admin.create_topic(broker.address, TopicConfig("Exported", 2, 2))
        await admin.update_offset(broker.address, "g", "Exported", 0, 0)
        surveyor = Surveyor([namesrv.address], client=client, timeout_ms=30_000)
        history, found = History(), dict[str, float]()
        async with asyncio.timeout(60 * SCALE):
            while "rocketmq_group_diff" not in found:
                survey = await surveyor.survey()
                history.look(survey)
                found = {
                    sample.name: sample.value
                    for metric in figures_of(survey, history).families()
                    for sample in metric.samples
                }
    assert found["failback_exporter_up"] == 1
    assert found["rocketmq_broker_permission"] == 6
    assert found["rocketmq_broker_start_time_seconds"] > 1e9
    assert found["rocketmq_storage_flush_behind_bytes"] >= 0
    assert found["rocketmq_group_diff"] == 0
