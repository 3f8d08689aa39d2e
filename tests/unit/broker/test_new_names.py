"""New topics and groups: written together, off the loop, before what brought them is answered."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata import json_config
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.clients import ConsumerData, HeartbeatData
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.headers import CreateTopicRequestHeader, GetMaxOffsetRequestHeader
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab, send_header, settled

pytestmark = pytest.mark.foreign

GROUPS = 1000


class Disk:
    """Counts the tables that are written; while it is ``closed``, none is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: Counter[str] = Counter()
        self._open = threading.Event()
        self._open.set()
        persist = json_config.persist_json_config

        def counted(path: Path, text: str | bytes) -> None:
            self._open.wait()
            self.writes[path.name] += 1
            persist(path, text)

        monkeypatch.setattr(json_config, "persist_json_config", counted)

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def beat(prefix: str, count: int) -> bytes:
    groups = [ConsumerData(f"{prefix}{number:04d}") for number in range(count)]
    return HeartbeatData("c1", [], groups).to_json()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


async def stored(lab: BrokerLab) -> tuple[set[str], set[str]]:
    """Return topics and groups as a broker that starts now would read them."""
    folder, config = lab.controller.topics.file.path.parent, BrokerConfig()
    topics = TopicConfigManager(folder / "topics.json", config)
    groups = SubscriptionGroupManager(folder / "subscriptionGroup.json", config)
    topics.load()
    groups.load()
    return set(topics.table), set(groups.table)


async def test_a_heartbeat_writes_each_table_once_for_all_its_groups(
    tmp_path: Path, disk: Disk
) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().ask(RequestCode.HEART_BEAT, None, beat("g", GROUPS))
        assert answer.code == 0
        assert disk.writes == {"topics.json": 1, "subscriptionGroup.json": 1}
        topics, groups = await stored(lab)
        assert {f"g{number:04d}" for number in range(GROUPS)} <= groups
        assert {f"%RETRY%g{number:04d}" for number in range(GROUPS)} <= topics


async def test_who_brings_a_name_is_answered_when_it_is_stored_and_others_meanwhile(
    tmp_path: Path, disk: Disk
) -> None:
    async with broker_lab(tmp_path) as lab:
        other = lab.connect()
        await other.send(b"before")
        client = lab.connect()
        new = client.make(RequestCode.SEND_MESSAGE_V2, send_header(topic="New"), b"1")
        behind = client.make(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("New", 0))
        with disk.closed():
            client.feed(new.encode() + behind.encode())
            await turns()
            assert "New" not in lab.controller.topics.table
            other.feed(other.make(RequestCode.SEND_MESSAGE_V2, send_header(), b"2").encode())
            await turns()
            assert len(other.transport.writes) == 2
            assert client.transport.writes == []
            assert not client.transport.reading
        await client.turn()
        assert [each.opaque for each in client.received] == [new.opaque, behind.opaque]
        assert client.answer_to(new).code == 0
        assert client.answer_to(behind).ext_fields == {"offset": "1"}
        assert client.transport.reading
        assert "New" in (await stored(lab))[0]


async def test_sends_to_a_new_topic_keep_their_order(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, other = lab.connect(), lab.connect()
        frames = [
            client.make(RequestCode.SEND_MESSAGE_V2, send_header(topic="New"), b"%d" % number)
            for number in range(50)
        ]
        for each in frames:  # a read each, as they come
            client.feed(each.encode())
            await asyncio.sleep(0)
        assert (await other.send(topic="New")).code == 0
        await client.turn()
        assert [each.opaque for each in client.received] == [each.opaque for each in frames]
        places = [int((each.ext_fields or {})["queueOffset"]) for each in client.received]
        assert places == sorted(places)


def topic_order(name: str) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(name, "TBW102", 4, 4, 6, "SINGLE_TAG")


async def test_orders_wait_for_their_version_and_share_a_write(tmp_path: Path, disk: Disk) -> None:
    async with broker_lab(tmp_path) as lab:
        clients = [lab.connect() for _ in range(10)]
        requests = []
        with disk.closed():
            for number, client in enumerate(clients):
                header = topic_order(f"Ordered{number}")
                request = client.make(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
                client.feed(request.encode())
                requests.append(request)
                await turns()
            assert not any(client.transport.writes for client in clients)
        for client, request in zip(clients, requests, strict=True):
            await client.turn()
            assert client.answer_to(request).code == 0
        assert disk.writes == {"topics.json": 2}
        assert lab.controller.topics.data_version.counter == 10
        assert {f"Ordered{number}" for number in range(10)} <= (await stored(lab))[0]


async def test_changes_during_a_write_are_in_the_next_one(tmp_path: Path, disk: Disk) -> None:
    async with broker_lab(tmp_path) as lab:
        topics = lab.controller.topics
        with disk.closed():
            topics.update(TopicConfig("A"))
            order = asyncio.create_task(topics.order("B", TopicConfig("B")))
            await turns()
            topics.update(TopicConfig("C"))
            await turns()
            assert {"A", "C"} <= set(topics.table)
            assert "B" not in topics.table
        await order
        await settled(lab.controller)
        assert {"A", "B", "C"} <= (await stored(lab))[0]
        reborn = TopicConfigManager(topics.file.path, lab.controller.config)
        reborn.load()
        assert (reborn.table, reborn.data_version) == (topics.table, topics.data_version)


async def test_names_of_a_connection_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_lab(tmp_path) as lab:
        monkeypatch.setattr(lab.controller.server.limits, "_clock", lambda: 0.0)  # none comes back
        client, other = lab.connect(), lab.connect()
        assert (await client.ask(RequestCode.HEART_BEAT, None, beat("a", 1000))).code == 0
        many = HeartbeatData("c1", [], [ConsumerData(f"a{n:04d}") for n in range(999)]).to_json()
        assert (await client.ask(RequestCode.HEART_BEAT, None, many)).code == 0, "known ones"
        answer = await client.send(topic="OneMore")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "new topics or groups" in (answer.remark or "")
        assert (await other.ask(RequestCode.HEART_BEAT, None, beat("b", 1000))).code == 0
        assert (await client.send()).code in (0, ResponseCode.SYSTEM_BUSY)
        assert lab.controller.server.limits.refusals.counts["newNames"] >= 1


async def test_a_pull_of_a_group_that_is_new_waits_for_it(tmp_path: Path, disk: Disk) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        answer = await client.pull(consumer_group="Fresh")
        assert answer.code == 0
        assert "Fresh" in (await stored(lab))[1]


NAMES = ["a", "Z", "%RETRY%g", "é", 'quote"d', 'comma,"', "tab\\t", "line\nbreak", "{}", "中文"]


def test_rows_are_written_as_the_whole_is(tmp_path: Path) -> None:
    topics = TopicConfigManager(tmp_path / "topics.json", BrokerConfig())
    for number, name in enumerate(NAMES):
        topics.update(TopicConfig(name, number, -number, 6, "MULTI_TAG", 1, order=number % 2 == 0))
        assert topics.file.path.read_bytes() == topics.to_wrapper().to_json(pretty=True)
        assert topics.to_json() == topics.to_wrapper().to_json()
    for name in NAMES:
        topics.take_back(name, None)
    assert topics.file.path.read_bytes() == topics.to_wrapper().to_json(pretty=True)
    groups = SubscriptionGroupManager(tmp_path / "subscriptionGroup.json", BrokerConfig())
    for name in NAMES:
        groups.update(SubscriptionGroupConfig(name, broker_id=-(2**63)))
        assert groups.file.path.read_bytes() == groups.to_wrapper().to_json(pretty=True)
        assert groups.to_json() == groups.to_wrapper().to_json()


# --- turns --------------------------------------------------------------------------------------


async def questions(lab: BrokerLab, count: int) -> tuple[LabClient, list[int]]:
    """Let a client ask for all topics many times in one read; return what it asked."""
    client = lab.connect()
    requests = [client.make(RequestCode.GET_ALL_TOPIC_CONFIG) for _ in range(count)]
    client.feed(b"".join(each.encode() for each in requests))
    return client, [each.opaque for each in requests]


async def test_a_read_is_worked_off_in_turns_between_which_others_are_served(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path) as lab:
        await lab.connect().send()
        lab.controller.server.turn_seconds = 0.0
        asking, wanted = await questions(lab, 20)
        other = lab.connect()
        other.feed(other.make(RequestCode.SEND_MESSAGE_V2, send_header(), b"m").encode())
        await other.turn()
        assert len(other.received) == 1
        assert len(asking.transport.writes) < 10
        for _ in range(20):
            await asking.turn()
        assert [each.opaque for each in asking.received] == wanted
        assert asking.transport.reading


async def test_a_closed_connection_is_served_no_more(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        lab.controller.server.turn_seconds = 0.0
        client, _ = await questions(lab, 20)
        await client.turn()
        client.connection.abort()
        served = len(client.transport.writes)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(client.transport.writes) == served


async def test_a_peer_that_does_not_read_is_served_no_more_until_it_does(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        client.transport.unread_bytes = 9 << 20
        client.connection.pause_writing()
        requests = [client.make(RequestCode.GET_ALL_TOPIC_CONFIG) for _ in range(20)]
        client.feed(b"".join(each.encode() for each in requests))
        await client.turn()
        assert len(client.received) == 1
        client.transport.unread_bytes = 0
        client.connection.resume_writing()
        await client.turn()
        assert [each.opaque for each in client.received] == [each.opaque for each in requests]
