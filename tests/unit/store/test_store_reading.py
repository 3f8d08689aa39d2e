"""What a pull gets: statuses, limits, filters, and offsets by time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.store.log.results import GetResult, GetStatus
from failback.broker.store.message_store import MessageStore
from failback.protocol.message import decode_records, tags_code
from tests.support.common.counts import examples
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import Clock, open_store, put, put_all

ROOT = Path("/s")
BIG: dict[str, Any] = {"mapped_file_bytes": 1 << 22, "consume_queue_file_bytes": 20 * 2000}
FIXED = 91 + len("TopicTest")


def get(
    store: MessageStore, offset: int, count: int = 32, tags: frozenset[int] | None = None
) -> GetResult:
    return store.get_message("group", "TopicTest", 0, offset, count, tags)


def bodies(result: GetResult) -> list[bytes]:
    return [message.body for message in decode_records(b"".join(result.chunks))]


# --- statuses -------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
@pytest.mark.parametrize("check", [False, True])
def test_the_status_table(role: str, check: bool) -> None:
    """Outside the queue: why, and where to go on; a slave leaves the offset alone by default."""
    store = open_store(ROOT, CrashingFiles())
    put_all(store, *[b"x"] * 5)
    store._queues.find_or_create(b"TopicTest", 0).min_offset = 2
    store.config.broker_role, store.config.offset_check_in_slave = role, check
    corrects = role != "SLAVE" or check
    table = [
        (0, GetStatus.OFFSET_TOO_SMALL, 2),
        (1, GetStatus.OFFSET_TOO_SMALL, 2),
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, GetStatus.OFFSET_OVERFLOW_BADLY, 5),
    ]
    for asked, status, next_offset in table:
        result = get(store, asked)
        assert (result.status, result.next_offset) == (status, next_offset if corrects else asked)
        assert (result.min_offset, result.max_offset) == (2, 5)
        assert (result.message_count, result.chunks) == (0, ())
        assert not result.suggest_pulling_from_slave
    result = get(store, 3)
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 5)


@pytest.mark.parametrize(("role", "next_offset"), [("ASYNC_MASTER", 0), ("SLAVE", 7)])
def test_a_queue_without_messages(role: str, next_offset: int) -> None:
    store = open_store(ROOT, CrashingFiles(), broker_role=role)
    result = get(store, 7)
    assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 0)
    assert list(store.queues()) == []


def test_an_entry_that_can_t_be_read_leads_to_the_next_queue_file() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, *[b"x"] * 15)
    queue = store._queues.find_or_create(b"TopicTest", 0)
    del queue.files.files[0]  # as if it had expired before the minimum was corrected
    result = get(store, 4)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 10)


def test_records_whose_file_is_gone() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, *[bytes(400)] * 15)  # two in each log file, ten in a queue file
    del store._log.files.files[0]
    result = get(store, 0)
    assert result.status is GetStatus.FOUND
    assert (result.next_offset, result.message_count) == (10, 8)
    del store._log.files.files[:4]
    result = get(store, 0)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 10)
    assert (result.message_count, result.chunks) == (0, ())


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "got"), [(1, 1), (5, 5), (32, 32), (100, 32)])
def test_at_most_so_many_messages(asked: int, got: int) -> None:
    store = open_store(ROOT, CrashingFiles(), **BIG)
    for _ in range(50):
        put(store, b"x")
    store.commit_pending()
    result = get(store, 3, asked)
    assert (result.message_count, result.next_offset) == (got, 3 + got)


def test_bytes_are_bounded_but_the_first_message_always_comes() -> None:
    store = open_store(ROOT, CrashingFiles(), **BIG)
    store.config.max_transfer_bytes_in_memory = 1000
    for size in (2000, 100, 100, 700):
        put(store, bytes(size))
    store.commit_pending()
    assert [len(body) for body in bodies(get(store, 0))] == [2000]
    assert [len(body) for body in bodies(get(store, 1))] == [100, 100]
    assert [len(body) for body in bodies(get(store, 3))] == [700]


def test_far_behind_the_log_s_end_less_is_sent_and_the_slave_suggested() -> None:
    """40 % of 10 000 bytes behind the end begins what counts as on disk."""
    store = open_store(ROOT, CrashingFiles(), **BIG, physical_memory_bytes=10_000)
    for _ in range(100):
        put(store, b"")  # 100 bytes each
    store.commit_pending()
    assert store.is_in_memory(6000)
    assert not store.is_in_memory(5999)
    assert store.is_on_disk("TopicTest", 0, 59)
    assert not store.is_on_disk("TopicTest", 0, 60)
    assert not store.is_on_disk("TopicTest", 0, 100)
    far, near = get(store, 10), get(store, 60)
    assert (far.message_count, far.suggest_pulling_from_slave) == (8, True)
    assert (near.message_count, near.suggest_pulling_from_slave) == (32, False)
    # The record that ends the batch is looked at too: it is the one that decides.
    edge = get(store, 52, 8)
    assert (edge.message_count, edge.suggest_pulling_from_slave) == (8, False)
    store.config.max_transfer_bytes_on_disk = 350
    assert get(store, 10).message_count == 3
    store.config.access_message_in_memory_max_ratio = 100
    assert get(store, 10).message_count == 32


def test_a_pull_ends_with_the_queue_file() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, *[b"x"] * 15)
    result = get(store, 7)
    assert (result.message_count, result.next_offset) == (3, 10)


def test_only_so_many_entries_are_examined() -> None:
    store = open_store(ROOT, CrashingFiles(), **BIG)
    for _ in range(1000):
        put(store, b"", tag="A")
    store.commit_pending()
    wanted = frozenset([tags_code("B")])
    result = get(store, 5, 32, wanted)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 805)
    assert get(store, 5, 900, wanted).next_offset == 905


# --- filter and chunks ----------------------------------------------------------------------


def test_a_tag_filter_lets_its_tags_through() -> None:
    store = open_store(ROOT, CrashingFiles(), **BIG)
    for number in range(9):
        put(store, bytes([number]), tag="ABC"[number % 3])
    store.commit_pending()
    result = get(store, 0, 32, frozenset([tags_code("A"), tags_code("C")]))
    assert bodies(result) == [bytes([number]) for number in (0, 2, 3, 5, 6, 8)]
    assert result.next_offset == 9
    assert (result.status, get(store, 1, 1, frozenset([tags_code("A")])).next_offset) == (0, 4)


def test_a_filter_sees_the_low_32_bits_of_a_code() -> None:
    store = open_store(ROOT, CrashingFiles(), Clock(1 << 33))
    put(store, topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x011")
    store.commit_pending()
    codes = frozenset([1000])  # the delivery time less 2^33
    result = store.get_message("g", "SCHEDULE_TOPIC_XXXX", 0, 0, 1, codes)
    assert result.message_count == 1


def test_adjacent_records_come_as_one_piece() -> None:
    store = open_store(ROOT, CrashingFiles(), **BIG)
    for number in range(10):
        put(store, bytes([number]), queue_id=0)
    put(store, b"other", queue_id=1)
    put(store, b"last", queue_id=0)
    store.commit_pending()
    result = get(store, 0)
    assert [len(chunk) for chunk in result.chunks] == [10 * (FIXED + 1), FIXED + 4]
    assert result.bytes == sum(map(len, result.chunks))
    assert bodies(result) == [bytes([number]) for number in range(10)] + [b"last"]


def test_a_piece_ends_with_its_log_file() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, *[bytes(400)] * 4)
    assert [len(chunk) for chunk in get(store, 0).chunks] == [1000, 1000]


def test_chunks_stay_valid_when_their_file_is_unmapped(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_mapped_log_files=1)
    put_all(store, *[bytes([n]) * 400 for n in range(10)])
    result = get(store, 0)
    store.close()
    assert bodies(result) == [bytes([n]) * 400 for n in range(10)]


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 500)), max_size=40),
    offset=st.integers(0, 45),
    count=st.integers(1, 40),
)
def test_any_pull_gets_a_run_of_the_queue(
    sizes: list[tuple[int, int]], offset: int, count: int
) -> None:
    store = open_store(ROOT, CrashingFiles())
    expected = []
    for number, (queue_id, size) in enumerate(sizes):
        body = bytes([number]) * size
        put(store, body, queue_id=queue_id)
        if queue_id == 0:
            expected.append(body)
    store.commit_pending()
    result = get(store, offset, count)
    if result.status is GetStatus.FOUND:
        assert bodies(result) == expected[offset : result.next_offset]
        assert 0 < result.message_count <= count
    else:
        assert offset >= len(expected)


# --- by time --------------------------------------------------------------------------------


def store_with_times(*times: int) -> MessageStore:
    clock = Clock(0)
    store = open_store(ROOT, CrashingFiles(), clock)
    for clock.now in times:
        put_all(store, b"x")
    return store


@pytest.mark.parametrize(
    ("asked", "offset"),
    [(0, 0), (100, 0), (104, 0), (105, 0), (106, 1), (110, 1), (200, 2), (299, 2), (10**15, 12)],
)
def test_an_offset_is_found_by_the_nearest_store_time(asked: int, offset: int) -> None:
    store = store_with_times(100, 110, 200, *range(400, 1400, 100))
    assert store.search_offset("TopicTest", 0, asked) == offset


def test_of_messages_stored_in_one_millisecond_the_first_is_found() -> None:
    assert store_with_times(1, 5, 5, 5, 9).search_offset("TopicTest", 0, 5) == 1


def test_no_time_without_messages() -> None:
    store = open_store(ROOT, CrashingFiles())
    assert store.search_offset("TopicTest", 0, 5) == 0
    assert store.earliest_store_time("TopicTest", 0) == -1
    assert store.earliest_log_time() == -1
    assert store.store_time_of("TopicTest", 0, 0) == -1
    assert store.min_physical_offset == -1


def test_times_of_messages() -> None:
    store = store_with_times(100, 110)
    assert store.store_time_of("TopicTest", 0, 1) == 110
    assert store.store_time_of("TopicTest", 0, 2) == -1
    assert store.earliest_store_time("TopicTest", 0) == 100
    assert store.earliest_log_time() == 100


def test_messages_that_the_log_no_longer_has_have_no_time() -> None:
    store = store_with_times(*range(100, 5000, 100))
    del store._log.files.files[:2]
    first = store._log.min_offset // (FIXED + 1)
    found = store.search_offset("TopicTest", 0, 0)
    assert store.store_time_of("TopicTest", 0, found - 1) == -1
    assert store.store_time_of("TopicTest", 0, found) > 0
    assert found >= first


# --- raw bytes and records ------------------------------------------------------------------


def test_raw_bytes_end_with_their_file_and_with_the_log() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, bytes(700), bytes(300))
    assert len(store.read_raw(0, 1 << 20)) == 1024
    assert len(store.read_raw(1000, 100)) == 24
    assert len(store.read_raw(1024, 1 << 20)) == 400
    assert len(store.read_raw(1424, 10)) == 0
    assert len(store.read_raw(9999, 10)) == 0


def test_a_record_by_its_place() -> None:
    store = open_store(ROOT, CrashingFiles())
    first, second = put_all(store, b"one", b"two")
    record = store.record_at(second.physical_offset)
    assert record is not None
    assert decode_records(record)[0].body == b"two"
    assert store.record_at(first.physical_offset + 1) is None
    assert store.record_at(second.end_offset) is None
    assert store.record_at(-5) is None
    assert store.physical_offset_of("TopicTest", 0, 1) == second.physical_offset
    assert store.physical_offset_of("TopicTest", 0, 2) == -1


def test_a_deleted_topic_is_gone_from_memory_and_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put_all(store, *[b"x"] * 15)
    put_all(store, b"y", topic="Other")
    store.delete_topic("TopicTest")
    assert list(store.queues()) == [("Other", 0)]
    assert not (tmp_path / "consumequeue/TopicTest").exists()
    assert get(store, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert put(store).queue_offset == 0
    store.commit_pending()
    assert get(store, 0).message_count == 1
    store.close()
