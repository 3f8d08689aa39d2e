"""Expiry: which files go, when, and what is left for readers and for the next start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from failback.broker.store.log.files import disk_ratio
from failback.broker.store.log.results import GetStatus, ServiceNotAvailable
from failback.broker.store.message_store import MessageStore
from failback.broker.store.upkeep.expiry import MOST_FILES_PER_ROUND, Expiry, local_hour
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    log_messages,
    open_store,
    put,
    queue_messages,
)

ROOT = Path("/store")
ALWAYS = ";".join(map(str, range(24)))
HOUR_MS = 3_600_000
RESERVED_MS = 72 * HOUR_MS


class Aged:
    """A store whose log files were last written one hour after the other."""

    def __init__(self, messages: int = 30, **settings: Any) -> None:
        self.files = CrashingFiles()
        self.clock = Clock()
        defaults: dict[str, Any] = {"delete_when": ALWAYS, "delete_log_files_interval_ms": 0}
        self.settings = defaults | settings
        self.store = self.open()
        for number in range(messages):
            put(self.store, b"%03d" % number + bytes(200), queue_id=number % 2)
            self.store.commit_pending()
        self.began = self.clock.now
        for age, path in enumerate(self.log_files()):
            self.files.modified[path] = self.began + age * HOUR_MS

    def open(self) -> MessageStore:
        return open_store(ROOT, self.files, self.clock, **self.settings)

    def log_files(self) -> list[Path]:
        return [ROOT / "commitlog" / name for name in self.files.names(ROOT / "commitlog")]

    def queue_files(self, queue_id: int) -> list[Path]:
        folder = ROOT / "consumequeue" / "TopicTest" / str(queue_id)
        return [folder / name for name in self.files.names(folder)]

    def later(self, hours: float) -> None:
        self.clock.now = self.began + round(hours * HOUR_MS)


async def test_files_go_when_they_are_old_enough_oldest_first() -> None:
    aged = Aged()
    before = aged.log_files()
    aged.later(72 - 0.001)
    await aged.store.expire()
    assert aged.log_files() == before
    aged.later(72 + 2)
    await aged.store.expire()
    assert aged.log_files() == before[3:]
    assert aged.store.min_physical_offset == 3 * 1024
    assert [change.path for change in aged.files.journal if change.kind == "delete"][:3] == [
        *before[:3]
    ]


async def test_the_last_file_stays_however_old() -> None:
    aged = Aged(messages=6)
    before = aged.log_files()
    aged.later(10_000)
    await aged.store.expire()
    assert aged.log_files() == before[-1:]
    put(aged.store)
    aged.store.commit_pending()
    assert log_messages(aged.store)[-1].body == b"hello"


async def test_a_file_that_stays_keeps_those_behind_it() -> None:
    aged = Aged()
    before = aged.log_files()
    aged.files.modified[before[1]] = aged.began + 100 * HOUR_MS
    aged.later(72 + 5)
    await aged.store.expire()
    assert aged.log_files() == before[1:]


async def test_a_round_deletes_a_few_files_and_the_next_goes_on() -> None:
    aged = Aged(messages=60)
    before = aged.log_files()
    assert len(before) > MOST_FILES_PER_ROUND + 2
    aged.later(10_000)
    await aged.store.expire()
    assert aged.log_files() == before[MOST_FILES_PER_ROUND:]
    await aged.store.expire()
    assert aged.log_files() == before[-1:]


async def test_queues_lose_the_files_that_only_spoke_of_what_is_gone() -> None:
    aged = Aged(messages=60)
    assert len(aged.queue_files(0)) == 3
    aged.later(10_000)
    await aged.store.expire()
    await aged.store.expire()
    low = aged.store.min_physical_offset
    kept = queue_messages(aged.store, "TopicTest", 0)
    assert aged.store.min_queue_offset("TopicTest", 0) == 30 - len(kept)
    assert all(message.physical_offset >= low for message in kept)
    assert len(aged.queue_files(0)) == 1
    answer = aged.store.get_message("G", "TopicTest", 0, 0, 32)
    assert answer.status is GetStatus.OFFSET_TOO_SMALL
    assert answer.next_offset == aged.store.min_queue_offset("TopicTest", 0)


async def test_the_next_start_finds_the_shorter_store_and_goes_on() -> None:
    aged = Aged(messages=60)
    aged.later(10_000)
    await aged.store.expire()
    messages = [message.body for message in log_messages(aged.store)]
    low = aged.store.min_queue_offset("TopicTest", 1)
    for stop in (aged.store.close, lambda: None):  # in order, and killed
        stop()
        aged.store = aged.open()
        assert [message.body for message in log_messages(aged.store)] == messages
        assert aged.store.min_queue_offset("TopicTest", 1) == low
    assert put(aged.store, queue_id=1).queue_offset == 30


async def test_a_kill_between_two_deletions_leaves_a_log_without_a_gap() -> None:
    aged = Aged(messages=60)
    aged.later(10_000)
    start = len(aged.files.journal)
    await aged.store.expire()
    for point in range(start, len(aged.files.journal) + 1):
        files = aged.files.after_kill(point)
        store = open_store(ROOT, files, aged.clock, **aged.settings)
        await store.expire()
        assert log_messages(store)[-1].body[:3] == b"059"
        assert len(queue_messages(store, "TopicTest", 0)) > 0
        assert put(store).queue_offset == 30


async def test_a_power_loss_brings_no_log_back_whose_queue_entries_are_gone() -> None:
    aged = Aged(messages=60)
    aged.later(10_000)
    start, journal = len(aged.files.journal), aged.files.journal
    for _ in range(2):
        await aged.store.expire()
    for point in range(start, len(journal) + 1):
        # What was deleted of the queues is gone, what was deleted of the log may come back.
        files = aged.files.after_power_loss(
            point, lambda step: step < start or "consumequeue" in journal[step].path.parts
        )
        assert_queues_agree_with_log(open_store(ROOT, files, aged.clock, **aged.settings))


async def test_a_file_stays_while_records_of_it_are_not_in_their_queues() -> None:
    aged = Aged(messages=12)
    files, store = aged.log_files(), aged.store
    aged.later(10_000)
    expiry = Expiry(aged.files, store.config, store._log, store._queues, clock_ms=aged.clock)
    await expiry.run_round(2 * 1024 - 1)
    assert aged.log_files() == files[1:]
    await expiry.run_round(2 * 1024)
    assert aged.log_files() == files[2:]


@pytest.mark.parametrize(
    ("when", "hour", "is_due"),
    [("04", 4, True), ("4;16", 16, True), ("04", 5, False), ("", 0, False), ("x; 7", 7, True)],
)
async def test_it_is_done_at_the_hours_that_are_set(when: str, hour: int, is_due: bool) -> None:
    aged = Aged(delete_when=when)
    aged.later(10_000)
    store = aged.store
    expiry = Expiry(
        aged.files,
        store.config,
        store._log,
        store._queues,
        clock_ms=aged.clock,
        hour_of=lambda _: hour,
    )
    assert bool(await expiry.run_round(store.max_physical_offset)) is is_due


def test_the_hour_is_the_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert local_hour(4 * HOUR_MS + 1) == 4


@pytest.mark.parametrize(
    ("used", "forcibly", "old", "young"),
    [
        (0.74, True, False, False),
        (0.76, True, True, False),
        (0.86, True, True, True),
        (0.86, False, True, False),
    ],
)
async def test_a_filling_disk_does_not_wait_for_the_hour(
    used: float, forcibly: bool, old: bool, young: bool
) -> None:
    for hours, goes in ((72.5, old), (1, young)):
        aged = Aged(delete_when="", clean_file_forcibly=forcibly)
        before = aged.log_files()
        aged.files.used = used
        aged.later(hours)
        await aged.store.expire()
        assert (aged.log_files() != before) is goes


async def test_a_full_disk_takes_no_messages_until_there_is_room() -> None:
    aged = Aged(delete_when="", clean_file_forcibly=False)
    aged.files.used = 0.91
    await aged.store.expire()
    assert not aged.store.is_writable
    with pytest.raises(ServiceNotAvailable, match="the broker's disk is full"):
        put(aged.store)
    assert len(queue_messages(aged.store, "TopicTest", 0)) == 15, "it still serves reads"
    aged.files.used = 0.90
    await aged.store.expire()
    assert aged.store.is_writable
    assert put(aged.store).queue_offset == 15


async def test_a_slave_with_a_full_disk_goes_on_copying() -> None:
    master = Aged(messages=3)
    slave = Aged(messages=0, broker_role="SLAVE")
    slave.files.used = 0.95
    await slave.store.expire()
    slave.store.append_raw(0, bytes(master.store.read_raw(0, 400)))
    assert slave.store.max_physical_offset == 400


async def test_a_closed_store_deletes_nothing() -> None:
    aged = Aged()
    before = aged.log_files()
    aged.later(10_000)
    aged.store.close()
    await aged.store.expire()
    assert aged.log_files() == before
    with pytest.raises(ServiceNotAvailable, match="closed"):
        put(aged.store)


def test_the_ratio_is_that_of_df(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    used = disk.f_blocks - disk.f_bfree
    exact = used / (used + disk.f_bavail)
    assert exact - 0.01 <= disk_ratio(tmp_path) <= exact + 0.011
    assert disk_ratio(tmp_path) * 100 == pytest.approx(round(disk_ratio(tmp_path) * 100))
    assert disk_ratio(tmp_path / "nothing") == -1.0
