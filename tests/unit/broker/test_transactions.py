"""Transactional messages through a whole broker: prepared, ended, asked about, given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.broker.messaging.transactions.check import GROUP, OPS_PER_READ, Ops, TransactionCheck
from failback.broker.messaging.transactions.half_messages import HalfMessages
from failback.protocol.clients import HeartbeatData, ProducerData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    from_ext,
)
from failback.protocol.message import (
    MessageExt,
    decode_record,
    decode_records,
    parse_offset_msg_id,
)
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
PROPERTIES = "TAGS\x01a\x02UNIQ_KEY\x010A01\x02TRAN_MSG\x01true\x02PGROUP\x01PG"


def stored(lab: BrokerLab, topic: str = "TopicTest", queue_id: int = 0) -> list[MessageExt]:
    found: list[MessageExt] = []
    store = lab.controller.store
    offset = store.min_queue_offset(topic, queue_id)
    while chunks := store.get_message("G", topic, queue_id, offset, 32).chunks:
        found += decode_records(b"".join(chunks), decompress=False)
        offset = found[-1].queue_offset + 1
    return found


class Half:
    """What the answer to a half message says."""

    def __init__(self, answer: RemotingCommand) -> None:
        assert answer.code == 0, answer
        fields = answer.ext_fields or {}
        self.queue_id = int(fields["queueId"])
        self.queue_offset = int(fields["queueOffset"])
        self.physical_offset = parse_offset_msg_id(fields["msgId"])[2]


async def prepare(client: LabClient, body: bytes = b"order", **fields: object) -> Half:
    usual: dict[str, object] = {"properties": PROPERTIES, "sys_flag": 4}
    return Half(await client.send(body, **usual | fields))


async def end(client: LabClient, half: Half, how: int, **fields: object) -> RemotingCommand:
    usual: dict[str, object] = {
        "producer_group": "PG",
        "tran_state_table_offset": half.queue_offset,
        "commit_log_offset": half.physical_offset,
        "commit_or_rollback": how,
        "msg_id": "0A01",
    }
    header = EndTransactionRequestHeader(**usual | fields)  # type: ignore[arg-type]
    return await client.ask(RequestCode.END_TRANSACTION, header)


# --- the two phases -----------------------------------------------------------------------------


async def test_a_half_message_is_seen_by_nobody(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        half = await prepare(lab.connect(), queue_id=2)
        (message,) = stored(lab, HALF)
        assert all(stored(lab, queue_id=queue) == [] for queue in range(4))
        assert lab.controller.topics.table[HALF].perm == 6
    assert (half.queue_id, half.queue_offset) == (2, 0)
    assert half.physical_offset == message.physical_offset
    assert message.sys_flag == 0
    assert message.properties == {
        "TAGS": "a",
        "UNIQ_KEY": "0A01",
        "TRAN_MSG": "true",
        "PGROUP": "PG",
        "REAL_TOPIC": "TopicTest",
        "REAL_QID": "2",
        "CLUSTER": "DefaultCluster",
    }


async def test_a_commit_brings_it_to_its_queue_and_notes_its_end(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect(("10.0.0.7", 777))
        half = await prepare(client, queue_id=2, flag=3)
        assert (await end(client, half, COMMIT)).code == 0
        (message,), (op,) = stored(lab, queue_id=2), stored(lab, OP)
    assert (message.body, message.flag, message.sys_flag) == (b"order", 3, COMMIT)
    assert message.prepared_transaction_offset == half.physical_offset
    assert message.born_host == ("10.0.0.7", 777)
    assert message.properties["TAGS"] == "a"
    assert (op.body, op.properties["TAGS"]) == (b"0", "d")


async def test_a_rollback_only_notes_its_end(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await prepare(client)
        half = await prepare(client)
        assert (await end(client, half, ROLLBACK)).code == 0
        assert stored(lab) == []
        assert [op.body for op in stored(lab, OP)] == [b"1"]


async def test_an_end_that_nobody_knows_yet_has_no_answer(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        half = await prepare(client)
        with pytest.raises(AssertionError, match="no answer"):
            await end(client, half, UNKNOWN)
        assert stored(lab, OP) == []


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"commit_or_rollback": 7}, "commitOrRollback field wrong"),
        ({"commit_log_offset": 5}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
        ({"producer_group": "other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 9}, "The transaction state table offset wrong"),
    ],
)
async def test_an_end_that_does_not_fit_changes_nothing(
    tmp_path: Path, fields: dict[str, object], remark: str
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        half = await prepare(client)
        answer = await end(client, half, **{"how": COMMIT} | fields)  # type: ignore[arg-type]
        assert (answer.code, answer.remark) == (1, remark)
        assert stored(lab) == []
        assert stored(lab, OP) == []


async def test_a_message_that_is_no_half_can_not_be_committed_again(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        half = await prepare(client)
        await end(client, half, COMMIT)
        (message,) = stored(lab)
        half.physical_offset = message.physical_offset
        answer = await end(client, half, COMMIT)
        assert (answer.code, answer.remark) == (1, "The commit log offset wrong")
        assert len(stored(lab)) == 1


async def test_a_slave_ends_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        half = Half.__new__(Half)
        half.queue_offset = half.physical_offset = 0
        assert (await end(lab.connect(), half, COMMIT)).code == 11


async def test_transactions_may_be_forbidden(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, rejectTransactionMessage="true") as lab:
        answer = await lab.connect().send(properties=PROPERTIES, sys_flag=4)
        assert answer.code == 16
        assert "sending transaction message is forbidden" in (answer.remark or "")


async def test_a_committed_message_may_have_to_wait(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        half = await prepare(client, properties=PROPERTIES + "\x02DELAY\x013")
        await end(client, half, COMMIT)
        assert stored(lab) == []
        (waiting,) = stored(lab, "SCHEDULE_TOPIC_XXXX", 2)
        assert waiting.prepared_transaction_offset == half.physical_offset


# --- the check ----------------------------------------------------------------------------------


class Check:
    """The check of a lab's broker at times that the test chooses."""

    def __init__(self, lab: BrokerLab) -> None:
        self.lab = lab
        controller = lab.controller
        self.now = 0
        self.check = TransactionCheck(
            config=controller.config,
            store=controller.store,
            offsets=controller.offsets,
            producers=controller.clients.producers,
            halves=HalfMessages(
                controller.store,
                controller.topics,
                controller.parts.delivery,
                store_host=controller.identity.store_host,
                clock_ms=lambda: self.now,
                on_append=controller.server.note_append,
            ),
            commit=controller.server.commit_now,
            clock_ms=lambda: self.now,
        )

    def at(self, age_ms: int) -> int:
        """Check when the last half message is so old; its birth is that of its storing."""
        self.now = max(message.store_timestamp for message in stored(self.lab, HALF)) + age_ms
        return self.check.run_once()

    def places(self) -> tuple[int, int]:
        offsets = self.lab.controller.offsets
        return offsets.query(GROUP, HALF, 0), offsets.query(GROUP, OP, 0)


async def join(client: LabClient) -> None:
    body = HeartbeatData("id-1", [ProducerData("PG")], []).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, None, body)).code == 0


def asked_of(client: LabClient) -> list[RemotingCommand]:
    return [
        each
        for each in client.received
        if each.code == RequestCode.CHECK_TRANSACTION_STATE and not each.is_response
    ]


async def born_now(client: LabClient, lab: BrokerLab, **fields: Any) -> Half:
    """Prepare a message that is as old as its record."""
    before = await client.send(b"clock", topic="Clock")
    assert before.code == 0
    now = stored(lab, "Clock")[-1].store_timestamp
    return await prepare(client, born_timestamp=now, **fields)


async def test_a_producer_is_asked_about_what_has_no_end(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await join(client)
        half = await born_now(client, lab, queue_id=3)
        check = Check(lab)
        assert check.at(7_000) == 1
        await client.turn()
        (request,) = asked_of(client)
        assert request.is_oneway
        header = from_ext(CheckTransactionStateRequestHeader, request.ext_fields)
        message, _ = decode_record(request.body)
        again = stored(lab, HALF)[-1]
        assert (header.tran_state_table_offset, header.commit_log_offset) == (
            again.queue_offset,
            again.physical_offset,
        )
        assert (header.msg_id, header.transaction_id) == ("0A01", "0A01")
        assert (message.topic, message.queue_id, message.body) == ("TopicTest", 3, b"order")
        assert again.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        assert check.places() == (1, -1)

        half.queue_offset, half.physical_offset = again.queue_offset, again.physical_offset
        assert (await end(client, half, COMMIT)).code == 0
        assert [each.body for each in stored(lab, queue_id=3)] == [b"order"]
        assert check.at(60_000) == 0
        assert check.places() == (2, 1)
        assert len(stored(lab, HALF)) == 2


async def test_a_young_one_is_left_alone_and_those_behind_it_too(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await join(client)
        await born_now(client, lab)
        check = Check(lab)
        assert check.at(5_900) == 0
        assert check.places() == (-1, -1)
        assert check.at(6_100) == 1


async def test_what_has_ended_is_passed_however_many_op_records_there_are(tmp_path: Path) -> None:
    count = 2 * OPS_PER_READ + 3
    async with broker_lab(tmp_path, mappedFileSizeConsumeQueue=20 * 1000) as lab:
        client = lab.connect()
        await join(client)
        halves = [await born_now(client, lab) for _ in range(count)]
        for number, half in enumerate(reversed(halves)):
            if half is not halves[5]:
                await end(client, half, COMMIT if number % 2 else ROLLBACK)
        check = Check(lab)
        assert check.at(7_000) == 1
        await client.turn()
        assert len(asked_of(client)) == 1
        assert stored(lab, HALF)[-1].properties["TRAN_PREPARED_QUEUE_OFFSET"] == "5"
        assert check.places() == (count, count - 1)


async def test_after_enough_checks_it_is_kept_for_a_person(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, transactionCheckMax=2) as lab:
        client = lab.connect()
        await join(client)
        await born_now(client, lab)
        check = Check(lab)
        assert [check.at(7_000), check.at(60_000), check.at(120_000)] == [1, 1, 0]
        (kept,) = stored(lab, GIVEN_UP)
        assert kept.body == b"order"
        assert kept.properties["REAL_TOPIC"] == "TopicTest"
        assert check.at(180_000) == 0
        assert len(stored(lab, GIVEN_UP)) == 1


async def test_without_a_producer_it_is_tried_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await born_now(client, lab)
        check = Check(lab)
        assert check.at(7_000) == 0
        assert "no producer of PG is here" in caplog.text
        await join(client)
        assert check.at(60_000) == 1
        await client.turn()
        assert len(asked_of(client)) == 1


async def test_one_that_asked_for_more_time_gets_it(tmp_path: Path) -> None:
    properties = PROPERTIES + "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x0130"
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await join(client)
        await born_now(client, lab, properties=properties)
        check = Check(lab)
        assert check.at(7_000) == 0
        assert len(stored(lab, HALF)) == 2, "stored again, so that others are not held up"
        assert check.places()[0] == 1
        assert check.at(31_000) == 1


async def test_an_end_under_its_first_offset_counts_for_the_copy(tmp_path: Path) -> None:
    properties = PROPERTIES + "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x0130"
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await join(client)
        await born_now(client, lab)  # young: keeps the place before the op record's half
        half = await born_now(client, lab, properties=properties)
        check = Check(lab)
        assert check.at(6_500) == 1
        assert check.places()[0] == 2
        await end(client, half, COMMIT)
        lab.controller.offsets.commit(GROUP, HALF, 0, 0)  # as after a kill before the persist
        check.at(8_000)
        assert [each.body for each in stored(lab)] == [b"order"]


def test_op_records_are_done_without_a_gap() -> None:
    ops = Ops(next_offset=9, ended={4: 6, 5: 7}, done={5})
    assert not ops.is_ended(3)
    assert ops.is_ended(5)
    assert ops.done_up_to(5) == 6
    assert ops.is_ended(4)
    assert ops.done_up_to(5) == 8
    assert not ops.is_ended(4)
