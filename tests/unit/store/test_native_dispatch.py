"""Dispatch by a kernel leaves what dispatch in Python leaves: entries, index, errors, writes."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.native import kernels
from failback.broker.store.index.index_keys import PACKED, key_hash
from failback.broker.store.log.record import tags_code_of
from failback.broker.store.message_store import MessageStore
from failback.broker.store.queues.consume_queue import ENTRY
from failback.broker.store.writing.dispatch import Dispatcher
from failback.protocol.codes import SCHEDULE_TOPIC
from tests.support.common.counts import each_seed, examples
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.damaged_logs import ROOT, SIZES, mutated, some_log
from tests.support.store.store_kit import Clock, open_store, put
from tests.support.store.without_kernels import in_python

pytestmark = [
    pytest.mark.skipif(kernels is None, reason="there are no kernels"),
]


def state_of(store: MessageStore, files: CrashingFiles) -> dict[str, Any]:
    dispatcher = store._dispatcher
    found: dict[str, Any] = {
        "position": dispatcher.position,
        "stuck_at": dispatcher.stuck_at,
        "store_timestamp": dispatcher.store_timestamp,
        "queues": {
            (queue.topic, queue.queue_id): (
                queue.min_offset,
                queue.max_offset,
                queue.next_offset,
                queue.committed_offset,
                queue.max_physical_offset,
                queue.misplaced_count,
                [queue.entry(at) for at in range(queue.min_offset, queue.max_offset)],
            )
            for queue in store._queues
        },
    }
    store.close()
    found["index"] = store._index.position
    found["journal"] = files.journal
    return found


def copied(log: bytes, first: int, cuts: list[int], caplog: Any) -> dict[str, Any]:
    """Return what a slave that got ``log`` in pieces is left with, and what it said."""
    caplog.clear()
    files = CrashingFiles()
    slave = open_store(ROOT, files, Clock(), broker_role="SLAVE", **SIZES)
    at, number = first, 0
    while at < len(log):
        size = SIZES["mapped_file_bytes"]
        end = min(at + cuts[number % len(cuts)], at - at % size + size, len(log))
        slave.append_raw(at, log[at:end])
        at, number = end, number + 1
    return state_of(slave, files) | {"said": caplog.messages.copy()}


@each_seed(60)
def test_a_slave_is_left_with_the_same_whatever_its_master_sends(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    log = some_log(random, random.choice([1, 20, 150]))
    if seed % 3:
        log = mutated(random, log)
    size = SIZES["mapped_file_bytes"]
    first = size if len(log) > size and seed % 4 == 0 else 0
    cuts = [random.choice([50, 700, 4000, 1 << 14]) for _ in range(4)]
    by_kernel = copied(log, first, cuts, caplog)
    with in_python():
        assert copied(log, first, cuts, caplog) == by_kernel


def test_a_kernel_takes_what_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    for number in range(50):
        put(master, b"body", queue_id=number % 3, tag="a")
    master.commit_pending()
    monkeypatch.setattr(Dispatcher, "enter", None)
    monkeypatch.setattr(Dispatcher, "_enter_one_by_one", None)
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE", **SIZES)
    slave.append_raw(0, bytes(master.read_raw(0, 1 << 14)))
    assert [slave.max_queue_offset("TopicTest", queue) for queue in range(3)] == [17, 17, 16]


def test_more_queues_than_one_call_takes() -> None:
    master = open_store(ROOT, CrashingFiles(), mapped_file_bytes=1 << 20)
    for number in range(1400):
        put(master, b"", topic=f"Topic{number % 350}", queue_id=number % 2)
    master.commit_pending()
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE", mapped_file_bytes=1 << 20)
    slave.append_raw(0, bytes(master.read_raw(0, 1 << 20)))
    counts = [slave.max_queue_offset(f"Topic{at}", at % 2) for at in range(350)]
    assert counts == [4] * 350


@pytest.mark.parametrize("kept", [0, 1, 5, 9])
def test_of_what_a_queue_has_already_only_the_rest_is_entered(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    for number in range(20):
        put(master, b"body", queue_id=number % 2)
    master.commit_pending()
    log = bytes(master.read_raw(0, 1 << 14))
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE", **SIZES)
    slave.append_raw(0, log)
    entries = [slave.entries("TopicTest", queue, 0, 10) for queue in (0, 1)]
    slave._queues.find_or_create(b"TopicTest", 1).truncate(len(log) // 10 * kept)
    assert slave.max_queue_offset("TopicTest", 1) == kept
    monkeypatch.setattr(Dispatcher, "enter", None)
    monkeypatch.setattr(Dispatcher, "_enter_one_by_one", None)
    slave._dispatcher.position = 0
    slave._dispatcher.catch_up()
    assert [slave.entries("TopicTest", queue, 0, 10) for queue in (0, 1)] == entries


def test_records_that_end_before_what_a_queue_knows_are_not_entered() -> None:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    for number in range(20):
        put(master, b"body", queue_id=number % 2)
    master.commit_pending()
    log = bytes(master.read_raw(0, 1 << 14))
    slave = open_store(ROOT, CrashingFiles(), broker_role="SLAVE", **SIZES)
    slave._queues.find_or_create(b"TopicTest", 1).max_physical_offset = len(log) // 2
    slave.append_raw(0, log)
    assert [slave.min_queue_offset("TopicTest", queue) for queue in (0, 1)] == [0, 5]
    assert [slave.max_queue_offset("TopicTest", queue) for queue in (0, 1)] == [10, 10]


def scan(log: bytes, *, at: int = 0, start: int = 0, last: int | None = None) -> Any:
    assert kernels is not None
    end = len(log) if last is None else last
    return kernels.scan_plain(memoryview(log), at, start, end, SCHEDULE_TOPIC.encode(), True)


def test_what_a_kernel_finds() -> None:
    clock = Clock()
    master = open_store(ROOT, CrashingFiles(), clock, **SIZES)
    for number in range(5):
        clock.now += 1
        properties = f"TAGS\x01t{number}\x02KEYS\x01k{number} all".encode()
        put(master, b"12345", topic="AB"[number % 2], properties=properties)
        master.commit_pending()
    log = bytes(master.read_raw(0, 1 << 14))
    size = len(log) // 5
    end, count, timestamp, groups, keys = scan(log)
    assert (end, count, timestamp) == (len(log), 5, clock.now)
    codes = [tags_code_of(b"TAGS\x01t%d" % number) for number in range(5)]
    of_queue = [
        b"".join(ENTRY.pack(number * size, size, codes[number]) for number in numbers)
        for numbers in (range(0, 5, 2), range(1, 5, 2))
    ]
    assert groups == [
        (b"A", 0, 0, size, 5 * size, of_queue[0]),
        (b"B", 0, 0, 2 * size, 4 * size, of_queue[1]),
    ]
    assert list(PACKED.iter_unpack(keys)) == [
        (key_hash("AB"[number % 2], key), number * size, 1_700_000_000_001 + number)
        for number in range(5)
        for key in (f"k{number}", "all")
    ]
    assert scan(log[:-1])[:2] == (4 * size, 4)
    assert scan(log, last=2 * size)[:2] == (2 * size, 2)
    assert scan(log, at=size)[:2] == (len(log), 4)
    assert scan(log, start=1) == (0, 0, 0, [], b"")


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, b"\0\0\0\x5b"),  # size: others than the lengths inside add up to
        (0, b"\x7f\xff\xff\xff"),
        (0, b"\xff\xff\xff\xff"),
        (4, b"\xda\xa3\x20\xa8"),
        (20, struct.pack(">q", 1)),  # queue offset: an entry twice, a gap, below 0
        (20, struct.pack(">q", 3)),
        (20, struct.pack(">q", 2**63 - 1)),
        (20, struct.pack(">q", -1)),
        (28, struct.pack(">q", 0)),  # physical offset
        (36, b"\0\0\0\4"),  # flags: prepared, rolled back, long hosts
        (36, b"\0\0\0\x0c"),
        (36, b"\0\0\0\x10"),
        (36, b"\0\0\0\x20"),
        (84, b"\0\0\0\6"),  # length of the body
        (84, b"\x7f\xff\xff\xff"),
        (84, b"\xff\xff\xff\xff"),
        (84, b"\xff\xff\xff\xa8"),
        (93, b"\6"),  # length of the topic
        (93, b"\xff"),
        (99, b"\0\7"),  # length of the properties
        (99, b"\xff\xff"),
    ],
)
def test_a_kernel_stops_at_what_is_not_plain(position: int, value: bytes) -> None:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    for _ in range(4):
        put(master, b"12345", topic="Topic", properties=b"TAGS\x01a")
    master.commit_pending()
    log = bytearray(master.read_raw(0, 1 << 14))
    size = len(log) // 4
    assert scan(bytes(log))[1] == 4
    log[2 * size + position : 2 * size + position + len(value)] = value
    assert scan(bytes(log))[:2] == (2 * size, 2)


def test_a_kernel_leaves_delayed_records_to_python() -> None:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    for topic in ("Topic", SCHEDULE_TOPIC, "Topic"):
        put(master, b"12345", topic=topic, properties=b"DELAY\x011")
    master.commit_pending()
    log = bytes(master.read_raw(0, 1 << 14))
    assert scan(log)[1] == 1


@settings(max_examples=examples(300))
@given(
    st.binary(max_size=300),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(0, 2**63 - 1),
)
def test_no_bytes_lead_a_kernel_out_of_its_view(data: bytes, cut: int, at: int, start: int) -> None:
    assert kernels is not None
    head = struct.pack(">II", len(data), 0xDAA320A7) + data[8:]
    for log in (data, head[:cut]):
        if at > len(log) or start > 2**63 - 1 - len(log):
            with pytest.raises(ValueError, match="outside"):
                scan(log, at=at, start=start)
            with pytest.raises(ValueError, match="outside"):
                kernels.scan_keys(log, at, start, 9)
        else:
            assert scan(log, at=at, start=start)[0] >= at
            assert kernels.scan_keys(log, at, start, 9)[1] >= at


@each_seed(40)
def test_no_damaged_log_leads_a_kernel_out_of_its_view(seed: int) -> None:
    assert kernels is not None
    random = Random(seed)
    for _ in range(10):
        log = mutated(random, some_log(random, 12))
        log = log[: random.randrange(len(log) + 1)]
        ends = [scan(log)[0], kernels.scan_keys(log, 0, 0, 100)[1]]
        assert max(ends) <= len(log)
