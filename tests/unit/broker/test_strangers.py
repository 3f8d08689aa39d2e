"""What strangers may leave at a broker: names, outstanding requests, settings, unread answers."""

from __future__ import annotations

import json
import struct
import typing
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import fields as fields_of

from failback.broker.processors.compose import handled_codes
from failback.broker.remoting.limits import CLIENT_CALLS, CONNECTIONS, HELD_PULLS, TASKS, UNREAD
from failback.client.remoting.peer_limits import UNFINISHED
from failback.protocol.body import MessageQueue
from failback.protocol.clients import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    SubscriptionData,
)
from failback.protocol.codes import PULL_COMMIT, PULL_SUBSCRIPTION, PULL_SUSPEND, RequestCode
from failback.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    CreateTopicRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    Header,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    to_ext,
)
from failback.protocol.names import GROUP_CHARS
from failback.protocol.route import SubscriptionGroupConfig
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab, pull_header

pytestmark = pytest.mark.foreign

BAD_NAMES = (
    "g" * 200_000,
    "g" * (GROUP_CHARS + 1),
    "two\nlines",
    "esc\x1b[2J",
    "right\u202eleft",
    "line\u2028end",
    "a b",
    "a@b",
    "../etc",
    "né",
    "del\x7f",
    "nul\0",
)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[BrokerLab]:
    async with broker_lab(tmp_path) as found:
        yield found


def kept(lab: BrokerLab) -> set[str]:
    """Return every name that a request could have put into a table of the broker."""
    controller = lab.controller
    names = {*controller.topics.table, *controller.groups.table}
    for key in controller.offsets.table:
        names.update(key.split("@"))
    names.update(controller.clients.producers.groups)
    for name, group in controller.clients.consumers.groups.items():
        names.update((name, *group.subscriptions))
    names.update(controller.parts.locks._groups)
    names.update(topic for topic, _ in controller.store.queues())
    return names


def filled(header: type[Header], name: str) -> Header:
    """Return a header that says ``name`` wherever it can say something."""
    values: dict[str, typing.Any] = {}
    hints = typing.get_type_hints(header)
    for field in fields_of(header):
        kind = hints[field.name]
        is_text = kind is str or str in typing.get_args(kind)
        values[field.name] = name if is_text else False if kind is bool else 1
    return header(**values)


DOORS = [handled for _, handled in handled_codes() if handled.header is not None]


@pytest.mark.parametrize("handled", DOORS, ids=lambda each: each.code.name)
async def test_no_request_leaves_a_name_that_nothing_may_have(
    lab: BrokerLab, handled: typing.Any
) -> None:
    before = kept(lab)
    client = lab.connect()
    for name in BAD_NAMES:
        client.feed(client.make(handled.code, filled(handled.header, name)).encode())
    await client.turn()
    assert kept(lab) == before


def heartbeat(name: str) -> HeartbeatData:
    return HeartbeatData("c", [ProducerData(name)], [ConsumerData(name)])


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_bodies_leave_no_such_name_either(lab: BrokerLab, name: str) -> None:
    before = kept(lab)
    client = lab.connect()
    queue = MessageQueue(name, "broker-a", 0)
    bodies = {
        RequestCode.HEART_BEAT: (
            HeartbeatData("c", [ProducerData(name)], []),
            HeartbeatData("c", [], [ConsumerData(name)]),
            HeartbeatData("c", [ProducerData("fine"), ProducerData(name)], []),
            HeartbeatData("c", [], [ConsumerData("fine"), ConsumerData(name)]),
        ),
        RequestCode.LOCK_BATCH_MQ: (
            LockBatchRequestBody(name, "c", [MessageQueue("T", "broker-a", 0)]),
            LockBatchRequestBody("fine", "c", [queue]),
        ),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (SubscriptionGroupConfig(name),),
    }
    for code, each in bodies.items():
        for body in each:
            answer = await client.ask(code, body=body.to_json())
            assert answer.code == 1
            assert answer.remark is not None
            assert answer.remark.isprintable()
            assert len(answer.remark) < 200
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE):
        header = SendMessageRequestHeaderV2 if code == 310 else PullMessageRequestHeader
        made = filled(header, name)
        if isinstance(made, PullMessageRequestHeader):
            made.topic, made.sys_flag = "TBW102", PULL_COMMIT | PULL_SUBSCRIPTION
        assert (await client.ask(code, made)).code != 0
    assert kept(lab) == before


@pytest.mark.parametrize("client_id", ["c" * 200_000, "two\nlines", "\u202ec"])
async def test_a_client_id_that_cannot_be_shown_is_refused(lab: BrokerLab, client_id: str) -> None:
    client = lab.connect()
    body = HeartbeatData(client_id, [], [ConsumerData("g")]).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 1
    assert "g" not in kept(lab)


async def test_a_subscription_to_what_is_no_topic_is_left_out(lab: BrokerLab) -> None:
    client = lab.connect()
    named = [SubscriptionData("fine"), SubscriptionData("a.b"), SubscriptionData("t" * 200_000)]
    body = HeartbeatData("c", [], [ConsumerData("g", subscription_data_set=named)]).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 0
    assert list(lab.controller.clients.consumers.groups["g"].subscriptions) == ["fine"]


_NO_COUNTS = (-1, 65_537, 2**31 - 1)


@pytest.mark.parametrize(
    ("field", "number"),
    [
        *(("readQueueNums", number) for number in _NO_COUNTS),
        *(("writeQueueNums", number) for number in _NO_COUNTS),
        *(("perm", number) for number in (-1, 8, 99)),
    ],
)
async def test_a_topic_is_not_made_with_numbers_that_none_can_have(
    lab: BrokerLab, field: str, number: int
) -> None:
    client, before = lab.connect(), kept(lab)
    ext = to_ext(CreateTopicRequestHeader("T", "TBW102", 65_536, 0, 7, "SINGLE_TAG"))
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    answer = await client.ask(code, ext=ext | {field: str(number)})
    assert (answer.code, (answer.remark or "").partition(" be ")[0]) == (1, f"{field}: must")
    assert kept(lab) == before
    assert (await client.ask(code, ext=ext)).code == 0


@pytest.mark.parametrize("number", [-1, 65_537, 2**31 - 1])
async def test_a_group_has_as_many_retry_queues_as_a_topic_can_have(
    lab: BrokerLab, number: int
) -> None:
    body = SubscriptionGroupConfig("g", retry_queue_nums=number).to_json()
    before = kept(lab)
    answer = await lab.connect().ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert (answer.code, (answer.remark or "").partition(":")[0]) == (1, "retryQueueNums")
    assert kept(lab) == before


@pytest.mark.parametrize("name", ["g" * 121, "g" * GROUP_CHARS, "ns%g", "g|h", "CID_ONS-x_1"])
async def test_names_that_real_clients_have_are_taken(lab: BrokerLab, name: str) -> None:
    client = lab.connect()
    assert (await client.ask(RequestCode.HEART_BEAT, body=heartbeat(name).to_json())).code == 0
    header = UpdateConsumerOffsetRequestHeader(name, f"%RETRY%{name}", 0, 7)
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0
    assert {name, f"%RETRY%{name}"} <= kept(lab)


async def test_a_subscription_without_a_version_is_newer_than_the_last_one(lab: BrokerLab) -> None:
    """As in Java, where it is made when the heartbeat is read."""
    client = lab.connect()
    for tags in ("a", "b"):
        named = {"topic": "T", "subString": tags}
        group = {"groupName": "g", "subscriptionDataSet": [named]}
        body = json.dumps({"clientID": "c", "consumerDataSet": [group]}).encode()
        assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 0
        lab.controller.clients.consumers.groups["g"].subscriptions["T"].data.sub_version -= 1
        found = lab.controller.clients.consumers.groups["g"].subscriptions["T"].data
        assert (found.sub_string, found.sub_version > 1_000_000_000_000) == (tags, True)


async def test_a_producer_group_without_a_name_is_taken(lab: BrokerLab) -> None:
    client = lab.connect()
    body = HeartbeatData("c", [ProducerData("")], [ConsumerData("g")]).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 0


async def test_a_name_of_older_days_goes_on_to_be_served(lab: BrokerLab) -> None:
    old = "com.shop.billing"
    lab.controller.groups.table[old] = SubscriptionGroupConfig(old)
    client = lab.connect()
    body = HeartbeatData("c", [], [ConsumerData(old)]).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 1  # its retry topic is new
    lab.controller.topics.table[f"%RETRY%{old}"] = lab.controller.topics.table["TBW102"]
    assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 0
    header = UpdateConsumerOffsetRequestHeader(old, "TBW102", 0, 7)
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


# --- tables -----------------------------------------------------------------------------------


async def test_tables_have_room_for_so_many(tmp_path: Path) -> None:
    settings = {"failbackMaxGroups": 20, "failbackMaxTopics": 20, "failbackMaxOffsets": 10}
    async with broker_lab(tmp_path, **settings) as lab:
        client = lab.connect()
        for number in range(40):
            name = f"g{number}"
            body = heartbeat(name).to_json()
            await client.ask(RequestCode.HEART_BEAT, body=body)
            header = UpdateConsumerOffsetRequestHeader("g0", f"T{number}", 0, 1)
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        controller = lab.controller
        assert len(controller.groups.table) <= 20
        assert len(controller.topics.table) <= 20
        assert len(controller.clients.producers.groups) <= 20
        assert sum(map(len, controller.offsets.table.values())) == 10
        assert controller.offsets.query("g0", "T0", 0) == 1
        again = UpdateConsumerOffsetRequestHeader("g0", "T0", 0, 2)
        assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, again)).code == 0
        cloned = CloneGroupOffsetRequestHeader("g0", "g1", "TBW102")
        await client.ask(RequestCode.CLONE_GROUP_OFFSET, cloned)
        assert sum(map(len, controller.offsets.table.values())) == 10


async def test_one_client_is_a_member_of_so_many_groups(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, failbackMaxGroupsPerConnection=5) as lab:
        client, other = lab.connect(), lab.connect()
        for number in range(10):
            body = heartbeat(f"g{number}").to_json()
            answer = await client.ask(RequestCode.HEART_BEAT, body=body)
            assert answer.code == (0 if number < 5 else 1)
        left = UnregisterClientRequestHeader("c", "g0", "g0")
        assert (await client.ask(RequestCode.UNREGISTER_CLIENT, left)).code == 0
        body = heartbeat("g9").to_json()
        assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 0
        assert (await other.ask(RequestCode.HEART_BEAT, body=body)).code == 0
        many = [ConsumerData(f"h{number}") for number in range(6)]
        body = HeartbeatData("c", [], many).to_json()
        assert (await other.ask(RequestCode.HEART_BEAT, body=body)).code == 1
        for each in (client, other):
            each.disconnect()
        assert lab.controller.clients._groups_of == {}


@pytest.mark.parametrize("queue_id", [-1, -(2**31), 65_536, 2**31 - 1])
async def test_no_offset_is_kept_of_a_queue_that_cannot_be(lab: BrokerLab, queue_id: int) -> None:
    client = lab.connect()
    header = UpdateConsumerOffsetRequestHeader("g", "T", queue_id, 1)
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 1
    assert not lab.controller.offsets.table


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["\\n", "\\r", "\\u2028", "\\u202e", "\\u0000", "\\u007f"])
async def test_a_setting_has_no_character_that_forges_another(
    lab: BrokerLab, character: str
) -> None:
    client = lab.connect()
    body = f"regionId=r{character}brokerRole=FORGED".encode()
    answer = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == 1
    assert "regionId" in (answer.remark or "")
    shown = (await client.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
    assert [line for line in shown.splitlines() if "FORGED" in line] == []


async def test_a_value_of_several_lines_in_the_file_is_shown_on_one(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, mine="r\nbrokerRole=FORGED") as lab:
        answer = await lab.connect().ask(RequestCode.GET_BROKER_CONFIG)
        lines = answer.body.decode().splitlines()
        assert r"mine=r\nbrokerRole=FORGED" in lines
        assert [line for line in lines if line.startswith("brokerRole")] == [
            "brokerRole=ASYNC_MASTER"
        ]


# --- what is outstanding ----------------------------------------------------------------------


def held(client: LabClient, count: int, suspend_ms: int = 30_000_000) -> None:
    header = pull_header(
        topic="TBW102",
        sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND,
        suspend_timeout_millis=suspend_ms,
    )
    for _ in range(count):
        client.feed(client.make(RequestCode.PULL_MESSAGE, header).encode())


async def test_pulls_beyond_the_bound_are_answered_at_once(tmp_path: Path) -> None:
    settings = {"failbackMaxHeldPulls": 15, "failbackMaxHeldPullsPerConnection": 10}
    async with broker_lab(tmp_path, **settings) as lab:
        first, second = lab.connect(), lab.connect()
        for client, refused in ((first, 2), (second, 7)):
            held(client, 12)
            await client.turn()
            assert [answer.code for answer in client.received] == [2] * refused
        hold = lab.controller.pull.hold
        assert len(hold) == 15
        assert lab.controller.server.limits.refusals.counts[HELD_PULLS] == 9
        first.disconnect()
        assert len(hold) == 5
        held(second, 3)
        assert len(hold) == 8
        second.disconnect()
        assert len(hold) == 0


@pytest.mark.parametrize("suspend_ms", [2**60, 30_000_000, 120_001])
async def test_no_pull_is_held_for_longer_than_the_bound(lab: BrokerLab, suspend_ms: int) -> None:
    client = lab.connect()
    held(client, 1, suspend_ms)
    await client.turn()
    hold = lab.controller.pull.hold
    now_ms = lab.controller.pull._clock() * 1000
    hold.sweep(now_ms + 110_000)
    assert len(hold) == 1
    hold.sweep(now_ms + 121_000)
    assert len(hold) == 0


async def test_connections_have_a_bound_by_address_and_in_all(tmp_path: Path) -> None:
    settings = {"failbackMaxConnections": 5, "failbackMaxConnectionsPerAddress": 3}
    async with broker_lab(tmp_path, **settings) as lab:
        here = [lab.connect(("10.0.0.1", 1000 + number)) for number in range(5)]
        there = [lab.connect(("10.0.0.2", 1000 + number)) for number in range(5)]
        assert [each.transport.aborted for each in here] == [False] * 3 + [True] * 2
        assert [each.transport.aborted for each in there] == [False] * 2 + [True] * 3
        limits = lab.controller.server.limits
        assert limits.refusals.counts[CONNECTIONS] == 5
        assert limits.connections.total == 5
        here[0].disconnect()
        there[4].disconnect()
        assert limits.connections.total == 4
        assert not lab.connect(("10.0.0.2", 9)).transport.aborted


@pytest.mark.parametrize("piece", [5000, 1 << 20])
async def test_requests_that_never_end_have_a_bound_together(tmp_path: Path, piece: int) -> None:
    """Each may have 16 MiB; the largest is closed, and all others go on."""
    most = 16 << 20
    async with broker_lab(tmp_path, failbackMaxUnfinishedBytes=most) as lab:
        limits = lab.controller.server.limits
        begun = struct.pack(">II", (16 << 20) - 4, 100) + b"x"
        strangers = [lab.connect() for _ in range(9)]
        for number, stranger in enumerate(strangers):
            stranger.feed(begun)
            for _ in range(((2 << 20) + number) // piece):
                if not stranger.transport.aborted:
                    stranger.feed(bytes(piece))
        assert limits.refusals.counts[UNFINISHED] == sum(
            each.transport.aborted for each in strangers
        )
        left = [each for each in strangers if not each.transport.aborted]
        assert 6 <= len(left) <= 8
        whole = lab.connect()
        request = whole.make(RequestCode.GET_BROKER_RUNTIME_INFO).encode()
        whole.feed(request[:20])
        whole.feed(request[20:])
        await whole.turn()
        assert whole.received[0].code == 0
        for each in left:
            each.disconnect()
        assert limits.unfinished_bytes == 0


async def test_who_leaves_too_much_unread_is_closed(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, failbackMaxUnreadBytes=2**20) as lab:
        slow, quick = lab.connect(), lab.connect()
        slow.connection.pause_writing()
        for unread, is_closed in ((2**20, False), (2**20 + 1, True)):
            slow.transport.unread_bytes = unread
            slow.connection.push(b"x")
            await slow.turn()
            assert slow.transport.aborted is is_closed
        assert not quick.transport.aborted
        assert lab.controller.server.limits.refusals.counts[UNREAD] == 1


async def test_of_all_that_is_unread_the_largest_goes_first(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, failbackMaxUnreadBytesInAll=2**20) as lab:
        clients = [lab.connect() for _ in range(4)]
        for client, unread in zip(clients, (900_000, 100_000, 800_000, 2_000_000), strict=True):
            client.transport.unread_bytes = unread
            if unread < 2_000_000:  # the last one reads what it gets
                client.connection.pause_writing()
        lab.controller.server.close_unread()
        assert [each.transport.aborted for each in clients] == [True, False, False, False]


async def test_questions_to_clients_have_a_bound(tmp_path: Path) -> None:
    settings = {"failbackMaxCallsPerClient": 3, "failbackMaxTasksPerConnection": 5}
    async with broker_lab(tmp_path, **settings) as lab:
        asked, asker = lab.connect(), lab.connect()
        body = HeartbeatData("c", [], [ConsumerData("g")]).to_json()
        await asked.ask(RequestCode.HEART_BEAT, body=body)
        header = GetConsumerRunningInfoRequestHeader("g", "c")
        for _ in range(8):
            asker.feed(asker.make(RequestCode.GET_CONSUMER_RUNNING_INFO, header).encode())
        await asker.turn()
        assert [answer.code for answer in asker.received] == [2] * 5
        counts = lab.controller.server.limits.refusals.counts
        assert (counts[TASKS], counts[CLIENT_CALLS]) == (3, 2)
        assert len(lab.controller.calls) == 3
        asked.disconnect()
        await asker.turn()
        assert asker.connection.tasks == 0
