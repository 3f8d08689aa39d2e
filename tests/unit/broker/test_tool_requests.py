"""What tools ask beside the everyday: 303, 308, 314, 315, 317, 321, 323, 328, 50 to 53."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.messaging.transactions.half_messages import CHECK_TIMES
from failback.protocol.body import MessageQueue
from failback.protocol.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    ProducerTableInfo,
    SubscriptionData,
)
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    Header,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    ResumeCheckHalfMessageRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from failback.protocol.message import decode_record, tags_code
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from failback.protocol.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
)
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab

LONG_MAX = 2**63 - 1
# Every code that a client or a slave sends to a 4.9.8 broker, filter servers (301, 302) apart.
# 12 and 33 have tests of their own.
CODES = [10, 11, 14, 15, 17, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 43]
CODES += [45, 46, 50, 51, 52, 53, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 305]
CODES += [306, 307, 308, 309, 310, 314, 315, 316, 317, 320, 321, 323, 324, 325, 328, 329]
# What goes from a broker to its clients, and to name servers.
ELSEWHERE = [39, 40, 100, 103, 105, 106, 205, 206, 216, 220, 221, 224, 304, 311, 322, 326, 327]


@pytest.mark.parametrize("fast", [False, True])
async def test_every_code_of_a_broker_is_answered_and_no_other(tmp_path: Path, fast: bool) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect(fast=fast)
        for code in CODES:
            request = client.make(code, body=b"{}")
            client.feed(request.encode())
            for _ in range(5):
                await client.turn()
            answer = client.answer_to(request)
            assert (answer.code == 3) == (fast and code == 11), code
        for code in ELSEWHERE:
            answer = await client.ask(code)
            assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


async def beat(
    client: LabClient, group: str, *topics: str, kind: str = "TAG", text: str = "*"
) -> None:
    subscriptions = [
        SubscriptionData(topic, text, sub_version=1, expression_type=kind) for topic in topics
    ]
    consumer = ConsumerData(group, subscription_data_set=subscriptions)
    body = HeartbeatData("c1", [ProducerData("PG")], [consumer]).to_json()
    await client.ask(RequestCode.HEART_BEAT, None, body)


def store_times(lab: BrokerLab, *offsets: int) -> list[int]:
    store = lab.controller.store
    return [store.store_time_of("TopicTest", 0, offset) for offset in offsets]


async def test_how_late_a_group_is_with_each_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.topics.update(TopicConfig("TopicTest", 1, 2))
        for _ in range(3):
            await client.send()
        lab.controller.offsets.commit("CG", "TopicTest", 0, 2)
        header = QueryConsumeTimeSpanRequestHeader("TopicTest", "CG")
        answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        late, empty = QueryConsumeTimeSpanBody.from_json(answer.body).consume_time_span_set
        first, consumed, last = store_times(lab, 0, 1, 2)
        lab.controller.offsets.commit("CG", "TopicTest", 0, 3)
        answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        done = QueryConsumeTimeSpanBody.from_json(answer.body).consume_time_span_set[0]
        unknown = await client.ask(
            RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader("None", "CG")
        )
    assert late.message_queue == MessageQueue("TopicTest", "broker-a", 0)
    assert (late.min_time_stamp, late.max_time_stamp) == (first, last)
    assert late.consume_time_stamp == consumed
    assert late.delay_time >= 0
    assert (done.consume_time_stamp, done.delay_time) == (last, 0)
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)
    assert unknown.code == 17


@pytest.mark.parametrize(
    ("filtered", "expected"),
    [
        (None, b"{0:5,1:3}"),
        ("Fast", b"{0:7,1:3}"),
        ("Compared", b"{0:5,1:%d}" % LONG_MAX),
        ("Fast,Compared", b"{1:%d}" % LONG_MAX),
        ("Other,Fast,Compared", b"{}"),
    ],
)
async def test_the_smallest_offset_of_the_groups(
    tmp_path: Path, filtered: str | None, expected: bytes
) -> None:
    async with broker_lab(tmp_path) as lab:
        offsets = lab.controller.offsets
        stored = {"Compared": {0: 7, 1: 3}, "Fast": {0: 5}, "Other": {1: 4}, "Gone": {0: -1}}
        for group, queues in stored.items():
            for queue_id, offset in queues.items():
                offsets.commit(group, "TopicTest", queue_id, offset)
        before = {key: dict(queues) for key, queues in offsets.table.items()}
        header = QueryCorrectionOffsetHeader("Compared", "TopicTest", filtered)
        answer = await lab.connect().ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
        assert offsets.table == before, "a question changes nothing"
    assert answer.body == b'{"correctionOffsets":%s}' % expected


async def test_offsets_are_cloned_topic_by_topic_or_all(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, offsets = lab.connect(), lab.controller.offsets
        for topic in ("A", "B", "C"):
            lab.controller.topics.update(TopicConfig(topic, 1, 1))
        for topic in ("A", "B", "Unknown"):
            offsets.commit("Source", topic, 0, 5)
            offsets.commit("Source", topic, 3, 7)
        offsets.commit("Target", "A", 9, 1)

        async def clone(target: str, topic: str | None, offline: bool = False) -> int:
            header = CloneGroupOffsetRequestHeader("Source", target, topic, offline)
            return (await client.ask(RequestCode.CLONE_GROUP_OFFSET, header)).code

        assert await clone("Target", "A") == 0
        assert offsets.of("Target", "A") == {0: 5, 3: 7}
        assert offsets.topics_of("Target") == {"A"}
        assert await clone("All", None) == 0
        assert offsets.topics_of("All") == {"A", "B"}, "no offsets on a topic that is not here"
        assert await clone("None", "C") == 0
        assert offsets.topics_of("None") == set()
        await beat(client, "Source", "B")
        assert await clone("Online", None) == 0
        assert offsets.topics_of("Online") == {"B"}, "its members do not consume A"
        assert await clone("Offline", None, offline=True) == 0
        assert offsets.topics_of("Offline") == {"A", "B"}
        offsets.commit("Source", "A", 0, 50)
    assert offsets.query("Target", "A", 0) == 5, "a clone goes its own way"


async def test_the_progress_of_all_groups(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, offsets = lab.connect(), lab.controller.offsets
        lab.controller.topics.update(TopicConfig("TopicTest", 4, 1))
        lab.controller.topics.update(TopicConfig("Ordered", 1, 1, order=True))
        for _ in range(3):
            await client.send()
        await client.send(topic="Ordered")
        lab.controller.groups.update(SubscriptionGroupConfig("CG"))
        offsets.commit("CG", "TopicTest", 0, 2)
        offsets.commit("CG", "Ordered", 0, 0)
        offsets.commit("CG", "Unknown", 0, 9)
        found = []
        for is_order in (False, True):
            header = GetBrokerConsumeStatsRequestHeader(is_order)
            answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, header)
            found.append(ConsumeStatsList.from_json(answer.body))
        await beat(client, "CG", "Ordered")
        header = GetBrokerConsumeStatsRequestHeader(False)
        answer = await client.ask(RequestCode.GET_BROKER_CONSUME_STATS, header)
        online = ConsumeStatsList.from_json(answer.body)
        (consumed,) = store_times(lab, 1)
    ordered = ConsumeStats({MessageQueue("Ordered", "broker-a", 0): OffsetWrapper(1, 0, 0)})
    plain = ConsumeStats({MessageQueue("TopicTest", "broker-a", 0): OffsetWrapper(3, 2, consumed)})
    groups = [next(iter(entry)) for entry in found[0].consume_stats_list]
    assert {"CG", "TOOLS_CONSUMER"} <= set(groups)
    assert [each.total_diff for each in (*found, online)] == [2, 1, 1]
    for answered, expected in zip(
        (*found, online), ([ordered, plain], [ordered], [ordered]), strict=True
    ):
        assert answered.broker_addr == "127.0.0.1:10911"
        assert (
            next(entry["CG"] for entry in answered.consume_stats_list if "CG" in entry) == expected
        )
    assert {"TOOLS_CONSUMER": []} in found[0].consume_stats_list


# --- queues ---------------------------------------------------------------------------------------


async def query_queue(
    client: LabClient, index: int, count: int, group: str | None = None, queue_id: int = 0
) -> RemotingCommand:
    header = QueryConsumeQueueRequestHeader("TopicTest", queue_id, index, count, group)
    return await client.ask(RequestCode.QUERY_CONSUME_QUEUE, header)


async def test_entries_of_a_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for _ in range(3):
            await client.send(properties="TAGS\x01TagA")
        size = len(lab.controller.store.record_at(0) or b"")
        found = await query_queue(client, 1, 10)
        behind = await query_queue(client, 3, 1)
        unknown = await query_queue(client, 0, 1, queue_id=9)
        nothing = await query_queue(client, 1, 0)
        offline = await query_queue(client, 0, 1, "CG")
        await beat(client, "CG", "TopicTest")
        online = await query_queue(client, 0, 1, "CG")
        await beat(client, "SQL", "TopicTest", kind="SQL92", text="a > 5")
        by_filter = await query_queue(client, 0, 1, "SQL")
    code = tags_code("TagA")
    assert QueryConsumeQueueResponseBody.from_json(found.body) == QueryConsumeQueueResponseBody(
        [ConsumeQueueData(size, size, code), ConsumeQueueData(2 * size, size, code)], 3, 0
    )
    assert (behind.code, behind.body) == (0, b"")
    assert behind.remark == "Index 3 of 0@TopicTest is not exist!"
    assert (unknown.code, unknown.remark) == (1, "9@TopicTest is not exist!")
    assert nothing.body == b'{"maxQueueIndex":3,"minQueueIndex":0,"queueData":[]}'
    entry = b'"queueData":[{"eval":false,"physicOffset":0,"physicSize":%d,"tagsCode":%d}]' % (
        size,
        code,
    )
    assert offline.body == (
        b'{"filterData":"CG@TopicTest is not online!","maxQueueIndex":3,"minQueueIndex":0,%s}'
        % entry
    )
    body = QueryConsumeQueueResponseBody.from_json(online.body)
    assert (body.filter_data, body.subscription_data) == (
        "null",
        SubscriptionData("TopicTest", "*", sub_version=1),
    )
    shown = QueryConsumeQueueResponseBody.from_json(by_filter.body).filter_data or ""
    assert '"expression":"a > 5"' in shown


# --- counters -------------------------------------------------------------------------------------


async def stats(client: LabClient, name: str, key: str) -> RemotingCommand:
    header = ViewBrokerStatsDataRequestHeader(name, key)
    return await client.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)


async def test_counters_are_told_by_name_and_key(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        early = await stats(client, "TOPIC_PUT_NUMS", "TopicTest")
        await client.send()
        fresh = await stats(client, "TOPIC_PUT_NUMS", "TopicTest")
        lab.controller.stats_items.sample()
        for _ in range(4):
            await client.send()
        await client.pull()
        lab.controller.stats_items.sample()
        await client.pull()
        lab.controller.stats_items.sample()
        sent = await stats(client, "TOPIC_PUT_NUMS", "TopicTest")
        size = await stats(client, "TOPIC_PUT_SIZE", "TopicTest")
        got = await stats(client, "GROUP_GET_NUMS", "TopicTest@CG")
        got_size = await stats(client, "GROUP_GET_SIZE", "TopicTest@CG")
        broker = [
            await stats(client, name, "DefaultCluster")
            for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")
        ]
        unknown = await stats(client, "TOPIC_PUT_NUMS", "Other")
        record = len(lab.controller.store.record_at(0) or b"")
    assert early.code == unknown.code == 1
    assert unknown.remark == "The stats <TOPIC_PUT_NUMS> <Other> not exist"
    assert fresh.body == BrokerStatsData().to_json()
    minutes = [
        BrokerStatsData.from_json(answer.body).stats_minute
        for answer in (sent, size, got, got_size, *broker)
    ]
    assert [each.sum for each in minutes] == [4, 4 * record, 5, 5 * record, 4, 5]
    assert [each.avgpt for each in minutes[:4]] == [1.0, float(record), 5.0, 5.0 * record]
    assert all(each.tps >= 0 for each in minutes)
    assert BrokerStatsData.from_json(sent.body).stats_hour == BrokerStatsItem()


async def test_how_long_reads_of_a_queue_took_is_counted_in_whole_ms(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        name, key = "GROUP_GET_LATENCY", "0@TopicTest@CG"
        before = await stats(client, name, key)
        await client.send()
        await client.pull()
        lab.controller.stats_items.sample()
        for milliseconds in (4.9, 2.0, 0.1):
            lab.controller.statistics.read_queue("TopicTest", "CG", 0, 1, milliseconds / 1000)
        lab.controller.stats_items.sample()
        after = await stats(client, name, key)
        elsewhere = await stats(client, name, "1@TopicTest@CG")
        logged = [await stats(client, f"GROUP_GET_FALL_{what}", key) for what in ("SIZE", "TIME")]
    assert before.code == elsewhere.code == 1
    assert [answer.code for answer in logged] == [1, 1], "4.9 only logs these"
    minute = BrokerStatsData.from_json(after.body).stats_minute
    assert (minute.sum, minute.avgpt) == (6, 2.0)


async def test_what_is_sent_back_is_counted_by_its_origin(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        header = ConsumerSendMsgBackRequestHeader(0, "CG", 0)
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
        answer = await stats(client, "SNDBCK_PUT_NUMS", "TopicTest@CG")
    assert answer.code == 0


# --- clients, transactions, access control --------------------------------------------------------


async def test_all_producers_are_listed(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect(("10.0.0.1", 5555))
        empty = await client.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        await beat(client, "CG", "TopicTest")
        answer = await client.ask(RequestCode.GET_ALL_PRODUCER_INFO)
    assert empty.body == b'{"data":{}}'
    ((group, (producer,)),) = ProducerTableInfo.from_json(answer.body).data.items()
    assert (group, producer.client_id, producer.remote_ip) == ("PG", "c1", "/10.0.0.1:5555")
    assert (producer.language, producer.version) == ("PYTHON", 409)
    assert producer.last_update_timestamp > 0


async def test_a_half_message_is_asked_about_as_if_for_the_first_time(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02{CHECK_TIMES}\x0115"
        sent = await client.send(b"half", properties=properties, sys_flag=4)
        message_id = (sent.ext_fields or {})["msgId"]
        header = ResumeCheckHalfMessageRequestHeader(message_id)
        answer = await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        await client.turn()
        store = lab.controller.store
        where = store.physical_offset_of("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
        again = decode_record(store.record_at(where) or b"")[0]
        refused = [
            await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
            for header in (
                ResumeCheckHalfMessageRequestHeader(message_id[:-2] + "07"),
                ResumeCheckHalfMessageRequestHeader(None),
            )
        ]
    assert answer.code == 0
    assert (again.body, again.properties[CHECK_TIMES]) == (b"half", "0")
    assert again.properties["REAL_TOPIC"] == "TopicTest"
    assert [each.code for each in refused] == [1, 1]


@pytest.mark.parametrize(("code", "answered"), [(50, 209), (51, 210), (52, 1), (53, 211)])
async def test_there_is_no_access_control_to_change(
    tmp_path: Path, code: int, answered: int
) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().ask(code, ext={"accessKey": "someone"})
    assert answer.code == answered
    assert "does not authenticate" in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "header", "missing"),
    [
        (303, None, "topic"),
        (308, None, "compareGroup"),
        (314, None, "srcGroup"),
        (315, None, "statsName"),
        (321, None, "topic"),
        (307, None, "consumerGroup"),
        (223, None, "topic"),
    ],
)
async def test_a_missing_field_is_named(
    tmp_path: Path, code: int, header: Header | None, missing: str
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        request = client.make(code, header)
        client.feed(request.encode())
        for _ in range(3):
            await client.turn()
        answer = client.answer_to(request)
    assert answer.code == 1
    assert f"required field {missing} is missing" in (answer.remark or "")
