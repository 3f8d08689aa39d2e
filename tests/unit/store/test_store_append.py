"""Appending: offsets, limits, rolling, batches, and one write per commit."""

from __future__ import annotations

import errno
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.store.log.commit_log import Placement, place_record
from failback.broker.store.log.results import (
    AppendedBatch,
    MessageIllegal,
    ServiceNotAvailable,
    WriteFailed,
)
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import ResponseCode
from failback.protocol.message import (
    BatchElement,
    decode_properties,
    decode_record,
    pack_host,
    tags_code,
)
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.store_kit import (
    BORN_HOST,
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    open_store,
    put,
    put_all,
    queue_messages,
)

ROOT = Path("/s")
FIXED = 91 + len("TopicTest")  # what a record has beside its body and its properties


def put_batch(store: MessageStore, *elements: BatchElement, batch: bytes = b"") -> AppendedBatch:
    return store.append_batch(
        topic=b"TopicTest",
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=BORN_HOST,
        reconsume_times=0,
        elements=elements,
        batch_properties=batch,
    )


# --- offsets and visibility -----------------------------------------------------------------


def test_queue_offsets_count_per_queue_and_records_lie_side_by_side() -> None:
    store = open_store(ROOT, CrashingFiles(), Clock(5))
    assert put(store, b"a", queue_id=0) == (0, 0, FIXED + 1, 5)
    assert put(store, b"bb", queue_id=1) == (FIXED + 1, 0, 2 * FIXED + 3, 5)
    assert put(store, b"c", queue_id=0) == (2 * FIXED + 3, 1, 3 * FIXED + 4, 5)


def test_nothing_is_readable_before_the_commit() -> None:
    store = open_store(ROOT, CrashingFiles())
    put(store, b"a")
    assert (store.max_physical_offset, store.max_queue_offset("TopicTest", 0)) == (0, 0)
    assert len(store.read_raw(0, 100)) == 0
    store.commit_pending()
    assert [message.body for message in queue_messages(store, "TopicTest", 0)] == [b"a"]
    assert store.max_physical_offset == FIXED + 1


def test_every_field_of_a_record_is_kept() -> None:
    store = open_store(ROOT, CrashingFiles(), Clock(77))
    put(
        store,
        b"body",
        queue_id=2,
        properties=b"KEYS\x01k\x02TAGS\x01t",
        flag=-3,
        sys_flag=0x301,
        born_timestamp=66,
        reconsume_times=4,
        prepared_transaction_offset=99,
    )
    store.commit_pending()
    view = store.read_raw(0, 1000)
    message, _ = decode_record(bytes(view), decompress=False)
    assert (message.topic, message.queue_id, message.flag) == ("TopicTest", 2, -3)
    assert (message.sys_flag, message.reconsume_times) == (0x301, 4)
    assert (message.born_timestamp, message.store_timestamp) == (66, 77)
    assert message.prepared_transaction_offset == 99
    assert message.properties == {"KEYS": "k", "TAGS": "t"}
    assert message.born_host == ("192.168.1.10", 50000)
    assert message.store_host == ("192.168.1.20", 10911)


@pytest.mark.parametrize("born", ["10.0.0.1", "fe80::1"])
@pytest.mark.parametrize("own", ["10.0.0.2", "fe80::2"])
def test_ipv6_hosts_are_marked_in_the_record(born: str, own: str) -> None:
    store = open_store(ROOT, CrashingFiles())
    store.config.store_host = pack_host(own, 10911)
    # The client's bits say nothing: only the addresses the broker sees count.
    put(store, b"x", born_host=pack_host(born, 1), sys_flag=0x30, tag="T")
    store.commit_pending()
    (message,) = queue_messages(store, "TopicTest", 0)
    assert (message.born_host, message.store_host) == ((born, 1), (own, 10911))
    assert store.store_time_of("TopicTest", 0, 0) == message.store_timestamp
    assert_queues_agree_with_log(store)


def test_store_timestamps_never_decrease_even_over_a_restart() -> None:
    files, clock = CrashingFiles(), Clock(1000)
    store = open_store(ROOT, files, clock)
    put_all(store, b"a")
    clock.now = 400
    put_all(store, b"b")
    kill(store)
    store = open_store(ROOT, files, clock)
    put_all(store, b"c")
    assert [message.store_timestamp for message in log_messages(store)] == [1000] * 3


def test_prepared_and_rolled_back_records_take_no_queue_offset() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, b"plain")
    assert put(store, b"prepared", sys_flag=4).queue_offset == 0
    assert put(store, b"rolled back", sys_flag=12).queue_offset == 0
    assert put(store, b"committed", sys_flag=8).queue_offset == 1
    store.commit_pending()
    bodies = [message.body for message in queue_messages(store, "TopicTest", 0)]
    assert bodies == [b"plain", b"committed"]


def test_a_delayed_record_s_entry_says_when_to_deliver_it() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, Clock(1_000_000))
    for level in (b"3", b"99", b"no"):
        put(store, topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01" + level + b"\x02TAGS\x01t")
    store.commit_pending()
    entries = files.content[ROOT / "consumequeue/SCHEDULE_TOPIC_XXXX/0" / f"{0:020d}"]
    codes = [int.from_bytes(entries[at + 12 : at + 20], "big") for at in (0, 20, 40)]
    assert codes == [1_010_000, 1_000_000 + 7_200_000, tags_code("t")]


# --- writes ---------------------------------------------------------------------------------


def test_sixty_four_records_are_one_write_to_the_log_and_one_per_queue() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, mapped_file_bytes=1 << 20, consume_queue_file_bytes=20_000)
    for number in range(64):
        put(store, bytes(100), queue_id=number % 4)
    assert files.writes("commitlog") == []
    store.commit_pending()
    assert len(files.writes("commitlog")) == 1
    assert len(files.writes("consumequeue")) == 4


def test_a_run_over_a_file_s_end_is_one_write_per_file() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    for _ in range(7):
        put(store, bytes(300))
    store.commit_pending()
    writes = files.writes("commitlog")
    assert [(write.path.name, write.position) for write in writes] == [
        (f"{start:020d}", 0) for start in (0, 1024, 2048, 3072)
    ]
    assert [len(write.data) for write in writes] == [808, 808, 808, 400]
    assert_queues_agree_with_log(store)


def test_entries_roll_over_to_the_next_queue_file() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    for _ in range(25):
        put(store, b"x")
    store.commit_pending()
    assert files.names(ROOT / "consumequeue/TopicTest/0") == [f"{at:020d}" for at in (0, 200, 400)]
    assert_queues_agree_with_log(store)


def test_a_commit_without_records_writes_nothing() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    steps = len(files.journal)
    store.commit_pending()
    assert len(files.journal) == steps


@given(
    tail=st.integers(0, 5000), sizes=st.lists(st.integers(1, 1016), max_size=30), file=st.just(1024)
)
def test_no_record_spans_two_files_and_each_file_keeps_room_for_the_blank_record(
    tail: int, sizes: list[int], file: int
) -> None:
    for size in sizes:
        place = place_record(tail, size, file)
        assert place.physical_offset == tail + place.blank_bytes
        start, end = place.physical_offset, place.physical_offset + size
        assert start // file == (end + 8 - 1) // file
        assert place.blank_bytes == 0 or tail % file + size + 8 > file
        tail = end


def test_a_record_that_fills_a_file_to_the_last_byte_but_eight_fits() -> None:
    assert place_record(0, 1016, 1024) == Placement(0)
    assert place_record(1, 1016, 1024) == Placement(1024, 1023)
    with pytest.raises(MessageIllegal):
        place_record(0, 1017, 1024)


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"body": bytes(501)},
        {"properties": bytes(32768)},
        {"topic": "t" * 128},
        {"topic": ""},
        {"topic": "../escape"},
        {"topic": ".."},
        {"queue_id": -1},
        {"flag": 1 << 31},
        {"born_host": b"short"},
        {"body": bytes(400), "topic": "t" * 127, "properties": bytes(500)},
    ],
    ids=str,
)
def test_a_message_above_a_limit_is_refused_and_leaves_nothing(bad: dict[str, object]) -> None:
    store = open_store(ROOT, CrashingFiles(), max_message_bytes=500)
    put(store, b"before")
    with pytest.raises(MessageIllegal) as refused:
        put(store, **bad)  # type: ignore[arg-type]
    assert refused.value.code is ResponseCode.MESSAGE_ILLEGAL
    put(store, b"after")
    store.commit_pending()
    assert [message.body for message in log_messages(store)] == [b"before", b"after"]
    assert_queues_agree_with_log(store)


def test_the_body_limit_can_change_while_running() -> None:
    store = open_store(ROOT, CrashingFiles(), max_message_bytes=10)
    store.config.max_message_bytes = 20
    put_all(store, bytes(20))
    store.config.max_message_bytes = 19
    with pytest.raises(MessageIllegal):
        put(store, bytes(20))


def test_a_slave_and_a_store_that_is_not_open_take_nothing() -> None:
    store = open_store(ROOT, CrashingFiles(), broker_role="SLAVE")
    with pytest.raises(ServiceNotAvailable, match="slave"):
        put(store)
    with pytest.raises(ServiceNotAvailable, match="slave"):
        put_batch(store, BatchElement(0, b"x", b""))
    store.close()
    store.config.broker_role = "ASYNC_MASTER"
    with pytest.raises(ServiceNotAvailable, match="closed"):
        put(store)
    with pytest.raises(ServiceNotAvailable, match="closed"):
        store.get_message("g", "TopicTest", 0, 0, 1)
    assert list(store.queues()) == []


# --- batches --------------------------------------------------------------------------------


def test_a_batch_s_messages_are_neighbours_with_the_batch_s_properties() -> None:
    store = open_store(ROOT, CrashingFiles(), Clock(9))
    put_all(store, b"first")
    appended = put_batch(
        store,
        BatchElement(1, b"one", b"TAGS\x01TagA"),
        BatchElement(2, b"two", b"TAGS\x01TagB\x02"),
        BatchElement(3, b"three", b""),
        batch=b"CLUSTER\x01c\x02WAIT\x01true",
    )
    store.commit_pending()
    assert appended.queue_offset == 1
    stored = queue_messages(store, "TopicTest", 0)[1:]
    assert [message.queue_offset for message in stored] == [1, 2, 3]
    assert [message.physical_offset for message in stored] == appended.physical_offsets
    ends = [message.physical_offset + message.store_size for message in stored]
    assert ends == [*appended.physical_offsets[1:], appended.end_offset]
    assert {message.store_timestamp for message in stored} == {9}
    assert [(message.flag, message.body) for message in stored] == [
        (1, b"one"),
        (2, b"two"),
        (3, b"three"),
    ]
    assert [message.tags for message in stored] == ["TagA", "TagB", None]
    assert {message.properties["CLUSTER"] for message in stored} == {"c"}
    wanted = frozenset([tags_code("TagB")])
    assert store.get_message("g", "TopicTest", 0, 0, 32, wanted).message_count == 1


@given(
    st.lists(
        st.builds(
            BatchElement,
            st.integers(-(2**31), 2**31 - 1),
            st.binary(max_size=40),
            st.sampled_from([b"", b"TAGS\x01a", b"KEYS\x01k\x02TAGS\x01b\x02", b"WAIT\x01true"]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([b"", b"CLUSTER\x01bench"]),
    st.sampled_from([BORN_HOST, pack_host("::1", 5)]),
)
def test_a_batch_is_stored_as_its_messages_would_be_one_by_one(
    elements: list[BatchElement], batch: bytes, born_host: bytes
) -> None:
    shared: dict[str, Any] = {"queue_id": 3, "born_timestamp": 7, "reconsume_times": 2}
    shared["born_host"] = born_host
    together, singly = open_store(ROOT, CrashingFiles()), open_store(ROOT, CrashingFiles())
    run = together.append_batch(
        topic=b"TopicTest", sys_flag=0, elements=elements, batch_properties=batch, **shared
    )
    alone = []
    for element in elements:
        own = element.properties
        joint = b"\x02" if own and batch and not own.endswith(b"\x02") else b""
        properties = own + joint + batch
        found = decode_properties(properties).get("TAGS", "")
        fields = {**shared, "flag": element.flag}
        alone.append(put(singly, element.body, tag=found, properties=properties, **fields))
    for store in (together, singly):
        store.commit_pending()
        assert_queues_agree_with_log(store)
    assert run == AppendedBatch(
        [one.physical_offset for one in alone],
        alone[0].queue_offset,
        alone[-1].end_offset,
        alone[-1].store_timestamp,
    )
    end = run.end_offset
    assert bytes(together.read_raw(0, end)) == bytes(singly.read_raw(0, end))


def test_a_batch_that_opens_a_file_and_a_run_has_the_time_of_now() -> None:
    clock = Clock(100)
    store = open_store(ROOT, CrashingFiles(), clock)
    put_all(store, bytes(800))
    clock.now = 200
    run = put_batch(store, BatchElement(0, bytes(300), b""))
    assert run.physical_offsets == [1024]
    assert run.store_timestamp == 200


def test_a_batch_that_does_not_fit_goes_whole_into_the_next_file() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, bytes(500))
    appended = put_batch(store, *[BatchElement(0, bytes(60), b"")] * 3)
    store.commit_pending()
    assert appended.physical_offsets == [1024, 1184, 1344]
    assert_queues_agree_with_log(store)


@pytest.mark.parametrize(
    "elements",
    [
        [BatchElement(0, bytes(300), b"")] * 2,  # together above the limit for bodies
        [BatchElement(0, b"", b"")] * 12,  # together above a file
        [BatchElement(0, b"fine", b""), BatchElement(1 << 31, b"flag", b"")],
        [BatchElement(0, b"fine", b""), BatchElement(0, b"", bytes(32768))],
    ],
)
def test_of_an_illegal_batch_nothing_is_stored(elements: list[BatchElement]) -> None:
    store = open_store(ROOT, CrashingFiles(), max_message_bytes=500)
    put(store, b"before")
    with pytest.raises(MessageIllegal):
        put_batch(store, *elements)
    store.commit_pending()
    assert [message.body for message in log_messages(store)] == [b"before"]
    assert put(store).queue_offset == 1


def test_properties_that_a_batch_shares_are_not_joined_when_no_file_could_hold_them() -> None:
    store = open_store(ROOT, CrashingFiles(), mapped_file_bytes=1 << 20)
    elements = [BatchElement(0, b"", b"")] * 20_000
    tracemalloc.start()
    with pytest.raises(MessageIllegal, match="properties of 600000000 bytes"):
        put_batch(store, *elements, batch=bytes(30_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert put(store).queue_offset == 0


def test_a_batch_in_a_transaction_is_refused() -> None:
    store = open_store(ROOT, CrashingFiles())
    with pytest.raises(MessageIllegal):
        store.append_batch(
            topic=b"TopicTest",
            queue_id=0,
            sys_flag=4,
            born_timestamp=1,
            born_host=BORN_HOST,
            reconsume_times=0,
            elements=[BatchElement(0, b"x", b"")],
            batch_properties=b"",
        )


# --- who is told ----------------------------------------------------------------------------


def test_arrivals_are_told_once_per_queue_and_tag_after_they_are_readable() -> None:
    store = open_store(ROOT, CrashingFiles())
    told = []

    def arrive(topic: str, queue_id: int, max_offset: int, code: int) -> None:
        assert store.max_queue_offset(topic, queue_id) == max_offset
        told.append((queue_id, max_offset, code))

    store.on_arrive = arrive
    put(store, queue_id=0, tag="A")
    put(store, queue_id=0, tag="A")
    put(store, queue_id=0, tag="B")
    put(store, queue_id=1)
    assert told == []
    store.commit_pending()
    assert sorted(told) == [(0, 3, tags_code("A")), (0, 3, tags_code("B")), (1, 1, 0)]


def test_append_listeners_are_told_once_per_commit() -> None:
    store = open_store(ROOT, CrashingFiles())
    seen: list[int] = []
    store.add_append_listener(lambda: seen.append(store.max_physical_offset))
    put(store, b"a")
    put(store, b"b")
    store.commit_pending()
    store.commit_pending()
    assert seen == [2 * (FIXED + 1)]


# --- a failing disk -------------------------------------------------------------------------


def broken_disk(part: str) -> Callable[[Change], None]:
    def fail(change: Change) -> None:
        if change.kind in ("write", "create") and part in str(change.path):
            raise OSError(errno.EIO, "Input/output error", str(change.path))

    return fail


def test_a_write_that_fails_is_not_readable_and_stops_the_store() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_all(store, b"kept")
    files.fail = broken_disk("commitlog")
    put(store, b"lost")
    with pytest.raises(WriteFailed, match=r"commitlog.*could not read or write"):
        store.commit_pending()
    files.fail = lambda change: None
    with pytest.raises(ServiceNotAvailable, match=r"Input/output error.*commitlog"):
        put(store)
    assert not store.is_writable
    assert [message.body for message in queue_messages(store, "TopicTest", 0)] == [b"kept"]
    store.close()
    assert ROOT / "abort" in files.content
    again = open_store(ROOT, files)
    assert [message.body for message in queue_messages(again, "TopicTest", 0)] == [b"kept"]
    assert put(again).queue_offset == 1


def test_a_queue_that_can_t_be_written_is_made_good_at_the_next_start() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    files.fail = broken_disk("consumequeue")
    put(store, b"in the log")
    store.commit_pending()
    assert not store.is_writable
    files.fail = lambda change: None
    store.close()
    again = open_store(ROOT, files)
    assert [message.body for message in queue_messages(again, "TopicTest", 0)] == [b"in the log"]
