"""A slave's store: raw log bytes in, queues built from them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.store.log.results import GetStatus, ServiceNotAvailable
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import SCHEDULE_TOPIC
from failback.protocol.errors import StoreError
from tests.support.common.counts import examples
from tests.support.common.polling import until
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    open_store,
    put,
    put_all,
)
from tests.unit.store.test_late_entries import Running

MASTER, SLAVE = Path("/m"), Path("/s")


def open_slave(files: CrashingFiles | None = None) -> MessageStore:
    return open_store(SLAVE, files or CrashingFiles(), broker_role="SLAVE")


def replicate(master: MessageStore, slave: MessageStore, chunk_bytes: int = 1 << 20) -> None:
    """Copy what the slave does not have, as the HA service cuts it."""
    position = slave.max_physical_offset
    while position < master.max_physical_offset:
        frame = master.read_raw(position, chunk_bytes)
        slave.append_raw(position, frame)
        position += len(frame)


def busy_master(count: int = 30) -> MessageStore:
    store = open_store(MASTER, CrashingFiles(), Clock(10))
    put_all(store, *[bytes([n]) * n * 9 for n in range(count)], tag="A")
    put_all(store, b"one", b"two", queue_id=3, topic="Other")
    return store


@settings(max_examples=examples(40), deadline=None)
@given(chunk_bytes=st.integers(10, 1500), restart_after=st.integers(0, 6000), orderly=st.booleans())
def test_a_slave_holds_the_same_log_and_queues_however_frames_cut_it(
    chunk_bytes: int, restart_after: int, orderly: bool
) -> None:
    master, files = busy_master(), CrashingFiles()
    slave, position, restarted = open_slave(files), 0, False
    while position < master.max_physical_offset:
        frame = master.read_raw(position, chunk_bytes)
        slave.append_raw(position, frame)
        position += len(frame)
        assert slave.max_physical_offset == position
        if position > restart_after and not restarted:
            restarted = True
            slave.close() if orderly else kill(slave)
            slave = open_slave(files)
            # A record that was cut is asked for again; what was whole is kept.
            assert position - 1024 < slave.max_physical_offset <= position
            position = slave.max_physical_offset
    assert log_messages(slave) == log_messages(master)
    assert_queues_agree_with_log(slave)
    assert slave.dispatch_behind_bytes() == 0
    for topic, queue_id in (("TopicTest", 0), ("Other", 3)):
        ours, theirs = (store.get_message("g", topic, queue_id, 0, 1) for store in (master, slave))
        assert ours == theirs


def test_an_incomplete_record_waits_for_its_rest() -> None:
    master, slave = busy_master(), open_slave()
    end_of_first = 91 + len("TopicTest") + len("TAGS\x01A")
    for position in range(0, 2 * end_of_first, 2):
        slave.append_raw(position, master.read_raw(position, 2))
        assert slave.dispatch_until_stuck() is None
        whole = int(position + 2 >= end_of_first)
        assert slave.max_queue_offset("TopicTest", 0) == whole
        assert slave.dispatch_behind_bytes() == position + 2 - whole * end_of_first


def test_an_empty_slave_begins_with_the_file_it_is_given() -> None:
    master, slave = busy_master(), open_slave()
    start = master.max_physical_offset - master.max_physical_offset % 1024
    slave.append_raw(start, master.read_raw(start, 1024))
    assert slave.min_physical_offset == start
    assert slave.max_physical_offset == master.max_physical_offset
    first = slave.min_queue_offset("TopicTest", 0)
    assert 0 < first < slave.max_queue_offset("TopicTest", 0) == 30
    result = slave.get_message("g", "TopicTest", 0, first - 1, 1)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, first - 1)
    assert_queues_agree_with_log(slave)


@pytest.mark.parametrize("offset", [1, 100, 1023])
def test_an_empty_slave_does_not_begin_inside_a_file(offset: int) -> None:
    slave = open_slave()
    with pytest.raises(StoreError, match="inside a file"):
        slave.append_raw(offset, b"x")
    assert slave.max_physical_offset == 0


@pytest.mark.parametrize("offset", [0, 149, 151, 1024])
def test_bytes_that_do_not_continue_the_log_are_refused(offset: int) -> None:
    master, slave = busy_master(), open_slave()
    slave.append_raw(0, master.read_raw(0, 150))
    with pytest.raises(StoreError, match="do not continue"):
        slave.append_raw(offset, b"x")
    assert slave.max_physical_offset == 150


def test_dispatch_stops_where_the_log_makes_no_sense_while_bytes_are_still_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A master that lost its tail sends other bytes than the ones that would continue it."""
    master, slave = busy_master(), open_slave()
    slave.append_raw(0, master.read_raw(0, 320))
    held = slave.max_queue_offset("TopicTest", 0)
    assert slave.dispatch_behind_bytes() > 0
    with caplog.at_level(logging.ERROR):
        for _ in range(10):
            slave.append_raw(slave.max_physical_offset, b"\xee" * 60)
    assert slave.max_physical_offset == 920
    assert slave.max_queue_offset("TopicTest", 0) == held
    stuck_at = slave.dispatch_until_stuck()
    assert stuck_at is not None
    assert len([r for r in caplog.records if f"physical_offset={stuck_at}" in r.message]) == 1
    assert slave.dispatch_behind_bytes() == 920 - stuck_at


def test_a_record_whose_parts_do_not_add_up_is_skipped() -> None:
    master, slave = busy_master(), open_slave()
    data = bytearray(master.read_raw(0, 1024))
    data[87] += 1  # the body's length of the first record
    slave.append_raw(0, bytes(data))
    assert slave.dispatch_until_stuck() is None
    assert slave.min_queue_offset("TopicTest", 0) == 1


def test_a_topic_that_can_t_be_a_directory_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    master = busy_master(2)
    data = bytes(master.read_raw(0, 1024)).replace(b"TopicTest", b"../../bad")
    slave = open_slave()
    slave.append_raw(0, data)
    assert list(slave.queues()) == [("Other", 3)]
    assert "not dispatched" in caplog.text


def test_an_entry_that_would_leave_a_gap_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    master = open_store(MASTER, CrashingFiles())
    put_all(master, b"a", b"b", b"c")
    data = bytearray(master.read_raw(0, 1024))
    data[100 + 1 + 27] = 9  # the second record's queue offset
    slave = open_slave()
    slave.append_raw(0, bytes(data))
    assert slave.max_queue_offset("TopicTest", 0) == 1
    assert "expects queue_offset=1" in caplog.text
    assert slave._queues.find_or_create(b"TopicTest", 0).misplaced_count == 2


@pytest.mark.parametrize("given", [-1, -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("first", [True, False])
def test_an_offset_that_no_queue_has_makes_no_file(given: int, first: bool) -> None:
    master, files = open_store(MASTER, CrashingFiles()), CrashingFiles()
    put_all(master, b"a", b"b")
    data = bytearray(master.read_raw(0, 1024))
    at = 20 if first else 101 + 20
    data[at : at + 8] = given.to_bytes(8, "big", signed=True)
    slave = open_slave(files)
    slave.append_raw(0, bytes(data))
    assert slave._queues.find_or_create(b"TopicTest", 0).misplaced_count == 1
    slave.close()
    again = open_slave(files)
    assert again.max_queue_offset("TopicTest", 0) == (2 if first else 1)
    assert again.dispatch_behind_bytes() == 0


def test_a_delayed_message_of_an_impossible_time_is_due_at_the_last_one() -> None:
    master = open_store(MASTER, CrashingFiles())
    put_all(master, b"a", topic=SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013")
    data = bytearray(master.read_raw(0, 1024))
    data[56:64] = b"\x7f" + b"\xff" * 7  # when it was stored
    slave = open_slave()
    slave.append_raw(0, bytes(data))
    assert [code for *_, code in slave.entries(SCHEDULE_TOPIC, 2, 0, 1)] == [(1 << 63) - 1]


async def test_an_error_of_dispatch_is_told_once_and_copying_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever our own mistake may be: here it hides in the file that a queue begins with."""
    master, files = open_store(MASTER, CrashingFiles()), CrashingFiles()
    put_all(master, b"a", b"b", b"c")
    data = bytearray(master.read_raw(0, 1024))
    data[20:28] = (5).to_bytes(8, "big")

    def mistaken(change: Change) -> None:
        if change.kind == "create" and "consumequeue" in str(change.path):
            raise RuntimeError("our mistake")

    files.fail = mistaken
    told = "dispatch failed behind physical_offset=0"
    async with Running(open_slave(files)) as slave:
        slave.append_raw(0, bytes(data[:150]))
        await until(lambda: told in caplog.text, "the report")
        slave.append_raw(150, bytes(data[150:]))
        assert slave.dispatch_until_stuck() == 0
    assert (slave.max_physical_offset, slave.dispatch_behind_bytes()) == (303, 303)
    assert caplog.text.count(told) == caplog.text.count("RuntimeError: our mistake") == 1


def test_a_slave_wakes_nobody_but_its_own_followers() -> None:
    master, slave = busy_master(), open_slave()
    arrived, grown = [], []
    slave.on_arrive = lambda *told: arrived.append(told)
    slave.add_append_listener(lambda: grown.append(slave.max_physical_offset))
    slave.append_raw(0, master.read_raw(0, 500))
    assert (arrived, grown) == ([], [500])


def test_a_slave_that_becomes_master_continues_its_queues() -> None:
    master, files = busy_master(), CrashingFiles()
    replicate(master, open_slave(files))
    promoted = open_store(SLAVE, files, Clock(1))
    assert put(promoted).queue_offset == 30
    assert put(promoted, topic="Other", queue_id=3).queue_offset == 2
    promoted.commit_pending()
    assert log_messages(promoted)[-1].store_timestamp == 10
    assert_queues_agree_with_log(promoted)


def test_a_slave_whose_disk_is_full_takes_no_more() -> None:
    master, files = busy_master(), CrashingFiles()
    slave = open_slave(files)
    slave.append_raw(0, master.read_raw(0, 1024))

    def full(change: Change) -> None:
        if change.kind == "create":
            raise OSError(28, "No space left on device")

    files.fail = full
    for _ in range(2):
        with pytest.raises(ServiceNotAvailable, match="no space left"):
            slave.append_raw(1024, master.read_raw(1024, 100))
        slave.look_at_disk()
    assert slave.max_physical_offset == 1024
    files.fail = lambda change: None
    slave.look_at_disk()
    slave.append_raw(1024, master.read_raw(1024, 100))
    assert slave.max_physical_offset == 1124
