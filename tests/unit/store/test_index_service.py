"""Finding messages by key: what is entered when, and what a crash leaves of it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from failback.broker.store.index.index_query import QueryResult
from failback.broker.store.log.checkpoint import CHECKPOINT_BYTES
from failback.broker.store.log.record import read_record
from failback.broker.store.log.results import ServiceNotAvailable
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from failback.protocol.errors import StoreError
from failback.protocol.message import BatchElement, MessageExt, decode_record, pack_host
from tests.support.common.polling import until
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.store_kit import (
    BORN_HOST,
    Clock,
    kill,
    log_messages,
    make_store,
    open_store,
    put,
)

ROOT = Path("/s")
FOREVER = 2**63 - 1
SMALL: dict[str, Any] = {"max_hash_slot_num": 5, "max_index_num": 8}
"""Index files of 7 entries."""


def ask(
    store: MessageStore,
    key: str,
    *,
    topic: str = "TopicTest",
    most: int = 64,
    begin: int = 0,
    end: int = FOREVER,
) -> QueryResult:
    """Look a key up to the end, however many steps that takes."""
    steps = store.query_message(topic, key, most, begin, end)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: QueryResult = done.value
            return result


def found(store: MessageStore, key: str, **options: object) -> list[MessageExt]:
    records = ask(store, key, **options).records  # type: ignore[arg-type]
    return [decode_record(record, decompress=False)[0] for record in records]


def bodies(store: MessageStore, key: str, **options: object) -> list[bytes]:
    return [message.body for message in found(store, key, **options)]


def keyed(unique: str = "", keys: str = "") -> bytes:
    """Return properties; the broker puts its cluster behind them."""
    pairs = [("UNIQ_KEY", unique), ("KEYS", keys), ("CLUSTER", "DefaultCluster")]
    return b"\x02".join(f"{name}\x01{value}".encode() for name, value in pairs if value)


def put_keyed(store: MessageStore, *numbers: int, **fields: object) -> None:
    """Store messages with the keys ``u<n>`` and ``k<n>``, and ``all`` in common."""
    for number in numbers:
        properties = keyed(f"u{number}", f"k{number} all")
        put(store, b"%d" % number, properties=properties, **fields)  # type: ignore[arg-type]
        store.commit_pending()


def assert_complete(store: MessageStore, numbers: list[int]) -> None:
    """Every message is found by each of its keys, once."""
    for number in numbers:
        assert bodies(store, f"u{number}") == [b"%d" % number]
        assert bodies(store, f"k{number}") == [b"%d" % number]
    assert bodies(store, "all") == [b"%d" % number for number in numbers][-64:]


def index_files(files: CrashingFiles) -> dict[str, bytes]:
    return {
        path.name: bytes(data)
        for path, data in files.content.items()
        if path.parent == ROOT / "index"
    }


# --- what is found ---------------------------------------------------------------------------


def test_a_message_is_found_by_its_id_and_by_each_of_its_keys() -> None:
    store = open_store(ROOT, CrashingFiles())
    put(store, b"a", properties=keyed("ID-1", "order-1 customer-7"))
    put(store, b"b", properties=keyed("ID-2", "order-2 customer-7"))
    put(store, b"c", topic="Other", properties=keyed("ID-3", "order-1"))
    put(store, b"d", properties=keyed())
    store.commit_pending()
    assert bodies(store, "ID-2") == [b"b"]
    assert bodies(store, "order-1") == [b"a"]
    assert bodies(store, "order-1", topic="Other") == [b"c"]
    assert bodies(store, "customer-7") == [b"a", b"b"]
    assert bodies(store, "customer-7", most=1) == [b"b"]
    assert bodies(store, "customer") == bodies(store, "") == []


def test_the_answer_says_how_far_the_index_has_come() -> None:
    clock = Clock()
    store = open_store(ROOT, CrashingFiles(), clock)
    assert ask(store, "u1") == QueryResult()
    put_keyed(store, 1)
    clock.now += 1
    last = put(store, b"2", properties=keyed("u2"))
    store.commit_pending()
    result = ask(store, "u1")
    assert result.index_last_update_offset == last.physical_offset
    assert result.index_last_update_timestamp == clock.now
    assert ask(store, "u3") == QueryResult()


def test_times_of_the_index_are_whole_seconds_since_its_first_entry() -> None:
    clock = Clock(1_000_500)
    store = open_store(ROOT, CrashingFiles(), clock)
    for number in range(5):
        put_keyed(store, number)
        clock.now += 700  # 0, 0.7, 1.4, 2.1, 2.8 seconds: entered as 0, 0, 1, 2, 2
    assert bodies(store, "all", begin=1_001_500, end=1_001_500) == [b"2"]
    assert bodies(store, "all", begin=1_001_501) == [b"3", b"4"]
    assert bodies(store, "all", end=1_001_499) == [b"0", b"1"]
    assert bodies(store, "all", begin=1_004_000) == []
    assert bodies(store, "all", end=1_000_499) == []


def test_no_more_are_found_than_one_question_may_bring() -> None:
    store = open_store(ROOT, CrashingFiles(), mapped_file_bytes=1 << 16, max_index_num=1000)
    put_keyed(store, *range(70))
    newest = [b"%d" % number for number in range(6, 70)]
    assert bodies(store, "all", most=1000) == newest
    store.config.max_msgs_num_batch = 3
    assert bodies(store, "all", most=1000) == newest[-3:]
    assert bodies(store, "all", most=0) == bodies(store, "all", most=-1) == []


def test_every_kind_of_record_is_found_but_those_rolled_back() -> None:
    store = open_store(ROOT, CrashingFiles(), message_delay_level="1s")
    kinds = {"half": TRANSACTION_PREPARED, "done": TRANSACTION_COMMIT, "gone": TRANSACTION_ROLLBACK}
    for key, kind in kinds.items():
        put(store, key.encode(), sys_flag=kind, properties=keyed(key))
    delayed = keyed("late") + b"\x02DELAY\x011\x02REAL_TOPIC\x01TopicTest"
    put(store, b"late", topic="SCHEDULE_TOPIC_XXXX", properties=delayed)
    v6 = pack_host("2001:db8::1", 5000)
    put(store, b"v6", born_host=v6, properties=keyed("v6"))
    put(store, b"v6 gone", born_host=v6, sys_flag=TRANSACTION_ROLLBACK, properties=keyed("v6"))
    store.append_batch(
        topic=b"TopicTest",
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=BORN_HOST,
        reconsume_times=0,
        elements=[BatchElement(0, b"%d" % n, b"UNIQ_KEY\x01batch%d" % n) for n in range(3)],
        batch_properties=b"CLUSTER\x01DefaultCluster",
    )
    put(store, "ä".encode(), topic="Thema", properties=keyed("schlüssel"))
    store.commit_pending()
    assert bodies(store, "half") == [b"half"]
    assert bodies(store, "done") == [b"done"]
    assert bodies(store, "gone") == bodies(store, "late") == []
    assert bodies(store, "late", topic="SCHEDULE_TOPIC_XXXX") == [b"late"]
    assert bodies(store, "v6") == [b"v6"]
    assert [bodies(store, f"batch{n}") for n in range(3)] == [[b"0"], [b"1"], [b"2"]]
    assert bodies(store, "schlüssel", topic="Thema") == ["ä".encode()]


def test_keys_with_the_same_hash_are_all_brought() -> None:
    """As in 4.9.8: whoever asks compares."""
    store = open_store(ROOT, CrashingFiles())
    for key in ("Aa", "BB"):  # the classic pair
        put(store, key.encode(), properties=keyed(key))
    store.commit_pending()
    assert bodies(store, "Aa") == [b"Aa", b"BB"]


def test_files_follow_each_other_and_keys_are_found_in_all_of_them() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, **SMALL)
    put_keyed(store, *range(40))
    assert_complete(store, list(range(40)))
    assert bodies(store, "all", most=3) == [b"37", b"38", b"39"]
    assert len(index_files(files)) == 120 // 7 + 1


def test_a_slave_finds_what_it_copied() -> None:
    master = open_store(ROOT, CrashingFiles())
    put_keyed(master, *range(30))
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE")
    log = b"".join(bytes(master.read_raw(at, 1024)) for at in range(0, 1 << 20, 1024))
    for at in range(0, len(log), 37):
        slave.append_raw(at, log[at : at + 37])
    assert_complete(slave, list(range(30)))
    assert slave.index_behind_bytes == 0


def test_a_slave_that_begins_in_mid_log_finds_what_it_has() -> None:
    master = open_store(ROOT, CrashingFiles())
    put_keyed(master, *range(30))
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE")
    slave.append_raw(2048, bytes(master.read_raw(2048, 1024)))
    there = [int(message.body) for message in log_messages(slave)]
    assert len(there) > 3
    assert_complete(slave, there)


def test_nothing_is_entered_when_it_is_switched_off() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, message_index_enable=False)
    put_keyed(store, 1)
    assert bodies(store, "u1") == []
    store.close()
    assert index_files(files) == {}
    again = open_store(ROOT, files)  # switched on later: what is missing is entered
    put_keyed(again, 2, 3)
    assert_complete(again, [1, 2, 3])


def test_a_store_that_is_not_open_answers_nothing() -> None:
    store = make_store(ROOT, CrashingFiles())
    with pytest.raises(ServiceNotAvailable):
        store.query_message("TopicTest", "k", 1, 0, 1)


# --- when it is entered -----------------------------------------------------------------------


async def test_keys_are_entered_soon_and_not_while_messages_are_stored() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    stop = asyncio.Event()
    running = asyncio.create_task(store.run(stop))
    await asyncio.sleep(0)
    put_keyed(store, *range(600))
    assert index_files(files) == {}
    assert store.index_behind_bytes == store.max_physical_offset
    await until(lambda: store.index_behind_bytes == 0, "the index")
    assert len(index_files(files)) == 1800 // 99 + 1
    put_keyed(store, 600)
    await until(lambda: store.index_behind_bytes == 0, "the index")
    stop.set()
    await running
    assert bodies(store, "u600") == [b"600"]


async def test_a_disk_that_refuses_the_index_is_asked_again() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    stop = asyncio.Event()
    running = asyncio.create_task(store.run(stop))
    await asyncio.sleep(0)

    def refuse(change: Change) -> None:
        if change.path.parent.name == "index":
            raise OSError(errno.ENOSPC, "no space left")

    files.fail = refuse
    put_keyed(store, 1)
    await until(lambda: not store.is_writable, "the refusal")
    with pytest.raises(ServiceNotAvailable, match="no space left"):
        put(store)
    store.look_at_disk()
    assert not store.is_writable
    files.fail = lambda change: None
    store.look_at_disk()
    put_keyed(store, 2)
    stop.set()
    await running
    assert_complete(store, [1, 2])
    store.close()
    assert ROOT / "abort" not in files.content
    assert_complete(open_store(ROOT, files), [1, 2])


def test_a_clean_stop_leaves_a_complete_index() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_keyed(store, *range(20))
    store.close()
    before = index_files(files)
    disk = CrashingFiles(files.after_power_loss(len(files.journal), lambda step: False).durable)
    assert index_files(disk) == before  # and all of it is on the disk
    again = open_store(ROOT, files, message_index_enable=False)
    assert_complete(again, list(range(20)))


def test_a_full_file_is_synced_and_the_checkpoint_says_so() -> None:
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock, **SMALL)
    put_keyed(store, 1, 2)
    clock.now += 1000
    put_keyed(store, 3)  # its first key is the seventh of the file
    assert len(found(store, "all")) == 3
    first = min(index_files(files))
    synced = [change.path.name for change in files.journal if change.kind == "sync"]
    assert first in synced
    assert store.checkpoint.index_msg_timestamp == clock.now
    page = files.content[ROOT / "checkpoint"]
    assert len(page) == CHECKPOINT_BYTES
    assert int.from_bytes(page[16:24], "big") == clock.now


# --- crashes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("torn_bytes", [0, 3, 30])
def test_a_kill_at_any_step_loses_no_key(torn_bytes: int) -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, **SMALL)
    for number in range(12):
        put_keyed(store, number)
        if number % 3:
            assert bodies(store, f"u{number}") == [b"%d" % number]
    for point in range(len(files.journal) + 1):
        left = files.after_kill(point, torn_bytes)
        again = open_store(ROOT, left, **SMALL)
        numbers = [int(message.body) for message in log_messages(again)]
        assert_complete(again, numbers)
        put_keyed(again, 99)
        assert_complete(again, [*numbers, 99])


def test_a_kill_between_two_batches_takes_nothing() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, **SMALL)
    put_keyed(store, *range(12))
    assert len(found(store, "all")) == 12
    before = index_files(files)
    kill(store)
    again = open_store(ROOT, files, **SMALL)
    assert again.index_behind_bytes < 200  # the last record
    assert index_files(files) == before
    assert_complete(again, list(range(12)))


def test_a_power_loss_at_any_step_loses_no_key() -> None:
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock, **SMALL)
    for number in range(12):
        put_keyed(store, number)
        clock.now += 1
        store.flush()
        assert bodies(store, f"u{number}") == [b"%d" % number]
    for point in range(len(files.journal) + 1):
        for kept in (lambda step: False, lambda step: True, lambda step: step % 3 == 0):
            left = files.after_power_loss(point, kept)
            again = open_store(ROOT, left, **SMALL)
            assert_complete(again, [int(message.body) for message in log_messages(again)])


def test_after_a_power_loss_only_files_of_the_checkpoint_are_kept() -> None:
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock, **SMALL)
    for number in range(6):
        put_keyed(store, number)
        clock.now += 1
    assert len(found(store, "all")) == 6  # 18 entries in three files, two of them full
    names = sorted(index_files(files))
    left = files.after_power_loss(len(files.journal), lambda step: True)
    assert sorted(index_files(left)) == names
    open_store(ROOT, left, clock, **SMALL)
    assert sorted(index_files(left)) == names[:2]


def test_what_lies_behind_a_bad_file_goes_with_it() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, **SMALL)
    put_keyed(store, *range(6))
    assert len(found(store, "all")) == 6
    names = sorted(index_files(files))
    kill(store)
    files.content[ROOT / "index" / names[1]][24:32] = b"\xff" * 8  # in the middle of a batch
    again = open_store(ROOT, files, **SMALL)
    assert sorted(index_files(files)) == names[:1]
    assert_complete(again, list(range(6)))


def test_a_key_of_a_record_that_was_entered_in_part_is_not_entered_twice() -> None:
    """Seven entries of a file: the two keys of the third record are in two files."""
    files = CrashingFiles()
    store = open_store(ROOT, files, **SMALL)
    put_keyed(store, 1, 2, 3)
    assert len(found(store, "all")) == 3
    (first, second) = sorted(index_files(files))
    kill(store)
    files.delete(ROOT / "index" / second)
    again = open_store(ROOT, files, **SMALL)
    assert_complete(again, [1, 2, 3])
    assert sorted(index_files(files))[0] == first
    assert sum(data.count(b"\x02") for data in index_files(files).values())


def test_a_file_that_speaks_of_a_longer_log_is_removed() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_keyed(store, 1, 2)
    store.close()
    log = files.content[ROOT / "commitlog" / f"{0:020d}"]
    record = read_record(memoryview(log), 0, 0, check_crc=True)
    end = getattr(record, "size", 0)
    log[end:] = bytes(len(log) - end)  # an older copy of the log
    again = open_store(ROOT, files)
    assert_complete(again, [1])


@pytest.mark.parametrize("settings", [{"max_index_num": 50}, {"max_hash_slot_num": 7}])
def test_files_of_another_size_are_made_anew(settings: dict[str, Any]) -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_keyed(store, 1, 2)
    store.close()
    again = open_store(ROOT, files, **settings)
    assert_complete(again, [1, 2])


def test_other_names_in_the_folder_are_left_alone() -> None:
    files = CrashingFiles()
    files.create(ROOT / "index" / "notes.txt", 10, durable=False)
    files.create(ROOT / "index" / ".creating-1-1", 10, durable=False)
    store = open_store(ROOT, files)
    put_keyed(store, 1)
    assert_complete(store, [1])
    names = set(index_files(files))
    assert "notes.txt" in names
    assert ".creating-1-1" not in names


async def test_the_last_file_stays_though_the_log_has_nothing_of_it() -> None:
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock, **SMALL, file_reserved_ms=5000)
    store.config.delete_log_files_interval_ms = 0
    files.used = 0.80
    put_keyed(store, 1, 2, 3, 4, 5)
    assert len(found(store, "all")) == 5
    last = max(index_files(files))
    for _ in range(60):
        put(store, bytes(50), properties=keyed())
        store.commit_pending()
    clock.now += 10_000
    while store.min_physical_offset < 4096:
        await store.expire()
    assert list(index_files(files)) == [last]
    assert bodies(store, "all") == []
    put_keyed(store, 6)
    assert_complete(store, [6])


async def test_files_go_with_the_log_they_speak_of() -> None:
    files, clock = CrashingFiles(), Clock()
    settings = SMALL | {"file_reserved_ms": 5000, "delete_log_files_interval_ms": 0}
    store = open_store(ROOT, files, clock, **settings)
    store.config.disk_max_used_ratio = 75
    files.used = 0.80
    put_keyed(store, *range(60))
    assert found(store, "all")
    before = len(index_files(files))
    clock.now += 10_000
    while store.min_physical_offset < 4096:
        await store.expire()
    left = len(index_files(files))
    assert 1 <= left < before
    numbers = [int(message.body) for message in log_messages(store)]
    assert_complete(store, numbers)
    assert bodies(store, "u0") == []
    for each in (store.close, store.close):
        each()
    with pytest.raises(StoreError):
        store.query_message("TopicTest", "all", 1, 0, 1)
    assert_complete(open_store(ROOT, files, clock, **settings), numbers)
