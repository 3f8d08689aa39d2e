"""Consumer groups: built-in ones, creation on first use, what a slave takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.protocol.route import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "subscriptionGroup.json"


def manager(path: Path, *, auto_create: bool = True) -> SubscriptionGroupManager:
    config = BrokerConfig(auto_create_subscription_group=auto_create)
    return SubscriptionGroupManager(path, config, clock_ms=lambda: 1_700_000_000_000)


def test_the_groups_that_tools_expect_are_there(path: Path) -> None:
    assert set(manager(path, auto_create=False).table) == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }


def test_an_unknown_group_is_created_with_defaults_once(path: Path) -> None:
    groups = manager(path)
    group = groups.find("g")
    assert group == SubscriptionGroupConfig("g")
    assert groups.find("g") is group
    assert groups.data_version.counter == 1
    reborn = manager(path)
    reborn.load()
    assert reborn.table["g"] == group
    assert reborn.data_version == groups.data_version


def test_without_auto_creation_only_internal_groups_are_created(path: Path) -> None:
    groups = manager(path, auto_create=False)
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_TRANS") is not None
    assert groups.data_version.counter == 1


def test_updating_and_deleting_bump_the_version(path: Path) -> None:
    groups = manager(path)
    groups.update(SubscriptionGroupConfig("g", retry_max_times=3))
    assert groups.table["g"].retry_max_times == 3
    groups.take_back("g", None)
    assert "g" not in groups.table
    assert groups.data_version.counter == 2


def test_the_file_is_what_a_java_broker_writes(path: Path) -> None:
    groups = manager(path)
    groups.table.clear()
    groups.update(SubscriptionGroupConfig("g1"))
    members = [
        '"brokerId":0',
        '"consumeBroadcastEnable":true',
        '"consumeEnable":true',
        '"consumeFromMinEnable":true',
        '"groupName":"g1"',
        '"notifyConsumerIdsChangedEnable":true',
        '"retryMaxTimes":16',
        '"retryQueueNums":1',
        '"whichBrokerWhenConsumeSlowly":1',
    ]
    assert path.read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"timestamp":1700000000000\n\t},\n'
        '\t"subscriptionGroupTable":{\n\t\t"g1":{\n\t\t\t'
        + ",\n\t\t\t".join(members)
        + "\n\t\t}\n\t}\n}"
    )


def test_a_slave_takes_a_different_version_and_ignores_an_equal_one(path: Path) -> None:
    groups = manager(path)
    groups.find("created-on-the-slave")
    wrapper = SubscriptionGroupWrapper({"g": SubscriptionGroupConfig("g")}, DataVersion(1, 0))
    assert groups.replace_all(wrapper)
    assert set(groups.table) == {"g"}
    assert not groups.replace_all(SubscriptionGroupWrapper({}, DataVersion(1, 0)))
    assert set(groups.table) == {"g"}
