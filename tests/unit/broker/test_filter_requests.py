"""SQL92 subscriptions through a whole broker: refused, checked, filtered, corrected."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.protocol.clients import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from failback.protocol.codes import PULL_SUBSCRIPTION, PULL_SUSPEND, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.message import BatchElement, decode_records, encode_batch
from tests.support.brokers.broker_lab import LabClient, broker_lab, pull_header

NOT_SUPPORTED = "The broker does not support consumer to filter message by SQL92"
SQL = {"expression_type": "SQL92", "subscription": "a > 2"}


async def check(client: LabClient, text: str, kind: str = "SQL92") -> RemotingCommand:
    subscription = SubscriptionData("TopicTest", text, expression_type=kind)
    body = CheckClientRequestBody("c1", "CG", subscription).to_json()
    return await client.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)


async def beat(client: LabClient, text: str, *, version: int = 1) -> None:
    data = SubscriptionData("TopicTest", text, sub_version=version, expression_type="SQL92")
    body = HeartbeatData("c1", [], [ConsumerData("CG", subscription_data_set=[data])]).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, None, body)).code == 0


async def send(client: LabClient, *values: object) -> None:
    for value in values:
        await client.send(str(value).encode(), properties=f"a\x01{value}\x02WAIT\x01true")


def bodies(answer: RemotingCommand) -> list[str]:
    return [message.body.decode() for message in decode_records(answer.body)]


def next_offset(answer: RemotingCommand) -> int:
    return int((answer.ext_fields or {})["nextBeginOffset"])


async def test_a_broker_refuses_filters_unless_told_otherwise(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await send(client, 5)
        asked = await check(client, "a > 2")
        carried = await client.pull(**SQL)
        await beat(client, "a > 2")
        registered = await client.pull(sys_flag=0)
    for answer in (asked, carried, registered):
        assert (answer.code, answer.remark) == (1, NOT_SUPPORTED)


async def test_the_check_at_a_consumers_start(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, enablePropertyFilter="true") as lab:
        client = lab.connect()
        assert (await check(client, "*", "TAG")).code == 0
        assert (await check(client, "a > 2")).code == 0
        for text, kind in (("a >", "SQL92"), ("", "SQL92"), ("a > 2", "XPATH")):
            answer = await check(client, text, kind)
            assert (answer.code, bool(answer.remark)) == (23, True)


@pytest.mark.parametrize("registered", [True, False])
async def test_only_what_matches_is_handed_out(tmp_path: Path, registered: bool) -> None:
    async with broker_lab(tmp_path, enablePropertyFilter="true") as lab:
        client = lab.connect()
        await send(client, 1, 5, 2, "x", 9, 0)
        await client.send(b"none", properties="")
        await beat(client, "a > 2")
        how = {"sys_flag": 0} if registered else SQL
        found = await client.pull(**how)
        first = await client.pull(**how, max_msg_nums=1)
        rest = await client.pull(**how, queue_offset=next_offset(first))
        none = await client.pull(**how, queue_offset=5)
        end = await client.pull(**how, queue_offset=7)
        reads = lab.controller.statistics.reads["TopicTest", "CG"]
    assert (found.code, bodies(found), next_offset(found)) == (0, ["5", "9"], 7)
    assert (bodies(first), next_offset(first)) == (["5"], 2), (
        "what comes after a full answer is not examined"
    )
    assert (bodies(rest), next_offset(rest)) == (["9"], 7)
    assert (none.code, next_offset(none), none.body) == (20, 7, b"")
    assert (end.code, next_offset(end)) == (19, 7)
    assert (reads.found, reads.bytes > 0) == (3, True)


@pytest.mark.parametrize("text", ["a >", "", "NULL = a"])
async def test_a_pull_with_a_filter_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    async with broker_lab(tmp_path, enablePropertyFilter="true") as lab:
        client = lab.connect()
        await send(client, 5)
        carried = await client.pull(expression_type="SQL92", subscription=text)
        unknown = await client.pull(expression_type="XPATH", subscription="a > 2")
        await beat(client, text)
        registered = await client.pull(sys_flag=0)
        await beat(client, "a > 2", version=2)
        mended = await client.pull(sys_flag=0)
    assert (carried.code, unknown.code, registered.code) == (23, 23, 27)
    assert bodies(mended) == ["5"]


async def test_limits_of_one_answer_hold_for_what_matches(tmp_path: Path) -> None:
    settings = {"enablePropertyFilter": "true", "maxTransferCountOnMessageInMemory": 3}
    async with broker_lab(tmp_path, **settings) as lab:
        client = lab.connect()
        await send(client, *([1, 5] * 10))
        by_count = await client.pull(**SQL)
        lab.controller.store.config.max_transfer_count_in_memory = 32
        size = len(lab.controller.store.record_at(0) or b"")
        lab.controller.store.config.max_transfer_bytes_in_memory = 2 * size + 1
        by_bytes = await client.pull(**SQL)
        lab.controller.store.config.access_message_in_memory_max_ratio = 0
        lab.controller.store.config.max_transfer_count_on_disk = 1
        on_disk = await client.pull(**SQL)
    assert [len(bodies(answer)) for answer in (by_count, by_bytes, on_disk)] == [3, 2, 1]
    assert [next_offset(answer) for answer in (by_count, by_bytes, on_disk)] == [6, 4, 2]


async def test_records_that_are_gone_are_passed_by(tmp_path: Path) -> None:
    settings = {"enablePropertyFilter": "true", "mappedFileSizeCommitLog": 4096}
    async with broker_lab(tmp_path, **settings) as lab:
        client = lab.connect()
        await send(client, *[5] * 60)
        store = lab.controller.store
        whole = await client.pull(**SQL, max_msg_nums=100)
        # What expiry does to the log, before it has looked at the queues.
        store._log.files.drop_first().unlink()
        gone = await client.pull(**SQL, max_msg_nums=100)
        low = store.min_physical_offset
        first = next(
            offset
            for offset in range(60)
            if store.physical_offset_of("TopicTest", 0, offset) >= low
        )
    assert (whole.code, len(bodies(whole))) == (0, 32)
    assert gone.code == 0
    assert len(bodies(gone)) == min(32, 60 - first)
    assert first > 0


async def test_a_held_pull_is_woken_and_looks_for_itself(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, enablePropertyFilter="true") as lab:
        client, producer = lab.connect(), lab.connect()
        await send(producer, 9)
        header = pull_header(
            **SQL,
            queue_offset=1,
            sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND,
            suspend_timeout_millis=3_600_000,
        )
        held = client.make(RequestCode.PULL_MESSAGE, header)
        client.feed(held.encode())
        await client.turn()
        assert client.find_answer(held) is None
        await send(producer, 1)
        await client.turn()
        passed_by = client.answer_to(held)
        again = client.make(RequestCode.PULL_MESSAGE, pull_header(**SQL, queue_offset=2))
        await send(producer, 7)
        client.feed(again.encode())
        await client.turn()
    assert (passed_by.code, next_offset(passed_by)) == (20, 2)
    assert bodies(client.answer_to(again)) == ["7"]


async def test_properties_that_are_no_text_do_not_stop_a_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, enablePropertyFilter="true") as lab:
        client = lab.connect()
        batch = encode_batch(
            [BatchElement(0, b"bad", b"a\x01\xff\xfe"), BatchElement(0, b"5", b"a\x015")]
        )
        sent = await client.send(batch, batch=True)
        assert sent.code == 0
        found = await client.pull(**SQL)
    assert bodies(found) == ["5"]


async def test_the_switch_can_be_changed_while_it_runs(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await send(client, 5)
        change = RequestCode.UPDATE_BROKER_CONFIG
        assert (await client.ask(change, None, b"enablePropertyFilter=true")).code == 0
        assert bodies(await client.pull(**SQL)) == ["5"]
