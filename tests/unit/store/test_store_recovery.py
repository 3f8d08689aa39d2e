"""Starting on what is on the disk: torn tails are cut, damage is named, queues are rebuilt."""

from __future__ import annotations

import logging
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.store.log.files import OsFiles
from failback.broker.store.log.mapped_file import MappedFileQueue, OpenFiles
from failback.broker.store.message_store import MessageStore
from failback.broker.store.queues.consume_queue import ConsumeQueue
from failback.protocol.errors import CorruptStore, StoreError
from tests.support.common.counts import examples
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    make_store,
    open_store,
    put,
    put_all,
    queue_messages,
)

FIRST = f"{0:020d}"
ENTRY = struct.Struct(">qiq")


def filled(root: Path, *, stop: Callable[[MessageStore], None], count: int = 25) -> list[bytes]:
    """Leave a store with ``count`` messages in two queues, 200 bytes each, five in a file."""
    clock = Clock()
    store = open_store(root, clock=clock)
    bodies = [bytes([number]) * 100 for number in range(count)]
    for number, body in enumerate(bodies):
        clock.now += 1000
        put_all(store, body, queue_id=number % 2)
    stop(store)
    return bodies


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def log_file(root: Path, number: int = 0) -> Path:
    return root / "commitlog" / f"{number * 1024:020d}"


def stored(store: MessageStore) -> list[bytes]:
    return [message.body for message in log_messages(store)]


# --- the ways of stopping -------------------------------------------------------------------


@pytest.mark.parametrize(("stop", "clean"), [(MessageStore.close, True), (kill, False)])
def test_everything_is_there_after_a_stop(
    tmp_path: Path, stop: Callable[[MessageStore], None], clean: bool
) -> None:
    bodies = filled(tmp_path, stop=stop)
    store = make_store(tmp_path)
    report = store.load()
    assert (report.clean, report.truncated, report.removed_files) == (clean, None, [])
    assert stored(store) == bodies
    assert_queues_agree_with_log(store)
    assert put(store, queue_id=1).queue_offset == 12
    store.close()


def test_a_clean_start_reads_the_last_three_files_only(tmp_path: Path) -> None:
    filled(tmp_path, stop=MessageStore.close)
    report = make_store(tmp_path).load()
    assert (report.scanned_from, report.records) == (2 * 1024, 15)


def test_an_unclean_start_begins_before_the_checkpoint(tmp_path: Path) -> None:
    """The files begin 1, 6, 11, 16 and 21 s after the start; the checkpoint says 14."""
    filled(tmp_path, stop=kill)
    checkpoint = 1_700_000_014_000
    for times, scanned_from in [
        ((checkpoint, checkpoint + 9000), 2 * 1024),
        ((checkpoint + 9000, checkpoint), 2 * 1024),
        ((checkpoint - 1, checkpoint), 1024),
        ((checkpoint, 0), 0),
    ]:
        overwrite(tmp_path / "checkpoint", 0, struct.pack(">qq", *times))
        store = make_store(tmp_path)
        assert store.load().scanned_from == scanned_from
        kill(store)


def test_the_running_store_is_marked(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert (tmp_path / "abort").exists()
    store.close()
    store.close()
    assert not (tmp_path / "abort").exists()


# --- torn tails -----------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [MessageStore.close, kill])
@pytest.mark.parametrize("torn", [4, 7, 50, 87, 88, 150, 199])
def test_a_torn_tail_is_cut_off_and_named(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    stop: Callable[[MessageStore], None],
    torn: int,
) -> None:
    bodies = filled(tmp_path, stop=stop, count=8)
    file, position = log_file(tmp_path, 1), 3 * 200
    record = log_file(tmp_path, 1).read_bytes()[400:600]
    overwrite(file, position, record[:torn])

    store = make_store(tmp_path)
    with caplog.at_level(logging.WARNING):
        report = store.load()
    assert report.truncated == (file, position)
    assert report.end_offset == 1024 + position
    assert f"file={file} position={position} physical_offset={1024 + position}" in caplog.text
    assert stored(store) == bodies
    assert file.read_bytes()[position:] == bytes(1024 - position)
    put_all(store, b"next", queue_id=0)
    assert stored(store) == [*bodies, b"next"]
    assert_queues_agree_with_log(store)
    store.close()


@pytest.mark.parametrize("missing", [1, 5, 9])
def test_a_record_torn_inside_its_properties_is_cut_off(missing: int) -> None:
    """No CRC covers them, and the lengths are all there."""
    files = CrashingFiles()
    store = open_store(Path("/s"), files)
    put_all(store, b"whole", b"torn", properties=b"CLUSTER\x01default")
    step = files.journal.index(files.writes("commitlog")[1])
    size = len(files.journal[step].data)
    store = make_store(Path("/s"), files.after_kill(step, size - missing))
    report = store.load()
    assert stored(store) == [b"whole"]
    assert report.truncated is not None
    assert report.records == 1
    assert_queues_agree_with_log(store)


def test_a_torn_tail_at_a_file_s_begin(tmp_path: Path) -> None:
    bodies = filled(tmp_path, stop=kill, count=6)
    overwrite(log_file(tmp_path, 1), 120, bytes(80))
    store = open_store(tmp_path)
    assert stored(store) == bodies[:5]
    assert store.max_physical_offset == 1024
    assert queue_messages(store, "TopicTest", 1)[-1].body == bodies[3]
    assert_queues_agree_with_log(store)
    assert put(store).physical_offset == 1024
    store.close()


def test_what_is_cut_off_can_t_come_back() -> None:
    """A power loss kept the second record only; later the first one's place is filled again."""
    files = CrashingFiles()
    store = open_store(Path("/s"), files)
    put_all(store, bytes(100), bytes(100))
    first = files.journal.index(files.writes("commitlog")[0])
    rebooted = files.after_power_loss(len(files.journal), lambda step: step != first)
    store = open_store(Path("/s"), rebooted)
    assert stored(store) == []
    put_all(store, bytes(100))
    kill(store)
    assert stored(open_store(Path("/s"), rebooted)) == [bytes(100)]


# --- damage before the tail -----------------------------------------------------------------


@pytest.mark.parametrize("stop", [MessageStore.close, kill])
@pytest.mark.parametrize(
    ("position", "data", "why"),
    [
        (0, b"\x7f", "ends behind the data"),
        (3, b"\xc9", "lengths"),
        (4, b"\0", "no record begins here"),
        (8, b"\x01\x02", "CRC"),
        (35, b"\x99", "another place"),
        (87, b"\x65", "lengths"),
        (110, b"?", "CRC"),
        (188, b"\x0a", "lengths"),
        (0, bytes(200), "no record begins here"),
    ],
)
def test_a_bad_record_before_good_ones_stops_the_start(
    tmp_path: Path,
    stop: Callable[[MessageStore], None],
    position: int,
    data: bytes,
    why: str,
) -> None:
    filled(tmp_path, stop=stop, count=13)
    file = log_file(tmp_path, 1)
    overwrite(file, 400 + position, data)
    before = {path: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}

    with pytest.raises(CorruptStore, match=why) as error:
        open_store(tmp_path)
    assert (error.value.path, error.value.position) == (file, 400)
    assert str(file) in str(error.value)
    # Nothing was repaired, and the lock is free for whoever looks at it.
    assert {path: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()} == before
    with pytest.raises(CorruptStore):
        open_store(tmp_path)


def test_a_destroyed_blank_record_before_another_file_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, stop=kill, count=8)
    overwrite(log_file(tmp_path), 1004, bytes(4))
    with pytest.raises(CorruptStore) as error:
        open_store(tmp_path)
    assert (error.value.path, error.value.position) == (log_file(tmp_path), 1000)


def test_without_the_crc_check_only_the_layout_counts(tmp_path: Path) -> None:
    filled(tmp_path, stop=kill, count=3)
    overwrite(log_file(tmp_path), 110, b"?")
    store = open_store(tmp_path, check_crc_on_recover=False)
    assert len(stored(store)) == 3
    store.close()


@settings(max_examples=examples(60), deadline=None)
@given(at=st.integers(0, 2500), bit=st.integers(0, 7), seed=st.integers(0, 99))
def test_a_flipped_bit_before_the_last_record_is_never_taken_for_a_torn_tail(
    at: int, bit: int, seed: int
) -> None:
    """Either it does not matter to the log, or the start stops at its record."""
    files = CrashingFiles()
    store = open_store(Path("/s"), files)
    sizes = random.Random(seed).choices(range(250), k=12)
    places = [place for size in sizes for place in put_all(store, bytes(size))]
    kill(store)
    before = files.after_kill(len(files.journal))
    at = min(at, places[-1].physical_offset - 1)
    path = Path("/s/commitlog") / f"{at - at % 1024:020d}"
    before.content[path][at % 1024] ^= 1 << bit
    try:
        again = open_store(Path("/s"), before)
    except CorruptStore as error:
        damaged = int(error.path.name) + error.position
        assert damaged <= at
        assert damaged in {place.physical_offset for place in places} | {
            place.end_offset for place in places
        }
    else:
        assert len(log_messages(again)) == len(places)


def test_after_a_restart_of_the_machine_unflushed_gaps_are_a_torn_tail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The kernel may write later pages first; then a good record follows a bad place."""
    files, clock = CrashingFiles(), Clock()
    store = open_store(Path("/s"), files, clock)
    put_all(store, b"a", b"b")
    store.flush()
    store.flush_queues()
    clock.now += 1
    put_all(store, b"lost", b"kept by chance")
    log_writes = [step for step, c in enumerate(files.journal) if c in files.writes("commitlog")]
    lost = log_writes[2]
    rebooted = files.after_power_loss(len(files.journal), lambda step: step != lost)
    store = open_store(Path("/s"), rebooted)
    assert stored(store) == [b"a", b"b"]
    assert "unflushed or older records" in caplog.text
    assert_queues_agree_with_log(store)

    # The same bytes without a restart can only be damage.
    rebooted = files.after_power_loss(len(files.journal), lambda step: step != lost)
    rebooted.boot = files.boot
    with pytest.raises(CorruptStore):
        open_store(Path("/s"), rebooted)


def test_after_a_restart_of_the_machine_gaps_before_flushed_records_are_damage() -> None:
    files, clock = CrashingFiles(), Clock()
    store = open_store(Path("/s"), files, clock)
    places = put_all(store, b"a", b"b", b"c")
    clock.now += 1
    put_all(store, b"d")
    store.flush()
    store.flush_queues()
    rebooted = files.after_power_loss(len(files.journal), lambda step: True)
    at = places[1].physical_offset
    rebooted.content[Path("/s/commitlog") / FIRST][at + 4] ^= 1
    with pytest.raises(CorruptStore) as error:
        open_store(Path("/s"), rebooted)
    assert error.value.position == at


def test_a_record_as_old_as_the_last_flushed_one_proves_nothing() -> None:
    """Three records of one millisecond: the first flushed, the second lost, the third kept."""
    files = CrashingFiles()
    store = open_store(Path("/s"), files)
    put_all(store, b"flushed")
    store.flush()
    store.flush_queues()
    put_all(store, b"lost", b"kept by chance")
    lost = [step for step, c in enumerate(files.journal) if c in files.writes("commitlog")][1]
    rebooted = files.after_power_loss(len(files.journal), lambda step: step != lost)
    assert stored(open_store(Path("/s"), rebooted)) == [b"flushed"]


def test_damage_is_found_behind_bytes_that_look_like_a_record(tmp_path: Path) -> None:
    filled(tmp_path, stop=kill, count=5)
    overwrite(log_file(tmp_path), 204, b"?" * 20 + b"\xda\xa3\x20\xa7" * 30)
    with pytest.raises(CorruptStore, match="a good record follows at 400"):
        open_store(tmp_path)


def test_what_a_killed_process_left_unsynced_is_synced_by_the_next_start() -> None:
    """A power loss after that start takes nothing, though the dead process had synced nothing."""
    files, clock = CrashingFiles(), Clock()
    store = open_store(Path("/s"), files, clock)
    for number in range(25):
        clock.now += 5000
        put_all(store, bytes([number]) * 100, queue_id=number % 2)
    kill(store)
    open_store(Path("/s"), files)
    rebooted = files.after_power_loss(len(files.journal), lambda step: False)
    store = open_store(Path("/s"), rebooted)
    assert len(stored(store)) == 25
    assert_queues_agree_with_log(store)


def test_older_records_behind_the_tail_are_what_java_left_there(tmp_path: Path) -> None:
    """4.9.8 does not zero what it cuts off; the next records overwrite a part of it."""
    clock = Clock(5000)
    store = open_store(tmp_path, clock=clock)
    put_all(store, *[b"old" * 10] * 3)
    kill(store)
    old = log_file(tmp_path).read_bytes()[130:390]
    shutil.rmtree(tmp_path / "commitlog")
    shutil.rmtree(tmp_path / "consumequeue")
    clock.now = 6000
    store = open_store(tmp_path, clock=clock)
    end = put_all(store, b"new")[-1].end_offset
    store.close()
    overwrite(log_file(tmp_path), 130, old)
    store = make_store(tmp_path)
    report = store.load()
    assert stored(store) == [b"new"]
    assert report.truncated == (log_file(tmp_path), end)
    store.close()


# --- other files ----------------------------------------------------------------------------


def test_the_zero_file_that_a_killed_java_broker_leaves_is_removed(tmp_path: Path) -> None:
    bodies = filled(tmp_path, stop=kill, count=8)
    log_file(tmp_path, 2).write_bytes(bytes(1024))
    store = make_store(tmp_path)
    report = store.load()
    assert report.removed_files == [log_file(tmp_path, 2)]
    assert report.truncated is None
    assert not log_file(tmp_path, 2).exists()
    assert stored(store) == bodies
    put_all(store, bytes(900))
    assert_queues_agree_with_log(store)
    store.close()


def test_a_zero_file_behind_a_full_one_is_kept_and_used(tmp_path: Path) -> None:
    bodies = filled(tmp_path, stop=kill, count=5)
    overwrite(log_file(tmp_path), 1000, struct.pack(">iI", 24, 0xCBD43194))
    log_file(tmp_path, 1).write_bytes(bytes(1024))
    store = open_store(tmp_path)
    assert stored(store) == bodies
    assert put(store).physical_offset == 1024
    store.close()


def test_a_log_of_one_zero_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    log_file(tmp_path).write_bytes(bytes(1024))
    store = open_store(tmp_path)
    assert (store.max_physical_offset, store.min_physical_offset) == (0, 0)
    put_all(store, b"a")
    assert_queues_agree_with_log(store)
    store.close()


@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        (FIRST, 1000, "has 1000 bytes, configured are 1024"),
        (f"{2048:020d}", 1024, "is missing"),
    ],
)
def test_a_file_that_does_not_belong_into_the_log_is_named(
    tmp_path: Path, name: str, size: int, why: str
) -> None:
    filled(tmp_path, stop=MessageStore.close, count=3)
    path = tmp_path / "commitlog" / name
    path.write_bytes(bytes(size))
    with pytest.raises(StoreError, match=why) as error:
        open_store(tmp_path)
    assert str(path) in str(error.value)


def test_temporary_files_of_a_killed_start_are_removed(tmp_path: Path) -> None:
    bodies = filled(tmp_path, stop=kill, count=3)
    for directory in (".", "commitlog", "consumequeue", "consumequeue/TopicTest"):
        (tmp_path / directory / ".creating-1-1").write_bytes(bytes(10))
    store = open_store(tmp_path)
    assert stored(store) == bodies
    assert list(tmp_path.rglob(".creating*")) == []
    store.close()


def test_files_that_are_no_queue_are_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, stop=kill, count=3)
    (tmp_path / "consumequeue/TopicTest/notes").mkdir()
    (tmp_path / "consumequeue/readme").write_text("hello")
    store = open_store(tmp_path)
    assert sorted(store.queues()) == [("TopicTest", 0), ("TopicTest", 1)]
    store.close()


# --- queues ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [MessageStore.close, kill])
def test_queues_are_rebuilt_when_their_folder_is_gone(
    tmp_path: Path, stop: Callable[[MessageStore], None]
) -> None:
    bodies = filled(tmp_path, stop=stop)
    shutil.rmtree(tmp_path / "consumequeue")
    # A checkpoint that is younger than the rebuilt part would leave the rest out.
    (tmp_path / "checkpoint").unlink()
    store = open_store(tmp_path)
    assert [message.body for message in queue_messages(store, "TopicTest", 0)] == bodies[::2]
    assert_queues_agree_with_log(store)
    assert put(store, queue_id=0).queue_offset == 13
    store.close()


def test_entries_of_records_that_the_log_lost_are_dropped(tmp_path: Path) -> None:
    bodies = filled(tmp_path, stop=kill, count=24)
    for number in (3, 4):
        log_file(tmp_path, number).unlink()
    store = make_store(tmp_path)
    report = store.load()
    assert report.dropped_entries == 9
    assert stored(store) == bodies[:15]
    assert_queues_agree_with_log(store)
    queue = tmp_path / "consumequeue/TopicTest/0" / FIRST
    assert queue.read_bytes()[8 * 20 :] == bytes(40)
    store.close()


def test_entries_behind_a_hole_do_not_come_back(tmp_path: Path) -> None:
    """The page with entry 3 was lost; what stands behind it is zeroed and written again."""
    filled(tmp_path, stop=kill, count=16)
    queue = tmp_path / "consumequeue/TopicTest/0" / FIRST
    good = queue.read_bytes()
    overwrite(queue, 60, bytes(20))
    overwrite(queue, 160, ENTRY.pack(99, 99, 99))
    store = open_store(tmp_path)
    assert queue.read_bytes() == good
    assert_queues_agree_with_log(store)
    store.close()


@pytest.mark.parametrize("count", [0, 1, 204, 205, 206, 4096, 4097, 5000])
def test_a_hole_of_a_queue_file_reads_as_zeros(tmp_path: Path, count: int) -> None:
    """ZFS makes one of written zeros: the rest of an entry without a tag may lie there."""
    path, size = tmp_path / FIRST, 5000 * ENTRY.size
    entries = b"".join(ENTRY.pack(100 * number, 100, 0) for number in range(count))
    path.write_bytes(entries.rstrip(b"\0"))
    os.truncate(path, size)
    files = MappedFileQueue(OsFiles(), OpenFiles(OsFiles(), 8), tmp_path, size, durable=False)
    files.load()
    queue = ConsumeQueue("T", b"T", 0, files)
    queue.recover()
    assert (queue.max_offset, queue.max_physical_offset) == (count, 100 * count)


def test_queue_files_before_the_third_last_are_trusted(tmp_path: Path) -> None:
    filled(tmp_path, stop=MessageStore.close, count=90)
    queue = tmp_path / "consumequeue/TopicTest/0" / FIRST
    overwrite(queue, 60, bytes(20))
    store = open_store(tmp_path)
    assert store.max_queue_offset("TopicTest", 0) == 45
    store.close()


def test_a_queue_begins_where_the_log_does(tmp_path: Path) -> None:
    bodies = filled(tmp_path, stop=MessageStore.close)
    for number in (0, 1):
        log_file(tmp_path, number).unlink()
    store = open_store(tmp_path)
    assert store.min_physical_offset == 2048
    assert [store.min_queue_offset("TopicTest", queue_id) for queue_id in (0, 1)] == [5, 5]
    assert queue_messages(store, "TopicTest", 0)[0].body == bodies[10]
    assert store.get_message("g", "TopicTest", 0, 4, 1).next_offset == 5
    store.close()


def test_rebuilt_queues_of_a_log_that_lost_its_begin_keep_their_offsets(tmp_path: Path) -> None:
    filled(tmp_path, stop=MessageStore.close)
    log_file(tmp_path, 0).unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    store = open_store(tmp_path)
    assert [store.min_queue_offset("TopicTest", queue_id) for queue_id in (0, 1)] == [3, 2]
    assert_queues_agree_with_log(store)
    kill(store)
    store = open_store(tmp_path)
    assert [store.min_queue_offset("TopicTest", queue_id) for queue_id in (0, 1)] == [3, 2]
    store.close()


@pytest.mark.parametrize("written", [20, 40, 49, 50, 51, 52])
def test_a_queue_with_nothing_but_blank_entries_is_begun_anew(tmp_path: Path, written: int) -> None:
    """Killed while filling a queue up: blank entries were written up to some byte."""
    filled(tmp_path, stop=kill)
    log_file(tmp_path, 0).unlink()
    shutil.rmtree(tmp_path / "consumequeue/TopicTest/0")
    queue = tmp_path / "consumequeue/TopicTest/0" / FIRST
    queue.parent.mkdir()
    queue.write_bytes((ENTRY.pack(0, 0x7FFFFFFF, 0) * 3)[:written].ljust(200, b"\0"))
    (tmp_path / "checkpoint").unlink()
    store = open_store(tmp_path)
    assert store.min_queue_offset("TopicTest", 0) == 3
    assert_queues_agree_with_log(store)
    store.close()


def test_blank_entries_do_not_count_though_the_log_begins_at_zero(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put_all(store, b"a", b"b", b"c")
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    log = log_file(tmp_path)
    for record, number in enumerate((5, 6, 7)):
        overwrite(log, record * 101 + 27, bytes([number]))
    for _ in range(2):
        store = open_store(tmp_path)
        assert store.min_queue_offset("TopicTest", 0) == 5
        assert store.max_queue_offset("TopicTest", 0) == 8
        assert_queues_agree_with_log(store)
        store.close()


def test_a_queue_that_ends_inside_a_record_is_named(tmp_path: Path) -> None:
    filled(tmp_path, stop=MessageStore.close, count=4)
    for queue_id in (0, 1):
        queue = tmp_path / f"consumequeue/TopicTest/{queue_id}" / FIRST
        overwrite(queue, 0, ENTRY.pack(0, 150, 0) + bytes(180))
    with pytest.raises(CorruptStore) as error:
        open_store(tmp_path)
    assert (error.value.path, error.value.position) == (log_file(tmp_path), 150)


def test_a_deleted_topic_stays_deleted_after_a_clean_stop(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put_all(store, b"a")
    put_all(store, b"b", topic="Other")
    store.delete_topic("TopicTest")
    store.close()
    store = open_store(tmp_path)
    assert list(store.queues()) == [("Other", 0)]
    store.close()


# --- any order of puts and restarts ---------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 3), st.integers(0, 400)),
            st.sampled_from(["commit", "commit", "close", "kill"]),
        ),
        max_size=50,
    )
)
def test_any_sequence_of_puts_and_restarts_equals_a_plain_list(
    steps: list[tuple[int, int] | str],
) -> None:
    files, model = CrashingFiles(), list[tuple[int, bytes]]()
    pending: list[tuple[int, bytes]] = []
    store = open_store(Path("/s"), files)
    for step in steps:
        if isinstance(step, tuple):
            queue_id, size = step
            body = bytes([len(model) % 256]) * size
            appended = put(store, body, queue_id=queue_id)
            pending.append((queue_id, body))
            before = sum(queue == queue_id for queue, _ in model + pending)
            assert appended.queue_offset == before - 1
            continue
        if step in ("commit", "close"):
            store.commit_pending()
            model += pending
        pending = []
        if step == "commit":
            for queue_id in range(4):
                store._queues.find_or_create(b"TopicTest", queue_id)
        else:
            store.close() if step == "close" else kill(store)
            store = open_store(Path("/s"), files)
        assert [(m.queue_id, m.body) for m in log_messages(store)] == model
        assert_queues_agree_with_log(store)
    for queue_id in range(4):
        expected = [body for queue, body in model if queue == queue_id]
        assert [m.body for m in queue_messages(store, "TopicTest", queue_id)] == expected
