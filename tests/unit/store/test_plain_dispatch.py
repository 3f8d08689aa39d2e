"""The short way of dispatch makes the same queue entries as the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.store.message_store import MessageStore
from failback.broker.store.writing.dispatch import Dispatcher
from failback.protocol.codes import SCHEDULE_TOPIC
from failback.protocol.message import pack_host
from tests.support.common.counts import examples
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import BORN_HOST, Clock, open_store, put

ROOT = Path("/s")

KINDS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["A", "Topic", SCHEDULE_TOPIC]),
        "queue_id": st.integers(0, 1),
        "body": st.binary(max_size=60),
        "properties": st.sampled_from(
            [b"", b"TAGS\x01a", b"KEYS\x01TAGS\x02TAGS\x01b", b"DELAY\x012", b"XTAGS\x01c"]
        ),
        "born_host": st.sampled_from([BORN_HOST, pack_host("::1", 5)]),
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12]),
    }
)


class LongWay(Dispatcher):
    """Looks at every record with ``read_record``."""

    def _enter_plain(self, view: memoryview, at: int, start: int, stop: int) -> tuple[int, int]:
        return at, 0


def slave(*, long_way: bool) -> MessageStore:
    store = open_store(ROOT, CrashingFiles(), Clock(), broker_role="SLAVE")
    if long_way:
        store._dispatcher.__class__ = LongWay
    return store


def entries(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    found = {}
    for topic, queue_id in store.queues():
        queue = store._queues.get(topic, queue_id)
        assert queue is not None
        if count := queue.max_offset:
            found[topic, queue_id] = [bytes(queue.entries(at, 1)) for at in range(count)]
    return found


def places(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    """Return the entries without their tags codes, which ``put`` was not told."""
    return {queue: [entry[:12] for entry in of] for queue, of in entries(store).items()}


@settings(max_examples=examples(50))
@given(st.lists(KINDS, max_size=12), st.lists(st.integers(20, 700), min_size=1, max_size=5))
def test_both_ways_enter_the_same(kinds: list[dict[str, object]], cuts: list[int]) -> None:
    clock = Clock()
    master = open_store(ROOT, CrashingFiles(), clock)
    for kind in kinds:
        clock.now += 1
        put(master, **kind)  # type: ignore[arg-type]
        master.commit_pending()
    short, long = slave(long_way=False), slave(long_way=True)
    for store in (short, long):
        number = 0
        while (at := store.max_physical_offset) < master.max_physical_offset:
            store.append_raw(at, bytes(master.read_raw(at, cuts[number % len(cuts)])))
            number += 1
    assert entries(short) == entries(long)
    assert places(short) == places(master)
    assert short.dispatch_behind_bytes() == long.dispatch_behind_bytes() == 0
    assert short._dispatcher.store_timestamp == long._dispatcher.store_timestamp


def test_a_slave_enters_plain_records_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    master = open_store(ROOT, CrashingFiles())
    for number in range(5):
        put(master, b"body", queue_id=number % 2, tag="a")
    master.commit_pending()
    monkeypatch.setattr(Dispatcher, "enter", None)
    store = slave(long_way=False)
    store.append_raw(0, bytes(master.read_raw(0, 1 << 20)))
    assert [store.max_queue_offset("TopicTest", queue) for queue in (0, 1)] == [3, 2]
