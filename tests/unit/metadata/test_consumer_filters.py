"""consumerFilter.json: what a broker of 4.9 finds in it, and what becomes of it over time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.broker.filters.consumer_filters import (
    DEAD_KEPT_MS,
    ConsumerFilterManager,
    bits_of,
    murmur3_low,
)
from failback.broker.filters.subscription import Subscription, of_heartbeat
from failback.broker.metadata.json_config import backup_of
from failback.protocol.clients import SubscriptionData
from failback.protocol.errors import CorruptStore
from tests.support.brokers.broker_lab import broker_lab
from tests.support.store.store_kit import Clock
from tests.unit.broker.test_filter_requests import beat

BORN = 1_700_000_000_000


def sql(text: str = "a > 2", version: int = 1, topic: str = "TopicTest") -> Subscription:
    data = SubscriptionData(topic, text, sub_version=version, expression_type="SQL92")
    return of_heartbeat(data)


def by_tag(topic: str = "TopicTest") -> Subscription:
    return of_heartbeat(SubscriptionData(topic, "*", sub_version=9))


class Kept:
    """A manager, its clock and its file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config" / "consumerFilter.json"
        self.clock = Clock(BORN)
        self.manager = ConsumerFilterManager(self.path, self.clock)

    def reborn(self) -> ConsumerFilterManager:
        self.manager.persist()
        manager = ConsumerFilterManager(self.path, self.clock)
        manager.load()
        return manager

    def state(self, topic: str = "TopicTest") -> tuple[str, int, int, int] | None:
        """Return expression, version, birth and death of group CG's filter, times since BORN."""
        found = self.manager.get(topic, "CG")
        if found is None:
            return None
        died = found.dead_time and found.dead_time - BORN
        return found.expression, found.client_version, found.born_time - BORN, died


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_the_hash_is_the_one_of_its_published_vectors(text: bytes, expected: int) -> None:
    assert murmur3_low(text) == expected


def test_the_file_holds_what_a_broker_of_4_9_writes(kept: Kept) -> None:
    kept.manager.register("CG", [sql(), by_tag("%RETRY%CG")])
    kept.manager.persist()
    assert json.loads(kept.path.read_text()) == {
        "filterDataByTopic": {
            "TopicTest": {
                "groupFilterData": {
                    "CG": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": bits_of("CG", "TopicTest")},
                        "bornTime": BORN,
                        "clientVersion": 1,
                        "consumerGroup": "CG",
                        "deadTime": 0,
                        "expression": "a > 2",
                        "expressionType": "SQL92",
                        "topic": "TopicTest",
                    }
                },
                "topic": "TopicTest",
            }
        }
    }


def test_a_newer_version_replaces_and_an_older_one_does_not(kept: Kept) -> None:
    kept.manager.register("CG", [sql("a > 2", version=5)])
    kept.clock.now += 10
    kept.manager.register("CG", [sql("a > 3", version=4)])
    kept.manager.register("CG", [sql("a > 3", version=5)])
    assert kept.state() == ("a > 2", 5, 0, 0)
    kept.manager.register("CG", [sql("a > 2", version=6)])
    assert kept.state() == ("a > 2", 6, 0, 0)
    kept.manager.register("CG", [sql("a > 3", version=7)])
    assert kept.state() == ("a > 3", 7, 10, 0)
    kept.manager.register("CG", [sql("a >", version=8)])
    assert kept.state() is None


def test_a_filter_dies_with_its_group_or_its_subscription_and_comes_to_life_again(
    kept: Kept,
) -> None:
    kept.manager.register("CG", [sql(), sql(topic="Other")])
    kept.clock.now += 5
    kept.manager.register("CG", [sql()])
    kept.manager.register("Else", [by_tag("Other")])
    assert (kept.state(), kept.state("Other")) == (("a > 2", 1, 0, 0), ("a > 2", 1, 0, 5))
    kept.clock.now += 5
    kept.manager.unregister("CG")
    assert (kept.state(), kept.state("Other")) == (("a > 2", 1, 0, 10), ("a > 2", 1, 0, 5))
    kept.manager.register("CG", [sql(version=2)])
    assert kept.state() == ("a > 2", 2, 0, 0)


def test_the_dead_are_forgotten_after_a_day(kept: Kept) -> None:
    kept.manager.register("CG", [sql()])
    kept.clock.now += 1
    kept.manager.unregister("CG")
    kept.clock.now += DEAD_KEPT_MS - 1
    assert kept.reborn().get("TopicTest", "CG") is not None
    kept.clock.now += 1
    assert kept.reborn().table == {}
    assert json.loads(kept.path.read_text()) == {"filterDataByTopic": {}}


@pytest.mark.parametrize(("age_ms", "died_ms"), [(1_000, 0), (90_000, 60_000)])
def test_a_start_takes_everybody_to_be_dead(kept: Kept, age_ms: int, died_ms: int) -> None:
    kept.manager.register("CG", [sql()])
    kept.clock.now += age_ms
    kept.manager = kept.reborn()
    assert kept.state() == ("a > 2", 1, 0, died_ms)
    kept.manager.register("CG", [sql()])
    assert kept.state() == ("a > 2", 1, 0, 0)


def test_only_what_has_changed_is_written(kept: Kept) -> None:
    kept.manager.register("CG", [sql()])
    kept.manager.persist()
    kept.path.unlink()
    kept.manager.persist()
    assert not kept.path.exists()
    kept.manager.unregister("CG")
    kept.manager.persist()
    assert kept.path.exists()


def test_bits_of_another_kind_make_the_table_begin_anew(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.manager.register("CG", [sql()])
    kept.manager.persist()
    kept.path.write_text(kept.path.read_text().replace("112", "224"))
    manager = ConsumerFilterManager(kept.path, kept.clock)
    manager.load()
    assert manager.table == {}
    assert "bits of another kind" in caplog.text


def test_a_file_that_is_no_good_falls_back_to_the_one_before(kept: Kept) -> None:
    for text in ("a > 2", "a > 3"):
        kept.manager.register("CG", [sql(text, version=int(text[-1]))])
        kept.manager.persist()
    kept.path.write_text('{"filterDataByTopic":[]}')
    manager = ConsumerFilterManager(kept.path, kept.clock)
    manager.load()
    found = manager.get("TopicTest", "CG")
    assert found is not None
    assert found.expression == "a > 2"
    backup_of(kept.path).write_text("{")
    with pytest.raises(CorruptStore, match=r"consumerFilter.json.bak"):
        manager.load()


async def test_heartbeats_and_goodbyes_reach_the_file_of_a_broker(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, enablePropertyFilter="true") as lab:
        client = lab.connect()
        await beat(client, "a > 2")
        filters = lab.controller.filters
        found = filters.get("TopicTest", "CG")
        assert found is not None
        assert not found.is_dead
        client.disconnect()
        assert found.is_dead
        filters.persist()
    path = next(tmp_path.rglob("consumerFilter.json"))
    (of_group,) = json.loads(path.read_text())["filterDataByTopic"]["TopicTest"][
        "groupFilterData"
    ].values()
    assert (of_group["expression"], of_group["deadTime"]) == ("a > 2", found.dead_time)
