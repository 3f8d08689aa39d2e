"""What can't be delivered is parked, and what waits behind it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from failback.broker.messaging.delayed import append_copy
from failback.broker.messaging.send_rules import FORBIDDEN_TOPICS
from failback.broker.messaging.transactions.check import TransactionCheck
from failback.broker.store.log.results import Appended
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import PUT_ASIDE_TOPIC, SCHEDULE_TOPIC, RequestCode, ResponseCode
from failback.protocol.headers import ConsumerSendMsgBackRequestHeader
from failback.protocol.message import (
    MAX_PROPERTIES_BYTES,
    PUT_ASIDE_FOR,
    PUT_ASIDE_OFFSET,
    PUT_ASIDE_REASON,
    MessageExt,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import BrokerLab, broker_lab
from tests.support.brokers.deliveries import Deliveries, stored

pytestmark = pytest.mark.foreign

LONG_GROUP = "g" * 121
TOPIC = "TopicTest"
HALVES, OPS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


def waiting(topic: str, queue_id: object = 0, more: str = "") -> str:
    """Return the properties of a message that waits at level 1 for a topic."""
    return f"DELAY\x011\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}{more}"


class Odd(NamedTuple):
    """A waiting message, where it has to turn up, and what its reason says."""

    properties: str
    place: tuple[str, int]
    reason: str = ""
    body: bytes = b""
    """The name of the case, if it is not given."""


ODD = {
    "name-too-long": Odd(waiting("%RETRY%" + "h" * 121), (PUT_ASIDE_TOPIC, 0), "no such topic"),
    "retry-name-too-long": Odd(
        waiting("%RETRY%" + LONG_GROUP), (f"%DLQ%{LONG_GROUP}", 0), "topic of 128 bytes"
    ),
    "name-illegal": Odd(waiting("or/ders"), (PUT_ASIDE_TOPIC, 0), "no such topic"),
    "name-illegal-of-an-old-table": Odd(waiting("o/ld"), (PUT_ASIDE_TOPIC, 0), "can be called"),
    "name-of-line-ends": Odd(waiting("or\nders"), (PUT_ASIDE_TOPIC, 0), "no such topic"),
    "topic-unknown": Odd(waiting("deleted"), (PUT_ASIDE_TOPIC, 0), "no such topic"),
    "topic-missing": Odd("DELAY\x011", (PUT_ASIDE_TOPIC, 0), "names no topic"),
    "queue-missing": Odd("DELAY\x011\x02REAL_TOPIC\x01TopicTest", (PUT_ASIDE_TOPIC, 0), "no topic"),
    "queue-no-number": Odd(waiting(TOPIC, "two"), (PUT_ASIDE_TOPIC, 0), "names no topic and queue"),
    "queue-huge": Odd(waiting(TOPIC, "9" * 5000), (PUT_ASIDE_TOPIC, 0), "names no topic and queue"),
    "queue-gone": Odd(waiting(TOPIC, 6), (TOPIC, 2)),
    "queue-gone-of-retries": Odd(waiting("%RETRY%billing", 3), ("%RETRY%billing", 0)),
    "retry-topic-gone": Odd(waiting("%RETRY%again", 1), ("%RETRY%again", 1)),
    "above-the-limit-of-now": Odd(waiting(TOPIC, 3), (TOPIC, 3), body=b"x" * 5000),
    "separator-in-a-value": Odd(waiting(TOPIC, 3, "\x02a\x01b\x01c"), (TOPIC, 3)),
    "no-utf8": Odd(waiting(TOPIC, 3, "\x02a\x01\udcff"), (TOPIC, 3)),
    "no-utf8-and-too-long": Odd(
        waiting(TOPIC, 3, "\x02a\x01" + "\udcff" * 30_000),
        (PUT_ASIDE_TOPIC, 0),
        "properties of",
    ),
}


DAMAGED = (4, 30, 84, 88, 90)
"""Bytes of a record."""


def put_waiting(lab: BrokerLab, body: bytes, properties: str) -> int:
    """Append to level 1 what may be in a store of before."""
    return put_record(lab, SCHEDULE_TOPIC, body, properties)


def put_record(lab: BrokerLab, topic: str, body: bytes, properties: str = "") -> int:
    """Append a record to queue 0 of a topic; return its physical offset."""
    at = lab.controller.store.append(
        topic=topic.encode(),
        queue_id=0,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=bytes(8),
        reconsume_times=0,
        body=body,
        properties=properties.encode(errors="surrogateescape"),
        tags_code=0,
    )
    lab.controller.store.commit_pending()
    return at.physical_offset


def set_up(lab: BrokerLab) -> None:
    controller = lab.controller
    controller.topics.update(TopicConfig(TOPIC, 4, 4))
    controller.topics.table["o/ld"] = TopicConfig("o/ld", 1, 1)
    controller.topics.update(TopicConfig("%RETRY%billing", 1, 1))
    controller.groups.update(SubscriptionGroupConfig("billing", retry_queue_nums=1))
    controller.groups.update(SubscriptionGroupConfig("again", retry_queue_nums=2))
    controller.groups.update(SubscriptionGroupConfig(LONG_GROUP))


def damage(lab: BrokerLab, places: dict[int, int]) -> None:
    """Change a byte of each record: its position in the record, and the record's offset."""
    (log,) = lab.controller.store.config.commit_log_directory.iterdir()
    with log.open("r+b") as file:
        for position, offset in places.items():
            file.seek(offset + position)
            (byte,) = file.read(1)
            file.seek(offset + position)
            file.write(bytes((byte ^ 0x55,)))


async def test_what_cannot_be_delivered_holds_up_no_level(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        offsets = {
            name: put_waiting(lab, odd.body or name.encode(), odd.properties)
            for name, odd in ODD.items()
        }
        put_waiting(lab, b"good", waiting(TOPIC))
        lab.controller.store.config.max_message_bytes = 100
        await Deliveries(lab).after(1_000)
        assert [message.body for message in stored(lab)] == [b"good"]
        assert lab.controller.delay_offsets.table[1] == len(ODD) + 1
        for name, odd in ODD.items():
            body = odd.body or name.encode()
            (found,) = (each for each in stored(lab, *odd.place) if each.body == body)
            assert odd.reason in found.properties.get(PUT_ASIDE_REASON, ""), name
            assert lab.controller.topics.get(odd.place[0]) is not None
            if odd.reason:
                assert found.properties[PUT_ASIDE_OFFSET] == str(offsets[name])
                assert found.properties[PUT_ASIDE_FOR].isprintable()


async def test_damaged_records_hold_up_no_level(tmp_path: Path) -> None:
    """One byte of each: of its magic, its place, its lengths and its body."""
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        damaged = {position: put_waiting(lab, b"damaged", waiting(TOPIC)) for position in DAMAGED}
        put_waiting(lab, b"good", waiting(TOPIC))
        damage(lab, damaged)
        await Deliveries(lab).after(1_000)
        assert [message.body for message in stored(lab)] == [b"good"]
        notes = [message.properties for message in stored(lab, PUT_ASIDE_TOPIC)]
        assert [note.pop(PUT_ASIDE_OFFSET) for note in notes] == [
            str(offset) for offset in damaged.values()
        ]
        assert notes == [{PUT_ASIDE_REASON: "its record is damaged", PUT_ASIDE_FOR: "?"}] * len(
            damaged
        )


async def test_levels_that_are_configured_no_more_are_delivered_all_the_same(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path) as lab:
        await lab.connect().send(b"late", properties="DELAY\x013")
        lab.controller.store._dispatcher.delays = (1_000, 5_000)
        deliveries = Deliveries(lab)
        await deliveries.after(9_999)
        assert stored(lab) == []
        await deliveries.after(10_000)
        assert [message.body for message in stored(lab)] == [b"late"]


async def test_a_send_back_that_does_not_fit_goes_to_the_dead_letters(tmp_path: Path) -> None:
    """Its consumer would try it again and again, and stop where it has too many of these."""
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        client = lab.connect()
        room = MAX_PROPERTIES_BYTES - 50
        sent = await client.send(b"full", properties="a\x01" + "b" * room)
        offset = stored(lab)[0].physical_offset
        assert sent.code == ResponseCode.SUCCESS
        header = ConsumerSendMsgBackRequestHeader(
            offset=offset, group="billing", delay_level=1, origin_msg_id="x", origin_topic=TOPIC
        )
        answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        (dead,) = stored(lab, "%DLQ%billing")
        assert dead.body == b"full"
        assert "properties of" in dead.properties[PUT_ASIDE_REASON]


async def test_nothing_is_put_aside_while_the_store_takes_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        put_waiting(lab, b"odd", waiting("deleted"))
        put_waiting(lab, b"good", waiting(TOPIC))
        deliveries = Deliveries(lab)
        lab.controller.store._appender.refusal = "the broker's disk is full"
        await deliveries.after(1_000)
        assert lab.controller.delay_offsets.table.get(1, 0) == 0
        lab.controller.store._appender.refusal = None
        await deliveries.after(1_000)
        assert [message.body for message in stored(lab)] == [b"good"]
        assert len(stored(lab, PUT_ASIDE_TOPIC)) == 1


async def test_clients_can_neither_send_there_nor_delete_it(tmp_path: Path) -> None:
    assert PUT_ASIDE_TOPIC in FORBIDDEN_TOPICS
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().send(b"mine", topic=PUT_ASIDE_TOPIC)
        assert answer.code == ResponseCode.NO_PERMISSION


async def test_a_damaged_half_message_and_odd_ends_hold_up_no_check(tmp_path: Path) -> None:
    """Half messages, records of ends and numbers as they may be in a store of before."""
    async with broker_lab(tmp_path) as lab:
        for number in ("--5", "9" * 5000, "", "five", "\u0665"):
            put_record(lab, OPS, number.encode())
        half = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02REAL_TOPIC\x01TopicTest\x02REAL_QID\x01"
        damaged = put_record(lab, HALVES, b"damaged", half + "0")
        damage(lab, {84: damaged})
        put_record(lab, HALVES, b"full", half + "0\x02a\x01" + "b" * (MAX_PROPERTIES_BYTES - 100))
        for more in ("", "\x02TRANSACTION_CHECK_TIMES\x01--5", "\x02a\x01b\x01c"):
            put_record(lab, HALVES, b"good", half + "no number" + more)
        controller = lab.controller
        check = TransactionCheck(
            config=controller.config,
            store=controller.store,
            offsets=controller.offsets,
            producers=controller.clients.producers,
            halves=controller.parts.halves,
            commit=controller.server.commit_now,
            clock_ms=lambda: controller.store.appender.store_timestamp + 1,
        )
        controller.config.file_reserved_time = 1 << 40
        assert check.run_once() == 0, "no producer is there"
        assert controller.store.max_queue_offset(HALVES, 0) == 8, "the good ones are put back"
        assert controller.offsets.query("CID_RMQ_SYS_TRANS", HALVES, 0) == 5
        assert [message.body for message in stored(lab, GIVEN_UP)] == [b"full"]
        (note,) = stored(lab, PUT_ASIDE_TOPIC)
        assert note.properties[PUT_ASIDE_OFFSET] == str(damaged)


async def test_a_fault_of_ours_at_one_message_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        offsets = [put_waiting(lab, b"odd", waiting(TOPIC, 2)), put_waiting(lab, b"2", "")]
        put_waiting(lab, b"good", waiting(TOPIC))

        def fails(store: MessageStore, message: MessageExt, **fields: Any) -> Appended:
            if message.body == b"odd":
                raise KeyError(message.topic)
            return append_copy(store, message, **fields)

        monkeypatch.setattr("failback.broker.messaging.delivery.append_copy", fails)
        await Deliveries(lab).after(1_000)
        assert [message.body for message in stored(lab)] == [b"good"]
        notes = [message.properties for message in stored(lab, PUT_ASIDE_TOPIC)]
        assert [note[PUT_ASIDE_OFFSET] for note in notes] == [str(offset) for offset in offsets]
        assert "internal error" in notes[0][PUT_ASIDE_REASON]
