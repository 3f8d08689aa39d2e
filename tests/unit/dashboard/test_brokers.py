"""What one broker is asked, and how often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from failback.analytics.dashboard.sources import brokers
from failback.analytics.dashboard.sources.brokers import look_at
from failback.analytics.dashboard.sources.clusters import MemberRef
from failback.analytics.live.facts import GroupTopic
from failback.client.admin.admin import AdminClient

MEMBER = MemberRef("orders-0-0", "orders-0", "127.0.0.1:1")


class Broker:
    """Answers as a broker does; its configuration may be changed live."""

    def __init__(self) -> None:
        self.config = {"brokerName": "orders-0", "brokerId": "0", "slaveReadEnable": "true"}
        self.asked = 0
        self.boot = 1_000

    async def runtime_info(self, _: str) -> dict[str, str]:
        return {"bootTimestamp": str(self.boot), "commitLogMaxOffset": "5"}

    async def all_offsets(self, _: str) -> dict[str, dict[int, int]]:
        return {"orders@billing": {0: 7}}

    async def broker_config(self, _: str) -> dict[str, str]:
        self.asked += 1
        return dict(self.config)

    async def call(self, _: str, members: Any) -> Any:
        group = members.header.consumer_group
        return SimpleNamespace(connection_set=[group], message_model="CLUSTERING")

    async def all_groups(self, _: str) -> Any:
        return SimpleNamespace(subscription_group_table={})

    async def topic_stats(self, _: str, topic: str) -> Any:
        return SimpleNamespace(offset_table={})


async def test_a_configuration_that_changed_live_is_seen_within_seconds() -> None:
    broker = Broker()
    admin = cast(AdminClient, broker)
    seen = await look_at(admin, MEMBER, None)
    broker.config["slaveReadEnable"] = "false"
    again = await look_at(admin, MEMBER, seen)
    assert (again.config["slaveReadEnable"], broker.asked) == ("true", 1), "not with every look"
    assert again.consumers.members == {"billing": 1}, "nor members"
    late = replace(again, config_at=again.config_at - brokers.CONFIG_SECONDS)
    later = await look_at(admin, MEMBER, late)
    assert (later.config["slaveReadEnable"], broker.asked) == ("false", 2)


async def test_another_process_is_asked_at_once() -> None:
    broker = Broker()
    admin = cast(AdminClient, broker)
    seen = await look_at(admin, MEMBER, None)
    broker.boot, broker.config["brokerId"] = 2_000, "1"
    assert (await look_at(admin, MEMBER, seen)).broker_id == 1


@pytest.mark.parametrize("number", ["first", "", "1.5"])
async def test_a_broker_with_a_number_that_is_none_is_a_problem_of_that_broker(number: str) -> None:
    broker = Broker()
    admin = cast(AdminClient, broker)
    seen = await look_at(admin, MEMBER, None)
    broker.config["brokerId"], broker.boot = number, 2_000
    again = await look_at(admin, MEMBER, seen)
    assert not again.answered
    assert again.offsets == seen.offsets, "it stays with what it said last"


async def test_metrics_of_something_else_give_no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"rocketmq_offset_persist_age_seconds soon\nrocketmq_slave_metadata_sync_age_seconds 3\n"
    monkeypatch.setattr(brokers, "_fetch_metrics", lambda _: text)
    seen = await look_at(cast(AdminClient, Broker()), replace(MEMBER, http="127.0.0.1:1"), None)
    assert (seen.persist_age, seen.sync_age) == (None, 3.0)


async def test_an_address_that_is_none_gives_no_age() -> None:
    member = replace(MEMBER, http="orders-0-0:port")
    seen = await look_at(cast(AdminClient, Broker()), member, None)
    assert (seen.answered, seen.persist_age) == (True, None)


async def test_the_file_of_an_apache_master_on_this_machine_is_read(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"orders@billing":{0:4}}}'
    )
    broker = Broker()
    broker.config["storePathRootDir"] = str(tmp_path)
    admin = cast(AdminClient, broker)
    seen = await look_at(admin, MEMBER, None)
    assert seen.file is not None
    assert seen.file.table == {GroupTopic("billing", "orders"): {0: 4}}
    assert seen.persist_age is not None
    elsewhere = replace(MEMBER, address="192.0.2.1:1")
    assert (await look_at(admin, elsewhere, None)).file is None
    broker.config["brokerId"] = "1"
    slave = await look_at(admin, MEMBER, None)
    assert (slave.file, slave.persist_age) == (None, None)
