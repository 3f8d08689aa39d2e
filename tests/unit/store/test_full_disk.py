"""A disk without room, for each part of a store: messages are refused, and the rest goes on."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable

import pytest

from failback.broker.store.log.results import ServiceNotAvailable, WriteRefused
from failback.broker.store.message_store import MessageStore
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    open_store,
    put,
    queue_messages,
)
from tests.unit.store.test_late_entries import ROOT

pytestmark = pytest.mark.foreign

PARTS = ("commitlog", "consumequeue", "index", "reserve", "checkpoint", "")
NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SMALL = {"consume_queue_flush_thorough_interval_ms": 10, "consume_queue_flush_interval_ms": 5}


def full(part: str, number: int) -> Callable[[Change], None]:
    """Refuse everything that may need room below ``part`` of the store."""

    def fail(change: Change) -> None:
        if change.kind in ("write", "create", "allocate") and part in str(change.path):
            raise OSError(number, os.strerror(number), str(change.path))

    return fail


async def put_until_refused(store: MessageStore, kept: list[bytes]) -> str | None:
    """Append keyed messages, a commit for each; return why one was refused."""
    for _ in range(12):
        body = b"%04d" % len(kept)
        try:
            put(store, body.ljust(100, b"."), properties=b"KEYS\x01k" + body)
            store.commit_pending()
        except (ServiceNotAvailable, WriteRefused) as error:
            return str(error)
        kept.append(body)
        await asyncio.sleep(0.03)  # entries and index are written
    return None


def bodies(store: MessageStore) -> list[bytes]:
    return [message.body[:4] for message in queue_messages(store, "TopicTest", 0)]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "killed"])
async def test_a_full_disk_costs_the_messages_of_that_time_only(
    part: str, number: int, is_killed: bool
) -> None:
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock, **SMALL)
    stop = asyncio.Event()
    running = asyncio.create_task(store.run(stop))
    kept: list[bytes] = []
    for _ in range(3):
        put(store, b"%04d" % len(kept), properties=b"KEYS\x01k")
        store.commit_pending()
        kept.append(b"%04d" % len(kept))
    assert bodies(store) == kept
    files.fail = full(part, number)
    refusal = await put_until_refused(store, kept)
    store.look_at_disk()
    assert not running.done()
    if part in ("commitlog", "consumequeue", ""):
        assert refusal is not None
        assert str(ROOT) in refusal
    if part in ("consumequeue", ""):
        assert store.is_out_of_room
    found = bodies(store)
    assert found == kept[: len(found)], "what is readable is the beginning of what was stored"
    if is_killed:
        stop.set()
        files.fail = lambda change: None
        files = files.after_kill(len(files.journal))
        await running
        kill(store)
        store = open_store(ROOT, files, clock)
    else:
        files.fail = lambda change: None
        store.look_at_disk()
        assert store.is_writable
        assert await put_until_refused(store, kept) is None
        stop.set()
        await running
    assert bodies(store) == kept
    assert_queues_agree_with_log(store)


def test_a_broker_starts_on_a_full_disk_and_serves_what_it_has() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put(store, b"kept")
    store.commit_pending()
    store.close()
    files.fail = lambda change: full("", errno.ENOSPC)(change) if change.kind != "create" else None
    store = open_store(ROOT, files)
    assert bodies(store) == [b"kept"]
    with pytest.raises(ServiceNotAvailable, match="no room"):
        put(store, b"refused")
    files.fail = lambda change: None
    store.look_at_disk()
    put(store, b"more")
    store.commit_pending()
    assert bodies(store) == [b"kept", b"more"]
