"""Index files byte for byte as 4.9.8 writes them, and what their chains lead to.

Origin of the example: IndexFile of apache/rocketmq 4.9.8 with its default sizes.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from failback.broker.store.index.index_file import IndexFile, index_file_bytes
from failback.broker.store.index.index_keys import (
    KeyHasher,
    KeyScan,
    NewEntry,
    hash_tails,
    key_hash,
    keys_of,
    without_sign,
)
from failback.broker.store.index.index_service import file_name
from failback.protocol.codes import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from failback.protocol.message import pack_host
from tests.support.common.counts import examples
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import open_store, put

PATH = Path("/s/index/20231114221320123")
BEGAN = 1_700_000_000_123
FOREVER = 2**63 - 1


def new_file(slots: int, entries: int) -> tuple[IndexFile, CrashingFiles]:
    files = CrashingFiles()
    files.create(PATH, index_file_bytes(slots, entries), durable=False)
    return IndexFile(PATH, slots, entries), files


def select(file: IndexFile, files: CrashingFiles, key: int, begin: int, end: int) -> list[int]:
    found: list[int] = []
    for _ in file.select(files.open(PATH), key, begin, end, 64, found):
        pass
    return found


class OneByOne:
    """The format as its description reads: one entry at a time, straight into the bytes."""

    def __init__(self, slots: int, entries: int, begin_timestamp: int, begin_offset: int) -> None:
        self.slots, self.entries = slots, entries
        self.data = bytearray(index_file_bytes(slots, entries))
        self.count, self.used = 1, 0
        self.ends = [begin_timestamp, begin_timestamp, begin_offset, begin_offset]
        struct.pack_into(">qqqq", self.data, 0, *self.ends)

    def put(self, new: NewEntry) -> bool:
        if self.count >= self.entries:
            return False
        key_hash, physical_offset, timestamp = new
        slot_at = 40 + key_hash % self.slots * 4
        (previous,) = struct.unpack_from(">i", self.data, slot_at)
        self.used += previous == 0
        seconds = (timestamp - self.ends[0]) // 1000 if self.ends[0] > 0 else 0
        entry = (key_hash, physical_offset, min(max(seconds, 0), 2**31 - 1), previous)
        struct.pack_into(">iqii", self.data, 40 + self.slots * 4 + self.count * 20, *entry)
        struct.pack_into(">i", self.data, slot_at, self.count)
        if self.count == 1:
            self.ends[0], self.ends[2] = timestamp, physical_offset
        self.ends[1], self.ends[3] = timestamp, physical_offset
        self.count += 1
        struct.pack_into(">qqqqii", self.data, 0, *self.ends, self.used, self.count)
        return True


def test_the_only_key_of_a_file_of_default_size() -> None:
    hashed = key_hash("TopicTest", "order-1")
    assert hashed == 0x6D0746D0
    file, files = new_file(5_000_000, 3)  # as many slots as usual, which decide the places
    file.add(files.open(PATH), [(hashed, 1 << 30, BEGAN)], 0)
    data = bytes(files.content[PATH])
    assert data[:40] == bytes.fromhex(
        "0000018bcfe5687b 0000018bcfe5687b 0000000040000000 0000000040000000 00000001 00000002"
    )
    assert data[16_773_736:16_773_740] == bytes.fromhex("00000001")
    assert data[20_000_060:20_000_080] == bytes.fromhex(
        "6d0746d0 0000000040000000 00000000 00000000"
    )
    assert not any(data[40:16_773_736] + data[16_773_740:20_000_060] + data[20_000_080:])
    assert index_file_bytes(5_000_000, 20_000_000) == 420_000_040


new_entries = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 1 << 40),
        st.integers(BEGAN - 5000, BEGAN + 60_000) | st.integers(0, 2**42),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(
    new=new_entries,
    cuts=st.lists(st.integers(0, 60), max_size=5),
    slots=st.integers(1, 9),
    before=st.tuples(st.integers(0, BEGAN), st.integers(0, 99)),
)
def test_batches_of_any_size_leave_the_bytes_of_single_entries(
    new: list[NewEntry], cuts: list[int], slots: int, before: tuple[int, int]
) -> None:
    entries = 40
    reference = OneByOne(slots, entries, *before)
    put = sum(reference.put(each) for each in new)
    file, files = new_file(slots, entries)
    handle = files.open(PATH)
    last = IndexFile(PATH, slots, entries)
    last.end_timestamp, last.end_offset = before
    file.begin_after(handle, last)
    done = 0
    for start, end in pairwise(sorted({0, *(cut for cut in cuts if cut < len(new)), len(new)})):
        if done == start:
            done += file.add(handle, new[:end], start)
    assert done == put == min(len(new), entries - 1)
    assert bytes(files.content[PATH]) == bytes(reference.data)
    assert file.is_full is (put == entries - 1)
    assert file.is_whole(handle)
    again = IndexFile(PATH, slots, entries)
    again.load(handle)
    assert vars(again) | {"mapped": None, "unsynced": True} == vars(file) | {"mapped": None}


@settings(deadline=None)
@given(new=new_entries, key=st.integers(0, 40), times=st.tuples(st.integers(), st.integers()))
def test_a_chain_brings_what_looking_at_every_entry_brings(
    new: list[NewEntry], key: int, times: tuple[int, int]
) -> None:
    """Within stored time, that is; the timestamps of a log never decrease."""
    ordered = sorted(new, key=lambda each: each[2])
    begin, end = (BEGAN + each % 60_000 for each in times)
    file, files = new_file(7, 100)
    file.add(files.open(PATH), ordered, 0)
    first = ordered[0][2]
    seconds = [min((each[2] - first) // 1000, 2**31 - 1) for each in ordered]
    if not first:
        seconds = [0 if at == 0 else second for at, second in enumerate(seconds)]
    expected = [
        each[1]
        for each, second in zip(ordered, seconds, strict=True)
        if each[0] == key and begin <= first + second * 1000 <= end
    ]
    if first > 0:
        assert select(file, files, key, begin, end) == expected[::-1]


def test_a_batch_that_was_cut_off_shows() -> None:
    new = [(number % 5, 100 * number, BEGAN) for number in range(1, 20)]
    file, files = new_file(3, 40)
    file.add(files.open(PATH), new, 12)  # 7 of them
    start = len(files.journal)
    file.add(files.open(PATH), new[:12], 0)
    steps = range(start, len(files.journal) + 1)
    for point in steps:
        handle = files.after_kill(point).open(PATH)
        found = IndexFile(PATH, 3, 40)
        found.load(handle)
        assert found.is_whole(handle) is (point in (steps[0], steps[-1]))
    for point in range(1, start):  # also the first batch of a file
        handle = files.after_kill(point).open(PATH)
        found = IndexFile(PATH, 3, 40)
        found.load(handle)
        assert found.is_whole(handle) is (point == 1)


def test_a_loop_in_a_damaged_chain_is_left() -> None:
    file, files = new_file(1, 10)
    file.add(files.open(PATH), [(1, 5, BEGAN), (1, 6, BEGAN)], 0)
    struct.pack_into(">i", files.content[PATH], 44 + 20 + 16, 2)  # entry 1 leads to entry 2
    assert select(file, files, 1, 0, FOREVER) == [6, 5]


@pytest.mark.parametrize(
    ("state", "hashed"),
    [(0, 0), (5, 5), (0x7FFFFFFF, 0x7FFFFFFF), (0x80000000, 0), (0xFFFFFFFF, 1)],
)
def test_hashes_have_no_sign(state: int, hashed: int) -> None:
    assert without_sign(state) == hashed


@settings(deadline=None)
@given(st.text(max_size=40), st.lists(st.text(st.characters(codec="utf-8"), max_size=40)))
def test_keys_in_bytes_have_the_hash_of_their_text(topic: str, keys: list[str]) -> None:
    hasher = KeyHasher()
    topic = topic.encode(errors="replace").decode()
    for key in keys * 2:
        piece = bytes((len(topic.encode()),)) + topic.encode()
        assert hasher(piece, key.encode()) == key_hash(topic, key)


pairs = st.sampled_from(
    [
        "UNIQ_KEY\x010123456789ABCDEF01234567",
        "UNIQ_KEY\x010123456789ABCDEF76543210",
        "UNIQ_KEY\x010123456789ABCDEF7654",
        "UNIQ_KEY\x010123456789ABCDEF765\u00e4321",
        "UNIQ_KEY\x01short",
        "UNIQ_KEY\x01",
        "MY_UNIQ_KEY\x010123456789ABCDEF01234567",
        "KEYS\x01a b",
        "CLUSTER\x01bench",
        "TAGS\x01t",
    ]
)
flags = st.sampled_from([0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
stored_records = st.lists(
    st.tuples(
        st.lists(pairs, max_size=3) | st.just(["UNIQ_KEY\x010123456789ABCDEF01234567"]),
        st.sampled_from([b"TopicA", b"TopicB"]),
        flags | st.just(0),
        st.sampled_from(["192.168.1.10", "2001:db8::1"]) | st.just("192.168.1.10"),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=examples(60))
@given(stored_records)
@example([(["UNIQ_KEY\x010123456789ABCDEF01234567", "UNIQ_KEY\x01"], b"TopicA", 0, "10.0.0.1")])
@example(
    [
        (["UNIQ_KEY\x010123456789ABCDEF" + end, "CLUSTER\x01bench"], b"TopicA", 0, "10.0.0.1")
        for end in ("01234567", "0\x02T\x01tagX", "012345\u00e4", "01234568")
    ]
)
@example(
    [
        (["UNIQ_KEY\x010123456789ABCDEF01234567"], b"TopicA", 0, "10.0.0.1"),
        (["UNIQ_KEY\x010123456789ABCDEF7654"], b"TopicA", 0, "10.0.0.1"),
    ]
)
def test_what_was_just_stored_has_the_keys_that_the_log_shows(
    records: list[tuple[list[str], bytes, int, str]],
) -> None:
    files = CrashingFiles()
    store = open_store(Path("/s"), files, mapped_file_bytes=1 << 16, max_index_num=1000)
    appended = [
        put(
            store,
            b"body",
            topic=topic.decode(),
            properties="\x02".join(properties).encode(),
            sys_flag=flag,
            born_host=pack_host(host, 5000),
        )
        for properties, topic, flag, host in records
    ]
    parts = list(store._appender.keyed)
    store.commit_pending()
    stored: list[NewEntry] = []
    scan = KeyScan()
    scan.stored(parts, stored)
    read: list[NewEntry] = []
    view = store.read_raw(0, 1 << 16)
    assert scan.run(view, 0, 100, read) == store.max_physical_offset
    expected = [
        (key_hash(topic.decode(), key.decode()), at.physical_offset, at.store_timestamp)
        for at, (properties, topic, flag, _) in zip(appended, records, strict=True)
        if flag != TRANSACTION_ROLLBACK
        for key in keys_of("\x02".join(properties).encode())
    ]
    assert stored == read == expected


@given(st.lists(st.text(st.characters(max_codepoint=127), min_size=8, max_size=8), max_size=40))
def test_keys_hashed_together_are_as_hashed_one_by_one(tails: list[str]) -> None:
    hasher, topics = KeyHasher(), [b"\x01T", b"\x05Other"]
    starts = [hasher.start(topics[at % 2], b"0A" + tail.encode()) for at, tail in enumerate(tails)]
    assert hash_tails([tail.encode() for tail in tails], starts) == [
        key_hash("Other" if at % 2 else "T", f"0A{tail}") for at, tail in enumerate(tails)
    ]


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        (b"", []),
        (b"TAGS\x01a\x02UNIQ_KEY\x01U1\x02KEYS\x01k1", [b"U1", b"k1"]),
        (b"KEYS\x01 k1  k2 \x02UNIQ_KEY\x01U1\x02", [b"U1", b"k1", b"k2"]),
        (b"MY_KEYS\x01a\x02NOT_UNIQ_KEY\x01b", []),
        (b"KEYS\x01a\x02KEYS\x01b", [b"b"]),
        (b"KEYS\x01\x02UNIQ_KEY\x01", []),
    ],
)
def test_what_a_record_is_found_by(properties: bytes, keys: list[bytes]) -> None:
    assert keys_of(properties) == keys


def test_names_are_local_times_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert file_name(BEGAN, "") == "20231114221320123"
    assert file_name(BEGAN, "20231114221320122") == "20231114221320123"
    assert file_name(BEGAN, "20231114221320123") == "20231114221320124"
    assert file_name(BEGAN - 3_600_000, "20231114221320123") == "20231114221320124"
