"""A run: what one turn of the loop brings is one write to the log and one per connection."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.remoting.server import MOST_PENDING_BYTES
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import RequestCode
from failback.protocol.errors import ProtocolError, StoreError
from failback.protocol.headers import GetMaxOffsetRequestHeader
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab, send_header
from tests.support.common.counts import examples


class Commits:
    """Counts the store's writes."""

    def __init__(self, store: MessageStore) -> None:
        self.count = 0
        self._commit = store.commit_pending
        store.commit_pending = self  # type: ignore[method-assign]

    def __call__(self) -> None:
        self.count += 1
        self._commit()


def sends(client: LabClient, count: int) -> bytes:
    frames = [
        client.make(RequestCode.SEND_MESSAGE_V2, send_header(), b"%d" % number).encode()
        for number in range(count)
    ]
    return b"".join(frames)


async def test_64_sends_of_one_read_are_one_commit_and_one_write(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        commits = Commits(lab.controller.store)
        writes = len(client.transport.writes)
        client.feed(sends(client, 64))
        assert lab.controller.store.max_queue_offset("TopicTest", 0) == 1, "not written yet"
        await client.turn()
        assert commits.count == 1
        assert len(client.transport.writes) == writes + 1
        assert [each.code for each in client.received] == [0] * 65
        assert lab.controller.store.max_queue_offset("TopicTest", 0) == 65


async def test_a_large_run_is_written_in_parts_and_answered_at_its_end(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, mappedFileSizeCommitLog=16 * MOST_PENDING_BYTES) as lab:
        client = lab.connect()
        await client.send()
        commits = Commits(lab.controller.store)
        writes = len(client.transport.writes)
        third = bytes(MOST_PENDING_BYTES // 3)
        for expected in (0, 0, 1, 1, 1, 2, 2):
            request = client.make(RequestCode.SEND_MESSAGE_V2, send_header(), third)
            client.feed(request.encode())
            assert commits.count == expected
        assert len(client.transport.writes) == writes
        await client.turn()
        assert commits.count == 3
        assert len(client.transport.writes) == writes + 1
        assert [each.code for each in client.received] == [0] * 8
        assert lab.controller.store.max_queue_offset("TopicTest", 0) == 8


async def test_a_part_of_a_run_that_the_disk_refuses_stops_the_broker(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, mappedFileSizeCommitLog=16 * MOST_PENDING_BYTES) as lab:
        client, other = lab.connect(), lab.connect()
        await client.send()

        def fail() -> None:
            raise StoreError("no space left on device")

        lab.controller.store.commit_pending = fail  # type: ignore[method-assign]
        body = bytes(MOST_PENDING_BYTES)
        client.feed(client.make(RequestCode.SEND_MESSAGE_V2, send_header(), body).encode())
        assert client.transport.aborted
        assert other.transport.aborted
        await client.turn()
        assert len(client.received) == 1
        assert lab.controller._shutdown.is_set()
        del lab.controller.store.commit_pending


async def test_reads_of_many_connections_in_one_turn_are_one_commit(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        clients = [lab.connect(("10.0.0.1", 50_000 + number)) for number in range(16)]
        await clients[0].send()
        commits = Commits(lab.controller.store)
        for client in clients:
            client.feed(sends(client, 1))
        for client in clients:
            await client.turn()
            assert client.received[-1].code == 0
        assert commits.count == 1


async def test_no_answer_is_out_before_its_record_is_written(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        store = lab.controller.store
        written = len(client.transport.writes)
        commit = store.commit_pending

        def check() -> None:
            assert len(client.transport.writes) == written
            commit()

        store.commit_pending = check  # type: ignore[method-assign]
        client.feed(sends(client, 3))
        await client.turn()
        assert len(client.transport.writes) == written + 1
        del store.commit_pending


async def test_a_question_behind_a_send_sees_its_message(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        question = client.make(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("TopicTest", 0)
        )
        client.feed(sends(client, 2) + question.encode())
        await client.turn()
        assert client.answer_to(question).ext_fields == {"offset": "2"}


async def test_a_failed_write_acknowledges_nothing_and_stops_the_broker(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, other = lab.connect(), lab.connect()
        await client.send()
        answered = len(client.received)

        def fail() -> None:
            raise StoreError("no space left on device")

        lab.controller.store.commit_pending = fail  # type: ignore[method-assign]
        client.feed(sends(client, 3))
        await client.turn()
        assert len(client.received) == answered
        assert client.transport.aborted
        assert other.transport.aborted
        assert lab.controller._shutdown.is_set()
        del lab.controller.store.commit_pending


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        idle, busy = lab.connect(), lab.connect()
        idle.connection.last_active -= 121
        lab.controller.server.close_idle(120)
        assert idle.transport.aborted
        assert not busy.transport.aborted


# --- what peers may send ------------------------------------------------------------------------


def frame(header: bytes, body: bytes = b"", mark: int = 0) -> bytes:
    prefix = struct.pack(">iI", 4 + len(header) + len(body), mark << 24 | len(header))
    return prefix + header + body


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iI", 16 * 1024 * 1024, 5),
        struct.pack(">iI", 2**31 - 1, 5),
        struct.pack(">iI", -5, 0),
        struct.pack(">iI", 3, 0),
        struct.pack(">iI", 10, 7),
        frame(b"{}", mark=2),
        frame(b"\x16\x03\x01"),
        frame(b'{"opaque":1'),
        frame(b"\0\1", mark=1),
    ],
)
async def test_broken_framing_closes_the_connection_and_no_other(
    tmp_path: Path, data: bytes
) -> None:
    async with broker_lab(tmp_path) as lab:
        bad, good = lab.connect(), lab.connect()
        bad.feed(data)
        assert bad.transport.aborted
        assert (await good.send()).code == 0


async def test_a_stream_may_be_cut_anywhere(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        data = sends(client, 3)
        for byte in data:
            client.feed(bytes([byte]))
        await client.turn()
        assert [each.code for each in client.received] == [0, 0, 0]


async def test_a_large_body_in_small_pieces_is_put_together(tmp_path: Path) -> None:
    body = bytes(range(256)) * 2000
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        data = client.make(RequestCode.SEND_MESSAGE_V2, send_header(), body).encode()
        for start in range(0, len(data), 4096):
            client.feed(data[start : start + 4096])
        await client.turn()
        assert client.received[0].code == 0
        assert body in (lab.controller.store.record_at(0) or b"")


async def test_responses_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        client.feed(frame(b'{"code":0,"flag":1,"opaque":3}'))
        client.feed(frame(b'{"code":310,"flag":1,"opaque":3,"extFields":{}}'))
        await client.turn()
        assert client.received == []
        assert not client.transport.aborted
        assert (await client.send()).code == 0


async def feed_safely(lab: BrokerLab, data: bytes) -> None:
    client = lab.connect()
    client.feed(data)
    await client.turn()
    client.disconnect()


mutated = st.tuples(st.integers(0, 400), st.integers(0, 255))


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(mutated, max_size=6),
    st.sampled_from([10, 11, 14, 15, 17, 25, 29, 34, 35, 38, 41, 208, 222, 310, 320, 361]),
    st.sampled_from([0, 1]),
    st.binary(max_size=60),
)
async def test_no_bytes_bring_the_broker_down(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, int]],
    code: int,
    serialize_type: int,
    body: bytes,
) -> None:
    """Any corruption of any request is answered or closes its connection; others are served."""
    async with broker_lab(tmp_path_factory.mktemp("fuzz")) as lab:
        client = lab.connect()
        ext = {
            "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
            "topic": "T", "consumerGroup": "CG", "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "1", "suspendTimeoutMillis": "1",
            "subVersion": "0", "timestamp": "1", "group": "CG", "isForce": "true",
        }  # fmt: skip
        request = client.make(code, ext=ext, serialize_type=serialize_type)
        request.body = body
        data = bytearray(request.encode())
        for position, value in changes:
            data[position % len(data)] = value
        # The length stays true, or the broker would rightly wait for more bytes.
        data[:4] = struct.pack(">i", len(data) - 4)
        await feed_safely(lab, bytes(data))
        assert (await lab.connect().send(topic="BenchmarkTest")).code == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=200))
async def test_random_bytes_bring_nothing_down(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    async with broker_lab(tmp_path_factory.mktemp("fuzz")) as lab:
        try:
            await feed_safely(lab, data)
        except ProtocolError:
            pytest.fail("an error of the peer reached the loop")
        assert (await lab.connect().send()).code == 0
