"""Facts about engine versions: the table, its version ranges, and which stores fit together."""

from __future__ import annotations

import pytest

from failback.operator.engines.quirks import (
    PUBLISHED,
    EngineVersion,
    applies,
    quirk,
    quirk_rows,
    store_compatible,
    unreleased,
)

KEYS = {
    "slaveSyncSeconds",
    "slaveCopiesOffsets",
    "ackRule",
    "haListenPort",
    "slaveServesWhenReadDisabled",
    "haStatus",
    "topicConfigByName",
    "commitOnSlavePull",
    "dropsTopicsOnSync",
    "overflowResetsToZero",
    "delayVersionPersisted",
    "topicJsonAttributes",
    "storeFamily",
    "pairMembers",
    "boundedPods",
    "logbackFile",
    "mountedFile",
    "offsetCarry",
    "offsetsInRocksDb",
    "keysOfJars",
}
FACTS = {
    "slaveSyncSeconds": (10, 10, 63),
    "slaveCopiesOffsets": (True, True, True),
    "ackRule": ("oneSlave", "oneSlave", "inSyncReplicas"),
    "haListenPort": ("fixed", "fixed", "configurable"),
    "slaveServesWhenReadDisabled": (True, True, False),
    "haStatus": (True, False, True),
    "topicConfigByName": (True, False, True),
    "commitOnSlavePull": (False, False, True),
    "delayVersionPersisted": (False, False, True),
    "topicJsonAttributes": (False, False, True),
    "storeFamily": ("v4", "v4", "v5"),
    "pairMembers": (False, False, False),
    "mountedFile": (False, False, False),
    "boundedPods": (False, False, False),
    "logbackFile": ("logback_{}.xml", "logback_{}.xml", "rmq.{}.logback.xml"),
    "offsetCarry": (False, False, False),
    "keysOfJars": (False, False, False),
    "offsetsInRocksDb": ("", "", "storeType=defaultRocksDB configManagerVersion=v2"),
    "overflowResetsToZero": (False, False, False),
    "dropsTopicsOnSync": (False, False, False),
}


def test_the_table_has_every_fact_with_its_source() -> None:
    assert {row["key"] for row in quirk_rows()} == KEYS == set(FACTS)
    assert all(row["source"] for row in quirk_rows())


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_fact_of_each_engine(key: str) -> None:
    found = (
        quirk(key, "failback", "0.1.0"),
        quirk(key, "apache", "4.9.8"),
        quirk(key, "apache", "5.3.2"),
    )
    assert found == FACTS[key]


@pytest.mark.parametrize(
    ("key", "version", "value"),
    [
        ("overflowResetsToZero", "4.9.3", True),
        ("overflowResetsToZero", "4.9.4", False),
        ("dropsTopicsOnSync", "5.3.2", False),
        ("dropsTopicsOnSync", "5.3.3", True),
        ("dropsTopicsOnSync", "5.3.4", True),
        ("dropsTopicsOnSync", "5.3.5", False),
        ("dropsTopicsOnSync", "5.4.0", False),
        ("ackRule", "5.0.0", "inSyncReplicas"),
        ("slaveSyncSeconds", "4.9.7", 10),
        ("slaveSyncSeconds", "5.10.0", 63),
        ("offsetsInRocksDb", "5.1.3", ""),
        ("offsetsInRocksDb", "5.1.4", "storeType=defaultRocksDB"),
    ],
)
def test_a_fact_of_apache_depends_on_the_version(key: str, version: str, value: object) -> None:
    assert quirk(key, "apache", version) == value


def test_an_unknown_quirk_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"no quirk speed for apache 4\.9\.7"):
        quirk("speed", "apache", "4.9.7")


@pytest.mark.parametrize(
    ("specifiers", "version", "within"),
    [
        ("", "0.1.0", True),
        (">=5", "4.9.8", False),
        (">=5", "5.0.0", True),
        (">=4.9,<5", "4.9.8", True),
        (">=4.9,<5", "5.0.0", False),
        ("<=4.9", "4.9.8", True),
        ("<=4.9.3", "4.9.10", False),
        (">=5.3.3,<=5.3.4", "5.3.4", True),
        ("==5.3", "5.3.9", True),
        (">5", "5.3.0", False),
    ],
)
def test_versions_are_compared_part_by_part(specifiers: str, version: str, within: bool) -> None:
    assert applies(specifiers, version) == within


OURS = EngineVersion("failback", "0.1.0")
OLD = EngineVersion("apache", "4.9.7")
NEW = EngineVersion("apache", "5.3.3")


@pytest.mark.parametrize(
    ("before", "after"),
    [(OURS, OLD), (OLD, OURS), (OLD, NEW), (OURS, NEW), (NEW, NEW), (OURS, OURS)],
)
def test_a_store_is_read_by_its_own_family_and_by_later_ones(
    before: EngineVersion, after: EngineVersion
) -> None:
    assert store_compatible(before, after) is None


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (OLD, "apache 4.9.7 does not read a store that apache 5.3.3 wrote"),
        (OURS, "failback 0.1.0 does not read a store that apache 5.3.3 wrote"),
    ],
)
def test_no_way_leads_back_from_a_store_of_5(after: EngineVersion, sentence: str) -> None:
    assert store_compatible(NEW, after) == sentence


def test_a_broker_of_ours_knows_its_pair_from_0_2_on() -> None:
    assert [quirk("pairMembers", "failback", each) for each in ("0.1.9", "0.2.0", "1.0.0")] == [
        False,
        True,
        True,
    ]


def test_a_version_that_apache_never_released_is_told_with_the_nearest() -> None:
    for version, near in (
        ("4.9.99", "4.9.8 or 5.0.0"),
        ("4.9.9", "4.9.8 or 5.0.0"),
        ("5.2.1", "5.2.0 or 5.3.0"),
        ("4.8.0", "4.9.0"),
    ):
        words = f"this operator knows no release {version} of Apache RocketMQ; the nearest: {near}"
        assert unreleased(version) == words
    for version in (*PUBLISHED, "4.9.6", "4.9.8", "5.1.2", "5.99.0"):
        assert unreleased(version) is None
