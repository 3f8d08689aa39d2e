"""Delayed messages and messages sent back: where they wait, when they come, what they carry."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from failback.broker.config.time_scale import TimeScale
from failback.broker.messaging.delay_service import MOST_PER_TURN, DelayService
from failback.broker.messaging.delayed import waiting_place
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.protocol.codes import SCHEDULE_TOPIC, RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import ConsumerSendMsgBackRequestHeader
from failback.protocol.message import (
    decode_records,
    parse_offset_msg_id,
    tags_code,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import LabClient, broker_lab
from tests.support.brokers.deliveries import Deliveries, stored

# --- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "levels", "place"),
    [
        ("TAGS\x01t", 18, None),
        ("DELAY\x010", 18, None),
        ("DELAY\x01-1", 18, None),
        ("DELAY\x01soon", 18, None),
        ("DELAY\x013", 0, None),
        ("DELAY\x013", 18, (2, "3")),
        ("DELAY\x0199", 18, (17, "18")),
        ("DELAY\x0199", 2, (1, "2")),
    ],
)
def test_the_level_says_where_a_message_waits(
    properties: str, levels: int, place: tuple[int, str] | None
) -> None:
    found = waiting_place(properties, "T", 5, levels)
    if place is None:
        assert found is None
        return
    assert found is not None
    assert found.queue_id == place[0]
    assert found.properties == {"DELAY": place[1], "REAL_TOPIC": "T", "REAL_QID": "5"}


@pytest.mark.foreign
@pytest.mark.parametrize("level", ["soon", "3s", "0x3", "1.5", "-", "\u4e09"])
async def test_a_level_that_is_no_number_is_refused(tmp_path: Path, level: str) -> None:
    """Its message would come at once; Apache 4.9.7 refuses it as well."""
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for properties in (f"DELAY\x01{level}", f"TRAN_MSG\x01true\x02DELAY\x01{level}"):
            answer = await client.send(properties=properties)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert (answer.remark or "").startswith("the property DELAY is ")
        for properties in ("DELAY\x01", "DELAY\x01-1", "MY_DELAY\x01soon"):
            assert (await client.send(properties=properties)).code == 0


async def test_the_offset_of_a_level_moves_when_the_copies_are_in_the_log(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        await lab.connect().send(properties="DELAY\x013")
        store, delays = lab.controller.store, lab.controller.delay_offsets
        seen = []
        deliveries = Deliveries(lab)

        def commit() -> None:
            seen.append((delays.table.get(3, 0), len(stored(lab))))
            lab.controller.server.commit_now()
            seen.append((delays.table.get(3, 0), len(stored(lab))))

        deliveries.service = DelayService(
            store,
            delays,
            lab.controller.parts.delivery,
            scale=TimeScale(),
            clock_ms=lambda: deliveries.now,
            commit=commit,
        )
        await deliveries.after(store.delays[2])
        assert seen == [(0, 0), (0, 1)]
        assert delays.table[3] == 1


async def test_a_delayed_message_waits_under_its_level_as_4_9_8_stores_it(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().send(properties="TAGS\x01a\x02DELAY\x013\x02WAIT\x01true")
        (message,) = stored(lab, SCHEDULE_TOPIC, 2)
        assert stored(lab) == []
        assert lab.controller.topics.get("TopicTest") is not None, "created by the send"
        ((_, _, due),) = lab.controller.store.entries(SCHEDULE_TOPIC, 2, 0, 9)
    assert answer.code == 0
    assert answer.ext_fields is not None
    assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("0", "0")
    assert message.properties == {
        "TAGS": "a",
        "DELAY": "3",
        "WAIT": "true",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "TopicTest",
        "REAL_QID": "0",
    }
    assert due == message.store_timestamp + 10_000


# --- delivery -----------------------------------------------------------------------------------


async def test_it_is_delivered_when_it_is_due_and_not_before(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect(("10.0.0.9", 4242))
        await client.send(
            b"late", queue_id=1, flag=7, sys_flag=0x300, properties="TAGS\x01a\x02DELAY\x013"
        )
        deliveries = Deliveries(lab)
        assert not await deliveries.after(9_999)
        assert stored(lab, queue_id=1) == []
        assert lab.controller.delay_offsets.table == {3: 0}
        await deliveries.after(10_000)
        (message,) = stored(lab, queue_id=1)
        ((_, _, code),) = lab.controller.store.entries("TopicTest", 1, 0, 9)
        await deliveries.after(20_000)
        assert len(stored(lab, queue_id=1)) == 1, "once"
    assert code == tags_code("a")
    assert (message.body, message.flag, message.sys_flag) == (b"late", 7, 0x300)
    assert message.born_host == ("10.0.0.9", 4242)
    assert message.born_timestamp == 1_700_000_000_000
    assert message.reconsume_times == 0
    kept = {name: message.properties[name] for name in ("DELAY", "REAL_TOPIC", "REAL_QID")}
    assert kept == {"DELAY": "3", "REAL_TOPIC": "TopicTest", "REAL_QID": "1"}
    assert lab.controller.delay_offsets.table == {3: 1}


async def test_levels_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for level in (5, 1, 2):
            await client.send(str(level).encode(), properties=f"DELAY\x01{level}")
        deliveries = Deliveries(lab)
        await deliveries.after(5_000)
        assert {message.body for message in stored(lab)} == {b"1", b"2"}


async def test_a_long_queue_is_delivered_in_turns_and_in_order(tmp_path: Path) -> None:
    count = MOST_PER_TURN + 3
    async with broker_lab(tmp_path, mappedFileSizeConsumeQueue=20 * 1000) as lab:
        client = lab.connect()
        for number in range(count):
            await client.send(struct.pack(">i", number), properties="DELAY\x011")
        deliveries = Deliveries(lab)
        assert await deliveries.after(1_000)
        assert not await deliveries.after(1_000)
        bodies = []
        for start in range(0, count, 32):
            got = lab.controller.store.get_message("G", "TopicTest", 0, start, 32)
            bodies += [each.body for each in decode_records(b"".join(got.chunks))]
    assert bodies == [struct.pack(">i", number) for number in range(count)]


async def test_a_time_further_away_than_the_delay_is_now(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        await lab.connect().send(properties="DELAY\x013")
        deliveries = Deliveries(lab)
        await deliveries.after(-1)  # the clock was set back behind the moment of storing
        assert len(stored(lab)) == 1


async def test_what_is_no_delayed_message_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.store.append(
            topic=SCHEDULE_TOPIC.encode(),
            queue_id=0,
            flag=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=bytes(8),
            reconsume_times=0,
            body=b"stray",
            properties=b"DELAY\x011",
            tags_code=0,
        )
        lab.controller.store.commit_pending()
        await client.send(b"good", properties="DELAY\x011")
        await Deliveries(lab).after(1_000)
        assert [message.body for message in stored(lab)] == [b"good"]
    assert "It is parked in FAILBACK_PUT_ASIDE" in caplog.text


@pytest.mark.parametrize(("offset", "corrected"), [(9, 1), (1, 1), (0, 0)])
async def test_an_offset_outside_its_queue_is_brought_back(
    tmp_path: Path, offset: int, corrected: int
) -> None:
    async with broker_lab(tmp_path) as lab:
        await lab.connect().send(properties="DELAY\x011")
        lab.controller.delay_offsets.table = {1: offset, 2: 0}
        Deliveries(lab).service.correct_offsets()
        assert lab.controller.delay_offsets.table == {1: corrected, 2: 0}


# --- sent back ----------------------------------------------------------------------------------


async def send_back(
    client: LabClient, offset: int, version: int = 409, **fields: object
) -> RemotingCommand:
    usual: dict[str, object] = {"group": "CG", "delay_level": 0, "max_reconsume_times": 16}
    header = ConsumerSendMsgBackRequestHeader(offset=offset, **usual | fields)  # type: ignore[arg-type]
    return await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, version=version)


async def sent(client: LabClient, body: bytes = b"bad", **fields: object) -> int:
    """Send a message; return its physical offset."""
    answer = await client.send(body, **fields)
    assert answer.ext_fields is not None
    return parse_offset_msg_id(answer.ext_fields["msgId"])[2]


async def test_a_message_sent_back_comes_again_on_the_retry_topic(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        offset = await sent(client, properties="TAGS\x01a\x02KEYS\x01k")
        (original,) = stored(lab)
        answer = await send_back(client, offset)
        assert (answer.code, answer.remark) == (0, None)
        (waiting,) = stored(lab, SCHEDULE_TOPIC, 2)
        assert waiting.reconsume_times == 1
        await Deliveries(lab).after(10_000)
        (again,) = stored(lab, "%RETRY%CG")
        assert lab.controller.groups.table["CG"].retry_queue_nums == 1
    assert again.body == b"bad"
    assert again.reconsume_times == 1
    assert again.properties == {
        "TAGS": "a",
        "KEYS": "k",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "TopicTest",
        "ORIGIN_MESSAGE_ID": original.offset_msg_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%CG",
        "REAL_QID": "0",
    }


async def test_a_second_time_it_waits_longer_and_remembers_where_it_came_from(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await send_back(client, await sent(client))
        await Deliveries(lab).after(10_000)
        (first,) = stored(lab, "%RETRY%CG")
        await send_back(client, first.physical_offset)
        (waiting,) = stored(lab, SCHEDULE_TOPIC, 3)
    assert waiting.reconsume_times == 2
    assert waiting.properties["RETRY_TOPIC"] == "TopicTest"
    assert waiting.properties["ORIGIN_MESSAGE_ID"] == first.properties["ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize(
    ("fields", "version", "most", "is_dead"),
    [
        ({"delay_level": -1}, 409, 16, True),
        ({"max_reconsume_times": 0}, 409, 16, True),
        ({"max_reconsume_times": 0}, 120, 16, False),  # too old a client to be heard
        ({"max_reconsume_times": None}, 409, 0, True),
        ({"max_reconsume_times": None}, 409, 1, False),
    ],
)
async def test_enough_is_enough(
    tmp_path: Path, fields: dict[str, object], version: int, most: int, is_dead: bool
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.groups.update(SubscriptionGroupConfig("CG", retry_max_times=most))
        answer = await send_back(client, await sent(client), version=version, **fields)
        assert answer.code == 0
        dead = stored(lab, "%DLQ%CG")
        assert bool(dead) is is_dead
        assert bool(stored(lab, SCHEDULE_TOPIC, 2)) is not is_dead
        assert [each.properties["DELAY"] for each in dead] == ["0"] * is_dead


async def test_a_level_asked_for_is_taken(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await send_back(client, await sent(client), delay_level=7)
        assert len(stored(lab, SCHEDULE_TOPIC, 6)) == 1


async def test_a_group_without_retry_queues_loses_its_retries_in_peace(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.groups.update(SubscriptionGroupConfig("CG", retry_queue_nums=0))
        offset = await sent(client)
        end = lab.controller.store.max_physical_offset
        assert (await send_back(client, offset)).code == 0
        assert lab.controller.store.max_physical_offset == end


async def test_each_refusal_has_its_reason_and_stores_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, autoCreateSubscriptionGroup="false") as lab:
        client, controller = lab.connect(), lab.controller
        offset = await sent(client)
        end = controller.store.max_physical_offset
        answer = await send_back(client, offset)
        assert (answer.code, answer.remark) == (26, "subscription group not exist, CG")
        controller.groups.update(SubscriptionGroupConfig("CG"))
        for wrong in (-1, offset + 1, end + 50):
            answer = await send_back(client, wrong)
            assert (answer.code, answer.remark) == (1, f"look message by offset failed, {wrong}")
        controller.topics.update(TopicConfig("%RETRY%CG", 1, 1, 4))
        answer = await send_back(client, offset)
        assert answer.code == 16
        assert answer.remark == "the topic[%RETRY%CG] sending message is forbidden"
        controller.config.broker_permission = 4
        answer = await send_back(client, offset)
        assert answer.code == 16
        assert answer.remark == "the broker[127.0.0.1] sending message is forbidden"
        assert controller.store.max_physical_offset == end


async def test_a_slave_says_that_it_stores_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        offset = await sent(client)
        lab.controller.store.config.broker_role = "SLAVE"
        answer = await send_back(client, offset)
        assert answer.code == 1
        assert (answer.remark or "").startswith("SERVICE_NOT_AVAILABLE")


async def test_a_stop_keeps_the_offsets_though_another_file_can_t_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_lab(tmp_path) as lab:
        lab.controller.delay_offsets.table = {3: 7}
        config = lab.controller.delay_offsets.file.path.parent
        (config / "consumerFilter.json.tmp").mkdir(parents=True)
        await lab.controller._leave()
    assert "could not be written" in caplog.text
    written = DelayOffsets(config / "delayOffset.json")
    written.load()
    assert written.table == {3: 7}
