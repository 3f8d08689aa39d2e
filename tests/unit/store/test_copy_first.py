"""A slave that copies a long log: bytes first, queues behind them in shares, nothing left out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from failback.broker.store import message_store
from failback.broker.store.message_store import MessageStore
from tests.support.common.polling import until
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    assert_queues_agree_with_log,
    kill,
    log_messages,
    open_store,
    put,
)
from tests.unit.store.test_late_entries import QUIET, Running

ROOT = Path("/s")
SIZES: dict[str, Any] = {"mapped_file_bytes": 16 * 1024, "consume_queue_file_bytes": 4000}
COUNT = 150


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_store, "_SHARE_BYTES", 500)
    monkeypatch.setattr(message_store, "_FAR_BYTES", 500)


def long_log() -> MessageStore:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    for number in range(COUNT):
        put(master, b"%04d" % number * (number % 40), queue_id=number % 3, tag="a")
    master.commit_pending()
    return master


def copy(master: MessageStore, slave: MessageStore, end: int | None = None) -> None:
    end = master.max_physical_offset if end is None else end
    while (at := slave.max_physical_offset) < end:
        slave.append_raw(at, bytes(master.read_raw(at, min(700, end - at))))


def new_slave(files: CrashingFiles) -> MessageStore:
    return open_store(ROOT, files, broker_role="SLAVE", **SIZES, **QUIET)


async def test_the_log_is_there_before_the_queues_and_they_follow() -> None:
    master = long_log()
    async with Running(new_slave(CrashingFiles())) as slave:
        copy(master, slave, 12_000)
        assert slave.max_physical_offset == 12_000
        assert slave.dispatch_behind_bytes() == 12_000
        assert slave.max_queue_offset("TopicTest", 0) == 0  # as far as dispatch has come
        await until(lambda: slave.dispatch_behind_bytes() < 500, "dispatch")
        copy(master, slave)
        await until(lambda: slave.dispatch_behind_bytes() == 0, "the rest")
        assert slave.max_queue_offset("TopicTest", 2) == COUNT // 3
        assert_queues_agree_with_log(slave)
        assert log_messages(slave) == log_messages(master)


async def test_queues_stay_at_most_a_file_behind() -> None:
    master = long_log()
    assert master.max_physical_offset > SIZES["mapped_file_bytes"] + 1000
    async with Running(new_slave(CrashingFiles())) as slave:
        copy(master, slave)
        assert slave.dispatch_behind_bytes() <= SIZES["mapped_file_bytes"]
        assert slave.max_queue_offset("TopicTest", 0) > 0


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_stop_or_a_kill_in_between_loses_no_entry(orderly: bool) -> None:
    master, files = long_log(), CrashingFiles()
    slave = new_slave(files)
    async with Running(slave):
        copy(master, slave)
        crashed = files.after_kill(len(files.journal))
    if orderly:
        assert slave.dispatch_behind_bytes() == 0
        slave.close()
    else:
        kill(slave)
        files = crashed
    again = open_store(ROOT, files, broker_role="SLAVE", **SIZES)
    assert again.dispatch_behind_bytes() == 0
    assert [again.max_queue_offset("TopicTest", queue) for queue in range(3)] == [COUNT // 3] * 3
    assert_queues_agree_with_log(again)


async def test_bytes_that_are_no_record_stop_dispatch_wherever_it_is() -> None:
    master = long_log()
    async with Running(new_slave(CrashingFiles())) as slave:
        copy(master, slave, 12_000)
        slave.append_raw(12_000, b"\xee" * 900)
        stuck_at = slave.dispatch_until_stuck()
        assert stuck_at is not None
        assert 11_700 < stuck_at < 12_300
        slave.append_raw(12_900, b"\xee" * 900)
        await asyncio.sleep(0)
        assert slave.max_physical_offset == 13_800


async def test_the_last_records_are_those_of_the_whole_log() -> None:
    master = long_log()
    async with Running(new_slave(CrashingFiles())) as slave:
        copy(master, slave)
        assert slave.last_records(2) == master.last_records(2)
