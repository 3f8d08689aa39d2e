"""Offsets that were deleted on purpose: no table that has not heard of it brings them back."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.cluster.hand_back import HandBack, Members
from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.cluster.slave_synchronize import LogNews, MasterOffsets
from failback.broker.config.config import BrokerConfig
from failback.broker.config.time_scale import TimeScale
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import (
    MOST_KEPT,
    ConsumerOffsetManager,
    OffsetDeletions,
)
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.store.log.deletion import Deleted, Deletion
from failback.protocol.codes import RequestCode
from failback.protocol.route import ConsumerOffsetTable, SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.fake_peers import Ends, FakePeers
from tests.support.common.polling import until

pytestmark = pytest.mark.foreign

KEYS = ("T@g", "T@h", "U@g", "U@h")
NAMES = ("topic T", "topic U", "group g", "group h")


def delete(offsets: ConsumerOffsetManager, name: str, at_ms: int) -> None:
    kind, _, which = name.partition(" ")
    (offsets.remove_topic if kind == "topic" else offsets.remove_group)(which, at_ms)


def is_of(key: str, name: str) -> bool:
    topic, group = key.split("@")
    return name in (f"topic {topic}", f"group {group}")


def told(offsets: ConsumerOffsetManager) -> ConsumerOffsetTable:
    """Return a table as another member reads it."""
    return ConsumerOffsetTable.from_json(offsets.to_json())


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "compat"])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(KEYS), st.integers(1, 9)),
            st.sampled_from([*NAMES, "answer", "arrives", "restart"]),
        ),
        max_size=25,
    )
)
def test_a_slave_ends_with_what_its_master_has(
    guarded: bool, steps: list[tuple[str, int] | str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Answers may be late; offsets of the same life never go back here."""
    folder = tmp_path_factory.mktemp("tables")
    master = ConsumerOffsetManager(folder / "master.json")
    slave = ConsumerOffsetManager(folder / "slave.json")
    merged = MasterOffsets()
    answer = told(master)

    def arrives(table: ConsumerOffsetTable) -> None:
        taken = slave.take_deletions(table)
        if guarded:
            merged.merge(slave.table, taken, 1)
        else:
            slave.merge_from_master(taken)

    for now, step in enumerate(steps, start=1):
        if isinstance(step, tuple):
            key, more = step
            topic, group = key.split("@")
            master.commit(group, topic, 0, max(0, master.query(group, topic, 0)) + more)
        elif step == "answer":
            answer = told(master)
        elif step == "arrives":
            before = copy.deepcopy(slave.deletions.table)
            arrives(answer)
            assert all(slave.deletions.table[key] >= at for key, at in before.items())
        elif step == "restart":
            slave.persist()
            slave.load()
        else:
            delete(master, step, now)
            assert not any(is_of(key, step) for key in master.table)
    arrives(told(master))
    assert {key: queues for key, queues in slave.table.items() if queues} == master.table
    if not guarded:
        arrives(answer)  # one that was on its way for long
        for key in slave.table:
            assert key in master.table


def test_the_file_and_the_answer_say_it_only_where_something_was_deleted(tmp_path: Path) -> None:
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    offsets.commit("g", "T", 0, 5)
    assert json.loads(offsets.to_json().replace(b"{0:", b'{"0":')) == {
        "offsetTable": {"T@g": {"0": 5}}
    }
    offsets.remove_group("g", 7)
    assert told(offsets) == ConsumerOffsetTable({}, {"@g": 7})
    offsets.persist()
    again = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    again.load()
    assert again.deletions.table == {"@g": 7}


def test_the_oldest_deletions_are_forgotten() -> None:
    deletions = OffsetDeletions()
    for number in range(MOST_KEPT + 5):
        deletions.note(f"@g{number}", number)
    assert len(deletions.table) == MOST_KEPT
    assert "@g4" not in deletions.table
    assert "@g5" in deletions.table


@pytest.mark.parametrize(
    ("said", "raised"), [(None, 0), ({"@g": 6}, 0), ({"@g": 7}, 1), ({"@g": 8}, 1)]
)
async def test_a_returned_master_takes_no_deleted_offset_back(
    said: dict[str, int] | None, raised: int, tmp_path: Path
) -> None:
    """What its slave has since the deletion it takes."""
    offsets, peers = ConsumerOffsetManager(tmp_path / "consumerOffset.json"), FakePeers()
    offsets.commit("g", "T", 0, 500)
    offsets.remove_group("g", 7)
    members = {"cluster": "c", "brokerName": "b", "brokerAddrs": {0: "me:1", 1: "slave:1"}}
    peers.answers["ns:1", RequestCode.GET_BROKER_CLUSTER_INFO] = json.dumps(
        {"brokerAddrTable": {"b": members}, "clusterAddrTable": {"c": ["b"]}}
    ).encode()
    peers.answers["slave:1", RequestCode.GET_ALL_CONSUMER_OFFSET] = ConsumerOffsetTable(
        {"T@g": {0: 500}}, said
    ).to_json(unquoted_int_keys=True)
    outer = BrokerOuterApi(peers, ["ns:1"])  # type: ignore[arg-type]
    hand_back = HandBack(
        outer,
        offsets,
        broker_name="b",
        own_address="me:1",
        members=Members(lambda: ("slave:1",)),
    )
    assert await hand_back.take_returned_offsets(Ends(lambda *_: 1000)) == raised
    assert offsets.query("g", "T", 0) == (500 if raised else -1)


async def test_a_slave_deletes_what_the_log_says_and_asks_its_master(tmp_path: Path) -> None:
    config = BrokerConfig(broker_cluster_name="c", broker_name="b")
    topics = TopicConfigManager(tmp_path / "topics.json", config)
    groups = SubscriptionGroupManager(tmp_path / "subscriptionGroup.json", config)
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    for name in ("orders", "paid"):
        topics.update(TopicConfig(name, 1, 1))
    for name in ("g", "h", "i"):
        groups.update(SubscriptionGroupConfig(name))
        offsets.commit(name, "orders", 0, 5)
        offsets.commit(name, "paid", 0, 5)
        offsets.commit(name, "other", 0, 5)
    asked = list[None]()

    async def synchronise() -> None:
        asked.append(None)

    news = LogNews(topics, groups, offsets, scale=TimeScale(0.01), synchronise=synchronise)
    task = asyncio.create_task(news.run())
    news.met_queue("paid")
    await asyncio.sleep(0.05)
    assert not asked
    news.met_queue("new")
    await until(lambda: len(asked) == 1, "the first question")
    now = topics.data_version.timestamp
    news.deleted(Deletion(Deleted.TOPIC, "orders", now))
    news.deleted(Deletion(Deleted.TOPIC, "paid", now - 1))
    news.deleted(Deletion(Deleted.GROUP, "g", now + 1_000))
    news.deleted(Deletion(Deleted.GROUP_AND_OFFSETS, "h", now + 1_001))
    await until(lambda: len(asked) == 2, "the second question")
    task.cancel()
    assert "orders" not in topics.table
    assert "paid" in topics.table, "it was made again before this table was copied"
    assert topics.data_version.timestamp == now
    assert {"g", "h", "i"} & groups.table.keys() == {"i"}
    assert offsets.table == {"other@g": {0: 5}, "other@i": {0: 5}}
    assert offsets.deletions.table == {"orders@": now, "paid@": now - 1, "@h": now + 1_001}
    assert news.deletions == 4
