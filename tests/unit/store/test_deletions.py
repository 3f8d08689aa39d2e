"""Topics deleted and made again: after any crash, and on a slave, only their later life."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.store.log.deletion import Deleted, Deletion
from failback.broker.store.log.results import ServiceNotAvailable, WriteFailed
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import SCHEDULE_TOPIC, TRANSACTION_ROLLBACK
from failback.protocol.message import encode_record
from tests.support.common.counts import examples
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.store_kit import (
    BORN_HOST,
    STORE_HOST,
    kill,
    make_store,
    open_store,
    put,
    put_all,
    queue_messages,
)
from tests.support.store.without_kernels import in_python

pytestmark = pytest.mark.foreign

ROOT = Path("/s")
TOPICS = ("orders", "paid")


def copied(master: MessageStore, *, cut: int = 1 << 20) -> MessageStore:
    """Return a slave that got the master's log in pieces of at most ``cut`` bytes."""
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE")
    copy(slave, master, cut)
    return slave


def copy(slave: MessageStore, master: MessageStore, cut: int) -> None:
    while slave.max_physical_offset < master.max_physical_offset:
        at = slave.max_physical_offset
        slave.append_raw(at, bytes(master.read_raw(at, cut)))


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in queue_messages(store, topic, queue_id)]


def everything(_step: int) -> bool:
    return True


def nothing(_step: int) -> bool:
    return False


@contextlib.contextmanager
def either_way(*, compiled: bool) -> Iterator[None]:
    with contextlib.nullcontext() if compiled else in_python():
        yield


@settings(max_examples=examples(150), deadline=None)
@given(
    compiled=st.booleans(),
    cut=st.integers(20, 900),
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(TOPICS), st.integers(0, 1), st.integers(0, 200)),
            st.sampled_from(
                ["delete orders", "delete paid", "commit", "close", "kill", "power", "copy"]
            ),
        ),
        max_size=40,
    ),
)
def test_only_the_later_life_is_there(
    compiled: bool, cut: int, steps: list[tuple[str, int, int] | str]
) -> None:
    """After each step that makes things whole, on the master and on a slave that copies it."""
    with either_way(compiled=compiled):
        files = CrashingFiles()
        store, slave = (
            open_store(ROOT, files),
            open_store(ROOT, CrashingFiles(), broker_role="SLAVE"),
        )
        model: dict[tuple[str, int], list[bytes]] = {}
        number = 0
        for step in steps:
            if isinstance(step, tuple):
                topic, queue_id, size = step
                number += 1
                body = b"%d " % number + bytes(size)
                put_all(store, body, topic=topic, queue_id=queue_id)
                model.setdefault((topic, queue_id), []).append(body)
            elif step.startswith("delete"):
                topic = step.split()[1]
                store.delete_topic(topic)
                model = {place: held for place, held in model.items() if place[0] != topic}
            elif step == "copy":
                copy(slave, store, cut)
                check(slave, model)
            elif step == "commit":
                store.flush()
                store.flush_queues()
            else:
                if step == "close":
                    store.close()
                elif step == "kill":
                    kill(store)
                else:
                    store.flush()
                    kill(store)
                    keep = everything if number % 2 else nothing
                    files = files.after_power_loss(len(files.journal), keep)
                store = open_store(ROOT, files)
                check(store, model)
        check(store, model)
        copy(slave, store, cut)
        check(slave, model)


def check(store: MessageStore, model: dict[tuple[str, int], list[bytes]]) -> None:
    for topic in TOPICS:
        for queue_id in (0, 1):
            assert bodies(store, topic, queue_id) == model.get((topic, queue_id), [])


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "python"])
@pytest.mark.parametrize("said", [True, False], ids=["said", "unsaid"])
def test_a_topic_made_anew_begins_again_on_a_slave_and_after_a_kill(
    said: bool, compiled: bool
) -> None:
    """Unsaid is what a Java broker leaves: records of both lives and nothing between them."""
    with either_way(compiled=compiled):
        files = CrashingFiles()
        store = open_store(ROOT, files)
        put_all(store, *(b"old%d" % number for number in range(5)), topic="orders")
        slave = copied(store)
        if said:
            store.delete_topic("orders")
        else:
            store._queues.delete_topic("orders")
        put_all(store, b"new0", b"new1", topic="orders")
        copy(slave, store, 70)
        kill(store)
        for each in (open_store(ROOT, files), slave, copied(open_store(ROOT, files))):
            assert bodies(each, "orders") == [b"new0", b"new1"]


@pytest.mark.parametrize("stop", [MessageStore.close, kill], ids=["close", "kill"])
def test_what_was_deleted_stays_gone_without_a_later_life(stop: object, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put_all(store, b"other", topic="paid")
    put_all(store, b"old0", b"old1", topic="orders")
    store.delete_topic("orders")
    assert not (tmp_path / "consumequeue/orders").exists()
    assert callable(stop)
    stop(store)
    store = open_store(tmp_path)
    assert bodies(store, "orders") == []
    assert bodies(store, "paid") == [b"other"]
    store.close()


def test_a_slave_hears_of_deletions_and_new_queues_in_the_order_of_the_log() -> None:
    master, heard = open_store(ROOT, CrashingFiles()), list[str | Deletion]()
    put_all(master, b"a", topic="orders")
    said = master.delete_topic("orders")
    group = master.deletions.say(Deleted.GROUP, "g" * 200)
    put_all(master, b"b", topic="orders")
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE")
    slave.deletions.hear(heard.append, heard.append)
    copy(slave, master, 64)
    assert heard == ["orders", said, group, "orders"]
    assert group.at_ms >= (said.at_ms if said else 0)


def test_a_deletion_has_no_place_in_any_queue_or_index() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, b"a", topic="orders")
    store.delete_topic("orders")
    assert [key for key in store.queues() if store.max_queue_offset(*key)] == []


def test_a_record_of_a_client_deletes_nothing() -> None:
    """It says the same words; but clients can't send to the topic that such records are of."""
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_all(store, b"a", topic="orders")
    words = Deleted.TOPIC.value + b"orders"
    put(store, topic="mine", properties=words, sys_flag=TRANSACTION_ROLLBACK)
    put(store, topic="mine", properties=words)
    store.commit_pending()
    kill(store)
    assert bodies(open_store(ROOT, files), "orders") == [b"a"]
    assert bodies(copied(store), "orders") == [b"a"]


def test_a_store_that_takes_nothing_deletes_nothing() -> None:
    store = open_store(ROOT, CrashingFiles())
    put_all(store, b"a", topic="orders")
    store._appender.refusal = "the broker's disk is full"
    with pytest.raises(ServiceNotAvailable, match="disk is full"):
        store.delete_topic("orders")
    assert bodies(store, "orders") == [b"a"]


def test_a_disk_that_fails_at_a_deletion_stops_the_store() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files)
    put_all(store, b"a", topic="orders")

    def fail(change: Change) -> None:
        if change.kind == "sync":
            raise OSError(errno.EIO, "I/O error")

    files.fail = fail
    with pytest.raises(WriteFailed, match="disk failed"):
        store.delete_topic("orders")
    assert bodies(store, "orders") == [b"a"]
    with pytest.raises(ServiceNotAvailable):
        put(store, b"b", topic="orders")


def test_a_slave_deletes_queues_and_says_nothing() -> None:
    master = open_store(ROOT, CrashingFiles())
    put_all(master, b"a", topic="orders")
    slave = copied(master)
    assert slave.delete_topic("orders") is None
    assert slave.max_physical_offset == master.max_physical_offset
    assert not make_store(ROOT, CrashingFiles()).is_writable


ODD_RECORDS: Mapping[str, dict[str, Any]] = {
    "a name that is none": {"topic": b""},
    "a path": {"topic": b"../orders"},
    "a folder": {"topic": b".."},
    "no text": {"topic": b"or\0ders"},
    "a queue below 0": {"queue_id": -1},
    "a queue offset below 0": {"queue_offset": -1},
    "a queue offset that is too large": {"queue_offset": (1 << 63) - 1},
    "a delay that is no number": {"topic": SCHEDULE_TOPIC, "properties": b"DELAY\x01soon"},
    "a delay of many digits": {"topic": SCHEDULE_TOPIC, "properties": b"DELAY\x01" + b"9" * 5000},
    "properties that are none": {"properties": b"\x01\x02\x02\x01TAGS\x01"},
    "no UTF-8": {"properties": b"TAGS\x01\xff\x02KEYS\x01\xfe"},
}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "python"])
def test_a_record_that_fits_no_queue_holds_up_no_dispatch(compiled: bool) -> None:
    """On a slave that copies it, and at a start after a kill."""
    log = b""
    for number, odd in enumerate([*ODD_RECORDS.values(), {}]):
        fields: dict[str, Any] = {"topic": b"orders", "queue_id": 0, "queue_offset": 0} | odd
        good: dict[str, Any] = {"topic": b"good", "queue_id": 0, "queue_offset": number}
        for each in (fields, good):
            log += encode_record(
                **each,
                body=b"%d" % number,
                physical_offset=len(log),
                store_timestamp=1_700_000_000_000,
                born_host=BORN_HOST,
                store_host=STORE_HOST,
            )
    with either_way(compiled=compiled):
        files = CrashingFiles()
        slave = open_store(ROOT, files, broker_role="SLAVE", mapped_file_bytes=1 << 16)
        slave.append_raw(0, log)
        assert slave.dispatch_until_stuck() is None
        wanted = [b"%d" % number for number in range(len(ODD_RECORDS) + 1)]
        assert bodies(slave, "good") == wanted
        kill(slave)
        again = open_store(ROOT, files, broker_role="SLAVE", mapped_file_bytes=1 << 16)
        assert bodies(again, "good") == wanted
        assert bodies(again, "orders")[-1:] == wanted[-1:]
