"""Crashes that once cost something, each as small as it gets."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from failback.broker.store.log.results import GetStatus
from tests.support.store.crash_scenario import Life, check_configs
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    open_store,
    put_all,
)

ROOT: Final = Path("/s")
QUEUE: Final = ROOT / "consumequeue/TopicTest/0" / f"{0:020d}"
EXPIRING: Final[dict[str, Any]] = {
    "delete_when": ";".join(map(str, range(24))),
    "file_reserved_ms": 0,
    "delete_log_files_interval_ms": 0,
}


def nothing_kept(_step: int) -> bool:
    return False


def test_a_file_made_just_before_a_kill_keeps_its_name() -> None:
    """Killed after the file was made and before its name was synced; the next process uses it."""
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_all(store, bytes(900))
    began = len(files.journal)
    put_all(store, bytes(900))
    made = next(n for n, c in enumerate(files.journal[began:], began) if c.kind == "create")
    files = files.after_kill(made + 1)
    store = open_store(ROOT, files)
    put_all(store, b"acknowledged")
    store.flush()
    rebooted = files.after_power_loss(len(files.journal), nothing_kept)
    assert [m.body for m in log_messages(open_store(ROOT, rebooted))][-1] == b"acknowledged"


async def test_a_json_file_whose_persist_was_killed_is_not_promised_to_be_on_the_disk() -> None:
    """Killed between the renaming and its sync; the next life reads what a power loss takes."""
    files, random = CrashingFiles(), Random(1)
    life = Life(files, Clock(), random)
    for _ in range(2):
        life.persist("guarded")
        life.note()
    renamed = [n for n, change in enumerate(files.journal) if change.kind == "rename"]
    files = files.after_kill(renamed[-1] + 1)
    life = Life(files, Clock(), random)
    assert life.load_config("guarded") == 2
    point = len(files.journal)
    lost = files.after_power_loss(point, nothing_kept)
    check_configs(files.last_note(point), lost, killed=False)
    life.persist("guarded")
    life.note()
    point = len(files.journal)
    with pytest.raises(AssertionError, match="guarded"):
        check_configs(files.last_note(point), lost, killed=False)


@pytest.mark.parametrize("kept", [12, 16])
def test_an_entry_without_its_tags_is_made_again(kept: int) -> None:
    """A kill inside a write ends at a page, a power loss at a sector: there it may be cut."""
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_all(store, b"one", b"two", tag="TagA")
    kill(store)
    files.content[QUEUE][20 + kept : 40] = bytes(20 - kept)
    store = open_store(ROOT, files)
    assert [code for *_, code in store.entries("TopicTest", 0, 0, 8)] == [2598919, 2598919]


def test_no_unsynced_entry_is_trusted_after_a_power_loss() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_all(store, b"one", b"two", b"three", tag="TagA")
    store.flush()
    kill(store)
    files.content[QUEUE][12:20] = bytes(8)
    files.boot = "another"
    store = open_store(ROOT, files)
    assert [code for *_, code in store.entries("TopicTest", 0, 0, 8)] == [2598919] * 3


def test_a_hole_in_a_queue_after_a_power_loss_is_filled_however_old_its_file() -> None:
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock)
    for count in (20, 10):
        put_all(store, *[bytes(40)] * count)
        clock.now += 10_000
    store.flush()
    store.flush_queues()
    put_all(store, *[bytes(40)] * 40)
    store.flush()
    kill(store)
    fourth = QUEUE.with_name(f"{600:020d}")
    files.content[fourth][:] = bytes(200)
    files.boot = "another"
    store = open_store(ROOT, files, clock)
    assert store.max_queue_offset("TopicTest", 0) == 70
    assert_queues_agree_with_log(store)


def test_an_entry_of_half_a_size_does_not_stop_the_start() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_all(store, b"one", bytes(300))
    kill(store)
    size = struct.unpack_from(">i", files.content[QUEUE], 28)[0]
    assert size > 255
    files.content[QUEUE][31:40] = bytes(9)
    store = open_store(ROOT, files)
    assert_queues_agree_with_log(store)
    assert store.max_queue_offset("TopicTest", 0) == 2


async def test_expiry_takes_no_queue_offset_with_it() -> None:
    """The entries were not synced when their records expired: nothing could make them again."""
    files = CrashingFiles()
    store = open_store(ROOT, files, **EXPIRING)
    put_all(store, *[bytes(100)] * 12)
    await store.expire()
    store.flush()
    low = store.min_physical_offset
    assert low > 0
    rebooted = files.after_power_loss(len(files.journal), nothing_kept)
    store = open_store(ROOT, rebooted)
    assert store.max_queue_offset("TopicTest", 0) == 12
    assert_queues_agree_with_log(store)


async def test_an_expired_file_that_comes_back_does_not_end_the_log() -> None:
    """Its deletion was not synced, nor was its end; what lies behind it was acknowledged."""
    files = CrashingFiles()
    store = open_store(ROOT, files, **EXPIRING)
    put_all(store, bytes(700), bytes(700))
    await store.expire()
    put_all(store, b"acknowledged")
    store.flush()
    rebooted = files.after_power_loss(len(files.journal), nothing_kept)
    store = open_store(ROOT, rebooted)
    assert [m.body for m in log_messages(store)][-1] == b"acknowledged"
    assert_queues_agree_with_log(store)


async def test_a_queue_goes_on_behind_entries_that_nobody_can_make_again() -> None:
    """As a 4.9 broker leaves it, which expires without syncing: the gap is of expired records."""
    settings = EXPIRING | {"consume_queue_file_bytes": 400}
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock, **settings)
    put_all(store, *[bytes(100)] * 12)
    await store.expire()
    kill(store)
    files.content[QUEUE][20:] = bytes(380)
    store = open_store(ROOT, files, clock, **settings)
    assert store.max_queue_offset("TopicTest", 0) == 12
    assert store.min_queue_offset("TopicTest", 0) == log_messages(store)[0].queue_offset > 0
    assert_queues_agree_with_log(store)


def test_a_queue_counts_on_though_nothing_that_it_held_is_left() -> None:
    """Its old file expired, and a power loss took the only record that the new one speaks of."""
    files = CrashingFiles()
    store = open_store(ROOT, files, **EXPIRING)
    put_all(store, *[bytes(100)] * 10)
    store.flush()
    put_all(store, bytes(100))
    asyncio.run(store.expire())
    assert QUEUE not in files.content
    renamed = {n for n, c in enumerate(files.journal) if c.kind in ("create", "delete")}
    for _ in range(2):
        files = files.after_power_loss(len(files.journal), renamed.__contains__)
        store = open_store(ROOT, files)
        assert log_messages(store) == []
        assert store.get_message("g", "TopicTest", 0, 10, 8).status is GetStatus.OFFSET_OVERFLOW_ONE
        renamed = set()
    assert put_all(store, b"next")[0].queue_offset == 10
    assert_queues_agree_with_log(store)
