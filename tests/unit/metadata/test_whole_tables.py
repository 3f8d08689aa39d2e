"""Topics and groups that are ordered are stored and announced, or nothing of the order holds."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.json_config import ConfigFiles
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.codes import RequestCode
from failback.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)
from failback.protocol.route import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab

pytestmark = pytest.mark.foreign

State = tuple[dict[str, TopicConfig], DataVersion, dict[str, SubscriptionGroupConfig], DataVersion]


def state(lab: BrokerLab) -> State:
    topics, groups = lab.controller.topics, lab.controller.groups
    return dict(topics.table), topics.data_version, dict(groups.table), groups.data_version


class Order:
    """What an administrator asks for."""

    def __init__(self, lab: BrokerLab, folder: Path) -> None:
        self.client: LabClient = lab.connect()
        self.folder = folder / "store" / "config"
        self.folder.mkdir(parents=True, exist_ok=True)

    def close(self, table: str) -> None:
        """Let nobody write the table's file, root neither."""
        (self.folder / f"{table}.json.tmp").mkdir()

    def open(self, table: str) -> None:
        (self.folder / f"{table}.json.tmp").rmdir()

    async def topic(self, name: str, queues: int) -> tuple[int, str]:
        header = CreateTopicRequestHeader(name, "TBW102", queues, queues, 6, "SINGLE_TAG")
        return await self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header, b"")

    async def group(self, name: str, retry_queues: int) -> tuple[int, str]:
        body = SubscriptionGroupConfig(group_name=name, retry_queue_nums=retry_queues).to_json()
        return await self._ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    async def _ask(
        self, code: int, header: CreateTopicRequestHeader | None, body: bytes
    ) -> tuple[int, str]:
        request = self.client.make(code, header, body)
        self.client.feed(request.encode())
        for _ in range(5):
            await self.client.turn()
        answer = self.client.answer_to(request)
        return answer.code, answer.remark or ""


async def test_a_topic_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        order = Order(lab, tmp_path)
        assert await order.topic("Orders", 4) == (0, "")
        before = state(lab)
        order.close("topics")
        for name in ("Orders", "Other"):
            code, remark = await order.topic(name, 8)
            problem = f"{order.folder}/topics.json can't be written: is a folder, not a file"
            assert (code, remark) == (1, f"{problem}; nothing was changed")
            assert state(lab) == before
        order.open("topics")
        assert await order.topic("Orders", 8) == (0, "")
        assert lab.controller.topics.table["Orders"].read_queue_nums == 8


async def test_a_group_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        order = Order(lab, tmp_path)
        assert await order.group("billing", 1) == (0, "")
        before = state(lab)
        order.close("subscriptionGroup")
        for name in ("billing", "other"):
            code, remark = await order.group(name, 4)
            assert (code, "nothing was changed" in remark) == (1, True)
            assert state(lab) == before


@pytest.mark.parametrize("table", ["topics", "subscriptionGroup"])
@pytest.mark.parametrize("asked", ["group", "topic"])
async def test_a_group_and_its_retry_topic_change_together(
    tmp_path: Path, table: str, asked: str
) -> None:
    async with broker_lab(tmp_path) as lab:
        order = Order(lab, tmp_path)
        assert await order.group("billing", 1) == (0, "")
        assert await order.topic("%RETRY%billing", 1) == (0, "")
        before = state(lab)
        order.close(table)
        ask = order.group("billing", 4) if asked == "group" else order.topic("%RETRY%billing", 4)
        assert (await ask)[0] == 1
        after = state(lab)
        assert (after[0], after[2]) == (before[0], before[2])
        order.open(table)
        again = order.group("billing", 4) if asked == "group" else order.topic("%RETRY%billing", 4)
        assert await again == (0, "")
        assert lab.controller.topics.table["%RETRY%billing"].write_queue_nums == 4
        assert lab.controller.groups.table["billing"].retry_queue_nums == 4


async def test_a_topic_made_by_a_send_on_a_broken_disk_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_lab(tmp_path) as lab:
        before = state(lab)
        break_disk(monkeypatch)
        client = lab.connect()
        assert (await client.send(topic="New")).code == 1
        assert state(lab) == before


async def test_a_topic_made_by_a_send_that_cannot_be_stored_is_not_made(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        order = Order(lab, tmp_path)
        before = state(lab)
        order.close("topics")
        answer = await order.client.send(b"m", topic="New")
        assert (answer.code, "nothing was changed" in (answer.remark or "")) == (1, True)
        assert state(lab) == before
        order.open("topics")
        assert (await order.client.send(b"m", topic="New")).code == 0


async def test_a_deletion_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    topic = (RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("Orders"))
    group = (
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        DeleteSubscriptionGroupRequestHeader("billing", True, True),
    )
    async with broker_lab(tmp_path) as lab:
        order = Order(lab, tmp_path)
        assert await order.topic("Orders", 1) == (0, "")
        assert await order.group("billing", 1) == (0, "")
        await order.client.send(b"m", topic="Orders")
        lab.controller.offsets.commit("billing", "Orders", 0, 1)
        before, end = state(lab), lab.controller.store.max_physical_offset
        for table, (code, header) in {"topics": topic, "subscriptionGroup": group}.items():
            order.close(table)
            answer = await order.client.ask(code, header)
            assert (answer.code, "nothing was changed" in (answer.remark or "")) == (1, True)
            assert state(lab) == before
            order.open(table)
        assert lab.controller.store.max_physical_offset == end, "nothing is deleted in the log"
        assert lab.controller.offsets.table == {"Orders@billing": {0: 1}}
        for code, header in (topic, group):
            assert (await order.client.ask(code, header)).code == 0
        assert "Orders" not in lab.controller.topics.table
        assert "billing" not in lab.controller.groups.table


def test_a_copy_of_the_masters_tables_on_a_broken_disk_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig.from_properties({})
    topics = TopicConfigManager(tmp_path / "topics.json", config)
    groups = SubscriptionGroupManager(tmp_path / "subscriptionGroup.json", config)
    version = DataVersion(1, 7)
    theirs = TopicConfigSerializeWrapper({"T": TopicConfig("T", 1, 1)}, version)
    others = SubscriptionGroupWrapper({"g": SubscriptionGroupConfig("g")}, version)
    with monkeypatch.context() as broken:
        break_disk(broken)
        assert (topics.replace_all(theirs), groups.replace_all(others)) == (True, True)
    assert (topics.file.is_waiting, groups.file.is_waiting) == (True, True)
    assert not topics.file.path.exists()
    for table in (topics, groups):
        table.file.retry()
        assert not table.file.is_waiting
    for table in (topics, groups):
        table.table.clear()
        table.load()
    assert (set(topics.table), set(groups.table)) == ({"T"}, {"g"})


def break_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "topics.json")

    monkeypatch.setattr(ConfigFiles, "write", refuse)
