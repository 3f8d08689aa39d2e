"""What a broker exports: every family of the table, offsets that went back by what made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from failback.broker.cluster.hand_back import HandBack, Members
from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.metadata.offsets.consumer_offset_manager import (
    ConsumerOffsetManager,
    IndexedTable,
)
from failback.broker.metadata.offsets.regressions import OffsetRegressions
from failback.broker.monitoring.metrics import limited
from failback.protocol import metric_families as families
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.headers import DeleteSubscriptionGroupRequestHeader, DeleteTopicRequestHeader
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab
from tests.support.brokers.fake_peers import FakePeers

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def scraped(lab: BrokerLab) -> Samples:
    """Return what /metrics says: name to labels to value."""
    text = lab.controller._endpoints.metrics("GET").body.decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def only(samples: Mapping[tuple[tuple[str, str], ...], float]) -> float:
    (value,) = samples.values()
    return value


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
async def test_every_family_has_the_labels_of_the_table(tmp_path: Path, role: str) -> None:
    async with broker_lab(tmp_path, brokerRole=role, brokerId=int(role == "SLAVE")) as lab:
        found = scraped(lab)
    by_name = {family.name: family for family in families.BROKER}
    assert set(found) <= set(by_name)
    for name, samples in found.items():
        for labels in samples:
            assert {label for label, _ in labels} == set(by_name[name].labels), name
    slave_only = {"rocketmq_slave_metadata_sync_age_seconds", "failback_ha_stopped"}
    assert slave_only.isdisjoint(found) == (role != "SLAVE")


async def test_messages_are_in_flight_until_they_are_committed(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for _ in range(3):
            await client.send()
        lab.controller.offsets.commit("CG", "TopicTest", 0, 0)
        await client.pull()
        assert only(scraped(lab)["rocketmq_consumer_inflight_messages"]) == 3
        lab.controller.offsets.commit("CG", "TopicTest", 0, 2)
        found = scraped(lab)
        assert only(found["rocketmq_consumer_inflight_messages"]) == 1
        assert only(found["rocketmq_consumer_lag_messages"]) == 1
        assert only(found["rocketmq_messages_out_total"]) == 3


async def test_dead_letters_are_counted_by_group(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(topic="%DLQ%CG", default_topic_queue_nums=1)
        found = scraped(lab)["rocketmq_send_to_dlq_messages_total"]
        assert [dict(labels)["consumer_group"] for labels in found] == ["CG"]
        assert only(found) == 1


async def test_an_offset_that_goes_back_is_shown_with_its_source(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        await lab.connect().send()
        lab.controller.offsets.commit("g", "TopicTest", 0, 100)
        lab.controller.offsets.commit("g", "TopicTest", 0, 40)
        (labels, times) = next(iter(scraped(lab)["rocketmq_offset_regressions_total"].items()))
        assert dict(labels) == {
            "cluster": "DefaultCluster",
            "broker": "broker-a",
            "node_role": "master",
            "consumer_group": "g",
            "topic": "TopicTest",
            "source": "client_commit",
        }
        assert times == 1
        assert only(scraped(lab)["rocketmq_offset_regression_messages_total"]) == 60


OF_GROUPS = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_messages_out_total",
    "rocketmq_offset_regressions_total",
)


def about(lab: BrokerLab, group: str) -> dict[str, float]:
    """The samples of a group, by family."""
    found = scraped(lab)
    return {
        name: value
        for name in OF_GROUPS
        for labels, value in found.get(name, {}).items()
        if dict(labels)["consumer_group"] == group
    }


def heartbeat(model: Literal["CLUSTERING", "BROADCASTING"]) -> bytes:
    subscription = SubscriptionData("TopicTest")
    group = ConsumerData("CG", message_model=model, subscription_data_set=[subscription])
    return HeartbeatData("c1", [], [group]).to_json()


@pytest.mark.foreign
async def test_a_group_that_broadcasts_has_no_lag_of_old_offsets(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for _ in range(3):
            await client.send()
        lab.controller.offsets.commit("CG", "TopicTest", 0, 1)
        await client.ask(RequestCode.HEART_BEAT, body=heartbeat("BROADCASTING"))
        await client.pull()
        assert "rocketmq_consumer_lag_messages" not in about(lab, "CG")
        assert "rocketmq_consumer_inflight_messages" not in about(lab, "CG")
        client.disconnect()
        assert "rocketmq_consumer_lag_messages" not in about(lab, "CG"), "members have left"
        again = lab.connect()
        await again.ask(RequestCode.HEART_BEAT, body=heartbeat("CLUSTERING"))
        assert about(lab, "CG")["rocketmq_consumer_lag_messages"] == 2


@pytest.mark.foreign
async def test_of_a_deleted_group_nothing_is_left(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = await consumed_and_set_back(lab)
        assert set(about(lab, "CG")) == set(OF_GROUPS)
        header = DeleteSubscriptionGroupRequestHeader("CG", False, False)
        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        assert about(lab, "CG") == {}
        lab.controller.offsets.commit("by-a-tool", "TopicTest", 0, 0)
        assert about(lab, "by-a-tool") == {"rocketmq_consumer_lag_messages": 1}


async def test_of_a_deleted_topic_nothing_is_left(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = await consumed_and_set_back(lab)
        assert of_topic(lab, "TopicTest") >= {*OF_GROUPS, "rocketmq_messages_in_total"}
        header = DeleteTopicRequestHeader("TopicTest")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header)
        assert of_topic(lab, "TopicTest") == set()


async def consumed_and_set_back(lab: BrokerLab) -> LabClient:
    """Let a group consume a message, and its offset go back."""
    client = lab.connect()
    await client.send()
    await client.pull()
    for offset in (1, 0):
        lab.controller.offsets.commit("CG", "TopicTest", 0, offset)
    return client


def of_topic(lab: BrokerLab, topic: str) -> set[str]:
    """The families that have a sample of a topic."""
    return {
        name
        for name, samples in scraped(lab).items()
        for labels in samples
        if dict(labels).get("topic") == topic
    }


# --- sources --------------------------------------------------------------------------------------


@pytest.fixture
def offsets(tmp_path: Path) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(tmp_path / "consumerOffset.json")


def test_commits_that_go_forward_count_nothing(offsets: ConsumerOffsetManager) -> None:
    for offset in (5, 5, 9):
        offsets.commit("g", "T", 0, offset)
    assert offsets.regressions.counts == {}


def test_the_first_smaller_commit_after_a_reset_is_the_reset(
    offsets: ConsumerOffsetManager,
) -> None:
    offsets.commit("g", "T", 0, 100)
    offsets.regressions.expect_reset("T", "g", {0: 30})
    offsets.commit("g", "T", 0, 35)  # five were consumed before the first commit
    offsets.commit("g", "T", 0, 20)
    assert offsets.regressions.counts == {
        ("reset", "T", "g"): [1, 65],
        ("client_commit", "T", "g"): [1, 15],
    }


def test_a_commit_below_the_place_of_the_reset_is_another(offsets: ConsumerOffsetManager) -> None:
    offsets.commit("g", "T", 0, 100)
    offsets.regressions.expect_reset("T", "g", {0: 30})
    offsets.commit("g", "T", 0, 10)
    assert offsets.regressions.counts == {("client_commit", "T", "g"): [1, 90]}


def test_a_synchronisation_counts_what_it_overwrites(offsets: ConsumerOffsetManager) -> None:
    offsets.table = IndexedTable({"T@g": {0: 500, 1: 7}, "mine@g": {0: 3}})
    offsets.merge_from_master({"T@g": {0: 120, 1: 9}})
    offsets.merge_from_master({"T@g": {0: 120, 1: 9}})
    assert offsets.regressions.counts == {("slave_sync", "T", "g"): [1, 380]}
    assert offsets.regressions.overwrites == 1


async def test_a_restarted_master_counts_what_its_slave_still_knows(
    offsets: ConsumerOffsetManager,
) -> None:
    slave = "127.0.0.3:10911"
    offsets.table = IndexedTable({"T@g": {0: 100, 1: 50}})
    peers = FakePeers()
    peers.answers |= {
        ("ns:9876", RequestCode.GET_BROKER_CLUSTER_INFO): (
            b'{"brokerAddrTable":{"b":{"cluster":"c","brokerName":"b","brokerAddrs":'
            b'{0:"127.0.0.2:10911",1:"%s"}}}}' % slave.encode()
        ),
        (slave, RequestCode.GET_ALL_CONSUMER_OFFSET): b'{"offsetTable":{"T@g":{0:160,1:20,2:5}}}',
    }
    outer = BrokerOuterApi(peers, ["ns:9876"])  # type: ignore[arg-type]
    hand_back = HandBack(
        outer,
        offsets,
        broker_name="b",
        own_address="127.0.0.2:10911",
        members=Members(lambda: ()),
    )
    assert await hand_back.count_lost_offsets() == 2
    assert offsets.regressions.counts == {("restart", "T", "g"): [2, 65]}
    assert offsets.table == {"T@g": {0: 100, 1: 50}}, "nothing is taken"


# --- the budget of labels -------------------------------------------------------------------------


def test_what_is_beyond_the_budget_is_other() -> None:
    counts = {(f"T{number}", "g"): 1.0 for number in range(250)}
    kept = limited(counts)
    assert len(kept) == families.MAX_SERIES + 1
    assert kept["other", "other"] == 50
    regressions = OffsetRegressions()
    for number in range(250):
        regressions.note("client_commit", f"T{number}@g", 2)
    assert len(regressions.counts) == families.MAX_SERIES + 1
    assert regressions.counts["client_commit", "other", "other"] == [50, 100]
