"""Sends: which attempts are made, in which time, and with what identity."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

import pytest

from failback.client.errors import (
    BrokerUnknown,
    MessageInvalid,
    NotRunning,
    RouteNotFound,
    SendCallTimeout,
    SendFailed,
)
from failback.client.model import Message, SendStatus
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, RemotingConnectError, RemotingTimeout
from failback.protocol.message import decode_properties, decode_record
from tests.support.clients.client_lab import TOPIC, Lab
from tests.support.clients.fake_cluster import FakeBroker, Request
from tests.support.common.virtual_time import now, virtual_time


def sends(*brokers: FakeBroker) -> list[Request]:
    found = [r for broker in brokers for r in broker.of(RequestCode.SEND_MESSAGE_V2)]
    return sorted(found, key=lambda request: request.time)


def properties(request: Request) -> dict[str, str]:
    return decode_properties(request.ext["i"])


@virtual_time
async def test_a_send_tells_where_the_message_is() -> None:
    async with Lab() as lab:
        (master,) = lab.pair(queues=2)
        producer, hook = await lab.producer()
        results = [await producer.send(Message(TOPIC, b"x")) for _ in range(3)]
        assert {r.status for r in results} == {SendStatus.SEND_OK}
        first, second, third = (r.queue.queue_id for r in results)
        assert first == third != second
        assert (results[2].queue_offset, results[0].queue_offset) == (1, 0)
        record = decode_record(master.log.queue(TOPIC, first)[0])[0]
        assert results[0].offset_msg_id == record.offset_msg_id
        assert results[0].msg_id == record.properties["UNIQ_KEY"]
        assert results[0].msg_id.startswith("0A020001")  # 10.2.0.1
        (row, *_) = hook.of("produce")
        attempt = row.record
        assert (attempt.result, attempt.code, attempt.addr) == ("OK", 0, master.addr)
        assert attempt.offset_msg_id == results[0].offset_msg_id
        assert attempt.t1 > attempt.t0


@virtual_time
async def test_the_header_has_javas_fields() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        await producer.send(Message(TOPIC, b"x", "k1 k2", "tag", {"own": "1"}, flag=9))
        ext = sends(master)[0].ext
        assert (ext["a"], ext["b"], ext["c"], ext["d"], ext["e"]) == (
            "shop",
            TOPIC,
            "TBW102",
            "4",
            "0",
        )
        assert (ext["f"], ext["h"], ext["j"], ext["k"], ext["m"], ext["n"]) == (
            "0",
            "9",
            "0",
            "false",
            "false",
            "broker-a",
        )
        own = properties(sends(master)[0])
        assert (own["KEYS"], own["TAGS"], own["own"], own["WAIT"]) == ("k1 k2", "tag", "1", "true")


@virtual_time
async def test_a_refused_connect_is_retried_on_another_broker_with_the_same_key() -> None:
    async with Lab() as lab:
        (a,) = lab.pair("broker-a")
        (b,) = lab.pair("broker-b")
        producer, hook = await lab.producer()
        await producer.send(Message(TOPIC, b"warm up"))
        await producer.send(Message(TOPIC, b"warm up"))
        a.kill()
        messages = [Message(TOPIC, b"%d" % n) for n in range(4)]
        results = [await producer.send(message) for message in messages]
        assert {r.queue.broker_name for r in results} == {"broker-b"}
        failed = [r.record for r in hook.of("produce", result="CONN")]
        assert failed
        for record in failed:
            assert (record.attempt, record.addr, record.broker_id) == (1, a.addr, 0)
            again = [
                r.record
                for r in hook.of("produce", attempt=2)
                if r.record.message is record.message
            ]
            assert [r.result for r in again] == ["OK"]
        keys = [properties(r)["UNIQ_KEY"] for r in sends(b)]
        assert len(set(keys)) == len(keys)


@virtual_time
async def test_a_second_send_of_one_object_keeps_its_key_a_new_object_gets_another() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        message = Message(TOPIC, b"x")
        first, again = await producer.send(message), await producer.send(message)
        other = await producer.send(Message(TOPIC, b"x"))
        assert first.msg_id == again.msg_id != other.msg_id
        assert first.offset_msg_id != again.offset_msg_id
        assert len(sends(master)) == 3


@pytest.mark.parametrize("code", [17, 14, 1, 16, 204, 205])
@virtual_time
async def test_codes_of_the_set_are_retried(code: int) -> None:
    async with Lab() as lab:
        (a,), (b,) = lab.pair("broker-a"), lab.pair("broker-b")
        for broker in (a, b):
            broker.refuse(RequestCode.SEND_MESSAGE_V2, code)
        producer, hook = await lab.producer()
        with pytest.raises(SendFailed) as failure:
            await producer.send(Message(TOPIC, b"x"))
        assert failure.value.attempts == 3
        assert isinstance(failure.value.__cause__, BrokerError)
        brokers = failure.value.brokers
        assert brokers[0] == brokers[2] != brokers[1]  # each retry avoids the one before
        assert [r.record.attempt for r in hook.of("produce", result="BROKER_ERR")] == [1, 2, 3]
        assert {r.record.code for r in hook.of("produce")} == {code}


@pytest.mark.parametrize("code", [2, 13, 12345])
@virtual_time
async def test_other_codes_are_raised_at_once_system_busy_among_them(code: int) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        master.refuse(RequestCode.SEND_MESSAGE_V2, code)
        producer, _ = await lab.producer()
        with pytest.raises(BrokerError) as failure:
            await producer.send(Message(TOPIC, b"x"))
        assert failure.value.code == code
        assert len(sends(master)) == 1


@virtual_time
async def test_a_timed_out_send_is_not_retried() -> None:
    """The attempts share one budget, and a lost answer eats all of it."""
    async with Lab() as lab:
        (a,), (b,) = lab.pair("broker-a"), lab.pair("broker-b")
        for broker in (a, b):
            broker.ignore(RequestCode.SEND_MESSAGE_V2)
        producer, hook = await lab.producer()
        begin = now()
        with pytest.raises(SendCallTimeout):
            await producer.send(Message(TOPIC, b"x"))
        assert now() - begin == pytest.approx(3.0, abs=0.01)
        assert len(sends(a, b)) == 1
        assert [r.result for r in hook.of("produce")] == ["TIMEOUT"]


@virtual_time
async def test_a_send_whose_connection_was_closed_under_it_may_have_been_stored() -> None:
    """Another call's timeout closes the connection: of this one nobody knows what became."""
    async with Lab() as lab:
        (master,) = lab.pair()
        master.ignore(RequestCode.SEND_MESSAGE_V2)
        producer, hook = await lab.producer()
        short = producer.send(Message(TOPIC, b"short"), timeout_ms=1000)
        whole = producer.send(Message(TOPIC, b"long"), timeout_ms=3000)
        await asyncio.gather(short, whole, return_exceptions=True)
        assert len(sends(master)) == 3
        results = sorted(r.result for r in hook.of("produce"))
        assert results == ["TIMEOUT", "TIMEOUT", "UNKNOWN"]


@virtual_time
async def test_retries_get_what_is_left_of_the_budget() -> None:
    async with Lab() as lab:
        (a,), (b,) = lab.pair("broker-a"), lab.pair("broker-b")

        def slow(broker: FakeBroker) -> Callable[[RemotingCommand], None]:
            def answer(request: RemotingCommand) -> None:
                reply = request.response(1, "system error")
                connection = broker.connections[-1]
                asyncio.get_running_loop().call_later(2.0, connection.send, reply)

            return answer

        for broker in (a, b):
            broker.overrides[RequestCode.SEND_MESSAGE_V2] = slow(broker)
        producer, hook = await lab.producer()
        begin = now()
        with pytest.raises(SendCallTimeout):
            await producer.send(Message(TOPIC, b"x"))
        assert now() - begin == pytest.approx(3.0, abs=0.01)
        assert [r.result for r in hook.of("produce")] == ["BROKER_ERR", "TIMEOUT"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
@pytest.mark.parametrize("again", [False, True])
@virtual_time
async def test_stored_but_degraded_is_returned_or_sent_again_on_request(
    code: int, status: SendStatus, again: bool
) -> None:
    async with Lab(retry_another_broker_when_not_store_ok=again) as lab:
        (master,) = lab.pair()
        master.overrides[RequestCode.SEND_MESSAGE_V2] = lambda request: request.response(
            code,
            ext={"msgId": "0A00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "7"},
        )
        producer, hook = await lab.producer()
        result = await producer.send(Message(TOPIC, b"x"))
        assert (result.status, result.queue_offset) == (status, 7)
        assert len(sends(master)) == (3 if again else 1)
        assert {r.record.code for r in hook.of("produce", result="OK_DEGRADED")} == {code}


@virtual_time
async def test_while_only_a_slave_is_there_every_send_asks_the_name_server_and_fails_fast() -> None:
    async with Lab() as lab:
        master, _ = lab.pair(slaves=1)
        producer, hook = await lab.producer()
        await producer.send(Message(TOPIC, b"x"))
        master.kill()
        await asyncio.sleep(31 - now())
        lab.name_server.requests.clear()
        for _ in range(3):
            with pytest.raises(RouteNotFound):
                await producer.send(Message(TOPIC, b"x"))
        asked = [r.ext["topic"] for r in lab.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)]
        assert asked == [TOPIC] * 3
        assert now() < 31.1
        assert [r.result for r in hook.of("produce")][-3:] == ["CONN"] * 3
        master.boot()
        assert (await producer.send(Message(TOPIC, b"x"))).status is SendStatus.SEND_OK


@virtual_time
async def test_an_unknown_topic_is_sent_by_the_default_topics_route_to_four_queues() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.add_topic("TBW102", ["broker-a"], 8, perm=7)
        producer, _ = await lab.producer()
        for _ in range(8):
            await producer.send(Message("fresh", b"x"))
        assert {r.ext["e"] for r in sends(master)} == {"0", "1", "2", "3"}
        assert {r.ext["b"] for r in sends(master)} == {"fresh"}


@virtual_time
async def test_without_any_route_there_is_nothing_to_send_to() -> None:
    async with Lab() as lab:
        lab.pair()
        producer, _ = await lab.producer()
        with pytest.raises(RouteNotFound, match="nowhere"):
            await producer.send(Message("nowhere", b"x"))


@virtual_time
async def test_a_send_to_a_queue_or_through_a_selector_makes_one_attempt() -> None:
    async with Lab() as lab:
        (a,), (b,) = lab.pair("broker-a", queues=2), lab.pair("broker-b", queues=2)
        producer, _ = await lab.producer()
        queue = MessageQueue(TOPIC, "broker-b", 1)
        result = await producer.send(Message(TOPIC, b"x"), queue)
        assert (result.queue, len(sends(a))) == (queue, 0)
        result = await producer.send(
            Message(TOPIC, b"x"), selector=lambda queues, message: queues[-1]
        )
        assert result.queue == queue
        b.kill()
        await asyncio.sleep(0.1)  # the FIN arrives
        with pytest.raises(RemotingConnectError):
            await producer.send(Message(TOPIC, b"x"), queue)
        with pytest.raises(BrokerUnknown):
            await producer.send(Message(TOPIC, b"x"), MessageQueue(TOPIC, "broker-x", 0))
        with pytest.raises(MessageInvalid):
            await producer.send(Message(TOPIC, b"x"), MessageQueue("other", "broker-a", 0))


@virtual_time
async def test_an_async_send_is_retried_on_another_broker_with_the_same_queue_id() -> None:
    async with Lab() as lab:
        (a,), (b,) = lab.pair("broker-a", queues=3), lab.pair("broker-b", queues=3)
        producer, hook = await lab.producer()
        for _ in range(6):
            await producer.send(Message(TOPIC, b"warm up"))
        a.kill()
        for _ in range(6):
            result = await producer.send_async(Message(TOPIC, b"x"))
            assert result.queue.broker_name == "broker-b"
        retries = [r.record for r in hook.of("produce", attempt=2)]
        assert retries
        for record in retries:
            (first,) = [
                r.record
                for r in hook.of("produce", attempt=1)
                if r.record.message is record.message
            ]
            assert first.queue.broker_name == "broker-a"
            assert record.queue.queue_id == first.queue.queue_id
        assert b.requests


@virtual_time
async def test_an_async_send_is_not_retried_after_an_error_code_or_a_full_timeout() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        master.refuse(RequestCode.SEND_MESSAGE_V2, 1)
        with pytest.raises(BrokerError):
            await producer.send_async(Message(TOPIC, b"x"))
        master.ignore(RequestCode.SEND_MESSAGE_V2)
        begin = now()
        with pytest.raises(SendFailed) as failure:
            await producer.send_async(Message(TOPIC, b"x"))
        assert isinstance(failure.value.__cause__, RemotingTimeout)
        assert 4.0 <= now() - begin <= 5.01  # timeout + 1 s, found by a scan
        assert len(sends(master)) == 2


@virtual_time
async def test_a_oneway_send_knows_nothing_of_its_outcome() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        master.refuse(RequestCode.SEND_MESSAGE_V2, 2)
        producer, hook = await lab.producer()
        await producer.send_oneway(Message(TOPIC, b"x"))
        await asyncio.sleep(1)
        assert sends(master)[0].is_oneway
        assert [r.result for r in hook.of("produce")] == ["UNKNOWN"]


@pytest.mark.parametrize(("size", "compressed"), [(4095, False), (4096, True)])
@virtual_time
async def test_large_bodies_are_compressed_on_the_wire_only(size: int, compressed: bool) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        message = Message(TOPIC, bytes(size))
        await producer.send(message)
        (request,) = sends(master)
        assert message.body == bytes(size)
        if compressed:
            assert request.ext["f"] == str(0x301)
            assert zlib.decompress(request.body) == bytes(size)
        else:
            assert (request.ext["f"], request.body) == ("0", bytes(size))


@virtual_time
async def test_a_batch_is_one_request_whose_messages_have_their_own_keys() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        messages = [Message(TOPIC, b"%d" % n, tags="t") for n in range(3)]
        result = await producer.send_batch(messages)
        (request,) = master.of(RequestCode.SEND_BATCH_MESSAGE)
        assert request.ext["m"] == "true"
        records = [decode_record(r)[0] for r in master.log.queue(TOPIC, 0)]
        assert [r.body for r in records] == [b"0", b"1", b"2"]
        assert result.msg_id.split(",") == [r.properties["UNIQ_KEY"] for r in records]
        assert result.offset_msg_id.split(",") == [r.offset_msg_id for r in records]
        assert (result.queue_offset, {r.tags for r in records}) == (0, {"t"})


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [Message(TOPIC, b"x"), Message("other", b"x")],
        [Message(TOPIC, b"x", delay_level=1)],
        [Message("%RETRY%g", b"x")],
        [Message(TOPIC, bytes(3 << 20)), Message(TOPIC, bytes(3 << 20))],
    ],
)
@virtual_time
async def test_a_bad_batch_is_refused_before_anything_is_sent(batch: list[Message]) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        with pytest.raises(MessageInvalid):
            await producer.send_batch(batch)
        assert master.of(RequestCode.SEND_BATCH_MESSAGE) == []


@pytest.mark.parametrize(
    "message",
    [
        Message("", b"x"),
        Message("a" * 128, b"x"),
        Message("a b", b"x"),
        Message("SCHEDULE_TOPIC_XXXX", b"x"),
        Message(TOPIC, b""),
        Message(TOPIC, bytes((4 << 20) + 1)),
    ],
)
@virtual_time
async def test_a_bad_message_is_refused_before_anything_is_sent(message: Message) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        with pytest.raises(MessageInvalid):
            await producer.send(message)
        assert sends(master) == []


@virtual_time
async def test_send_latency_keeps_away_from_a_failed_broker_for_600_s() -> None:
    async with Lab(send_latency_fault_enable=True) as lab:
        (a,), (_,) = lab.pair("broker-a"), lab.pair("broker-b")
        producer, _ = await lab.producer()
        for _ in range(2):
            await producer.send(Message(TOPIC, b"x"))
        a.refuse(RequestCode.SEND_MESSAGE_V2, 1)
        for _ in range(4):
            await producer.send(Message(TOPIC, b"x"))
        a.overrides.clear()
        reached = len(sends(a))
        for _ in range(20):
            await producer.send(Message(TOPIC, b"x"))
            await asyncio.sleep(1)
        assert len(sends(a)) == reached
        await asyncio.sleep(600)
        for _ in range(4):
            await producer.send(Message(TOPIC, b"x"))
        assert len(sends(a)) > reached


@virtual_time
async def test_a_producer_heartbeats_masters_only_and_says_goodbye() -> None:
    async with Lab() as lab:
        master, slave = lab.pair(slaves=1)
        producer, _ = await lab.producer()
        await producer.send(Message(TOPIC, b"x"))
        await asyncio.sleep(32)
        assert b'"groupName":"shop"' in master.of(RequestCode.HEART_BEAT)[-1].body
        assert slave.of(RequestCode.HEART_BEAT) == []
        await producer.shutdown()
        assert master.of(RequestCode.UNREGISTER_CLIENT)[-1].ext["producerGroup"] == "shop"
        with pytest.raises(NotRunning):
            await producer.send(Message(TOPIC, b"x"))


@virtual_time
async def test_queues_of_a_topic_come_by_broker_name() -> None:
    async with Lab() as lab:
        lab.pair("broker-b", queues=2)
        lab.pair("broker-a", queues=2)
        producer, _ = await lab.producer()
        queues = await producer.queues(TOPIC)
        assert [(q.broker_name, q.queue_id) for q in queues] == [
            ("broker-a", 0),
            ("broker-a", 1),
            ("broker-b", 0),
            ("broker-b", 1),
        ]
