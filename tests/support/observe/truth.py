"""What an observed outage was, and whether what is said of it holds what consumers printed."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from tools.setup_java import SERVER_VERSION

from failback.client.admin.admin import AdminClient
from tests.support.java.apache import Broker
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import TOPIC, Observed

AWAY_SECONDS = 12
ON_4_AND_5 = pytest.mark.parametrize(
    "lab", [SERVER_VERSION, pytest.param("5.3.3", marks=pytest.mark.soak)], indirect=True
)
CONSUMER_OFFSETS = "config/consumerOffset.json"
AFTERWARDS_SECONDS = 15


def begun(lab: Lab, **options: Any) -> Observed:
    observed = Observed(lab, "apache", **options)
    observed.start_brokers()
    observed.begin()
    return observed


def settled(observed: Observed) -> dict[str, Any]:
    """Wait until what is re-consumed has come, and return the report."""
    time.sleep(AFTERWARDS_SECONDS)
    return observed.stop_observing()


def returned(report: dict[str, Any]) -> dict[str, Any]:
    (found,) = report["observation"]["returns"]
    assert found["read"]
    assert found["gone_from"] < found["gone_until"] <= found["back_until"]
    return dict(found)


def cost(report: dict[str, Any], group: str = "billing") -> dict[str, Any]:
    (found,) = (
        each
        for each in returned(report)["groups"]
        if each["group"] == group and each["topic"] == TOPIC
    )
    return dict(found)


def holds(report: dict[str, Any], again: Counter[int], group: str = "billing") -> None:
    """Every interval holds what the consumers printed, queue by queue."""
    found = cost(report, group)
    assert found["lo"] <= again.total() <= found["hi"], (found, again)
    for queue in found["queues"]:
        assert queue["lo"] <= again[queue["qid"]] <= queue["hi"], (queue, again)


def kinds(report: dict[str, Any]) -> set[str]:
    return {event["kind"] for event in report["observation"]["events"]}


async def nothing_is_written(observed: Observed, *brokers: Broker) -> None:
    """Brokers know no group, topic or offset but those of the Java clients and their own."""
    async with AdminClient([observed.namesrv.address], timeout_ms=10_000) as admin:
        for broker in brokers:
            groups = (await admin.all_groups(broker.address)).subscription_group_table
            topics = (await admin.all_topic_config(broker.address)).topic_config_table
            offsets = await admin.all_offsets(broker.address)
            assert {name for name in groups if "failback" in name.lower()} == set()
            assert {name for name in topics if "failback" in name.lower()} == set()
            assert {key.partition("@")[2] for key in offsets} <= {"billing"}
            assert "TOOLS_CONSUMER" not in (broker.store / CONSUMER_OFFSETS).read_text()
