"""Keys found, packed and chained by kernels are those of Python, and so is every byte written."""

from __future__ import annotations

import mmap
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.native import kernels
from failback.broker.store.index.index_file import IndexFile, index_file_bytes
from failback.broker.store.index.index_keys import (
    PACKED,
    KeyScan,
    NewEntry,
    RecordParts,
    first_offset,
    key_hash,
    keys_of,
    packed_run,
    split_packed,
)
from failback.broker.store.log.files import OsFileHandle
from tests.support.common.counts import each_seed, examples
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.damaged_logs import mutated, some_log

pytestmark = [
    pytest.mark.skipif(kernels is None, reason="there are no kernels"),
]

PATH = Path("/s/index/20231114221320123")
BEGAN = 1_700_000_000_123


def packed(new: list[NewEntry]) -> bytes:
    return b"".join(PACKED.pack(*each) for each in new)


def pack_keys(records: list[Any]) -> bytes:
    assert kernels is not None
    keys: bytes = kernels.pack_keys(records)
    return keys


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)
pieces = st.sampled_from(
    [b"UNIQ_KEY\x01", b"KEYS\x01", b"TAGS\x01", b"\x02", b" ", b"\x01", b"KEYS", b"\xff", b"\xc3"]
)
properties = st.lists(pieces | texts.map(str.encode) | st.binary(max_size=9), max_size=12).map(
    b"".join
)
records = st.lists(
    st.tuples(
        st.integers(0, 2**63 - 1),
        st.integers(-(2**63), 2**63 - 1),
        (texts.map(str.encode) | st.binary(max_size=300)).map(lambda topic: b"\0" + topic),
        properties,
    ),
    max_size=8,
)


@settings(max_examples=examples(400), deadline=None)
@given(records)
def test_keys_of_stored_records_are_packed(stored: list[RecordParts]) -> None:
    found: list[NewEntry] = []
    KeyScan().stored(stored, found)
    assert pack_keys(stored) == packed(found)
    halves = [pack_keys(stored[:3]), *stored[3:5], pack_keys(stored[5:])]
    assert pack_keys(halves) == packed(found)


@pytest.mark.parametrize(
    "of",
    [
        b"UNIQ_KEY\x01C0A8010A00002A9F0000000000000001",
        b"KEYS\x01 k1  k2 \x02UNIQ_KEY\x01U1\x02",
        b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01\x02UNIQ_KEY\x01b\x02KEYS\x01c\x02KEYS\x01",
        b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01\x02",
        b"KEYS\x01" + "schl\u00fcssel \U0001f600 \ud7ff".encode(),
        b"KEYS\x01\xff \xc3 \xed\xa0\x80 \xf0\x9f\x98",
        b"MY_UNIQ_KEY\x01a\x02 KEYS\x01b",
        b"KEYS\x01" + b"k " * 3000,
    ],
)
def test_a_record_has_the_hashes_of_its_keys(of: bytes) -> None:
    topic = "Thema-\u00e4"
    expected = [(key_hash(topic, key.decode(errors="replace")), 7, 9) for key in keys_of(of)]
    assert pack_keys([(7, 9, b"\0" + topic.encode(), of)]) == packed(expected)


def test_the_hash_that_has_no_counterpart_is_0() -> None:
    key = "polygenelubricants"  # String.hashCode: -2^31
    topic = _before_hash("#" + key)
    assert key_hash(topic, key) == 0
    assert pack_keys([(0, 0, b"\0" + topic.encode(), b"KEYS\x01" + key.encode())]) == packed(
        [(0, 0, 0)]
    )


def _before_hash(rest: str) -> str:
    """Return a text that makes String.hashCode of it and ``rest`` -2^31."""
    behind = 0
    for unit in rest:
        behind = (31 * behind + ord(unit)) % 2**32
    wanted = (2**31 - behind) * pow(31, -len(rest), 2**32) % 2**32
    text = ""
    while wanted >= 0x8000:  # digits of base 31, characters of one unit each
        digit = (wanted - 0x40) % 31 + 0x40
        text = chr(digit) + text
        wanted = (wanted - digit) // 31
    return chr(wanted) + text if wanted else text


@pytest.mark.parametrize("bad", [(1, 2, b"\x01T"), (1.5, 2, b"\1T", b""), (1, 2, b"", b""), "x"])
def test_what_is_no_record_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        pack_keys([bad])


@each_seed(60)
def test_keys_of_any_log_are_those_that_python_reads(seed: int) -> None:
    random = Random(seed)
    log = some_log(random, random.choice([3, 40]))
    if seed % 2:
        log = mutated(random, log)
    if seed % 3 == 0:
        log = log[: random.randrange(len(log) + 1)]
    for most in (1, 5, 1000):
        view, start = memoryview(log), random.choice([0, 1 << 40])
        found: list[NewEntry] = []
        read = KeyScan().run(view, start, most, found)
        assert packed_run(view, start, most) == (packed(found), read)


def test_keys_of_one_record_stay_together() -> None:
    keys = packed([(1, 10, 0), (2, 20, 0), (3, 20, 0), (4, 20, 0), (5, 30, 0)])
    cut = [len(split_packed(keys, most)[0]) // PACKED.size for most in range(1, 6)]
    assert cut == [1, 4, 4, 4, 5]
    assert first_offset(split_packed(keys, 2)[1]) == 30
    assert b"".join(split_packed(keys, 2)) == keys


new_entries = st.lists(
    st.tuples(
        st.integers(0, 40) | st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(BEGAN - 5000, BEGAN + 60_000) | st.integers(-(2**63), 2**63 - 1),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    new=new_entries,
    cuts=st.lists(st.integers(0, 60), max_size=4),
    slots=st.integers(1, 9) | st.just(1000),
    before=st.tuples(st.integers(0, BEGAN), st.integers(0, 99)),
    used=st.integers(-3, 3),
    damage=st.lists(
        st.tuples(st.integers(0, 8), st.integers(-2, 12) | st.integers(-(2**31), 2**31 - 1)),
        max_size=3,
    ),
)
def test_packed_keys_are_entered_as_others_are(
    new: list[NewEntry],
    cuts: list[int],
    slots: int,
    before: tuple[int, int],
    used: int,
    damage: list[tuple[int, int]],
) -> None:
    left = []
    for keys in (new, packed(new)):
        files = CrashingFiles()
        files.create(PATH, index_file_bytes(slots, 40), durable=False)
        for slot, word in damage:
            at = 40 + 4 * (slot % slots)
            files.content[PATH][at : at + 4] = word.to_bytes(4, "big", signed=True)
        handle, file = files.open(PATH), IndexFile(PATH, slots, 40)
        last = IndexFile(PATH, slots, 40)
        last.end_timestamp, last.end_offset = before
        file.begin_after(handle, last)
        file.used_slots = used
        done = [file.add(handle, keys, start) for start in [*cuts, 0] if start < len(new)]
        left.append((done, files.journal, vars(file) | {"mapped": None}))
    assert left[0] == left[1]


@pytest.mark.parametrize(
    ("start", "taken", "slots_at", "slots", "count"),
    [
        (0, 3, 40, 10, 1),
        (-1, 1, 40, 10, 1),
        (3, 1, 40, 10, 1),
        (2**62, 2**62, 40, 10, 1),
        (0, 2, 40, 0, 1),
        (0, 2, 40, 11, 1),
        (0, 2, 81, 1, 1),
        (0, 2, 2**62, 1, 1),
        (0, 2, 40, 2**62, 1),
        (0, 2, 40, 10, 0),
        (0, 2, 40, 10, 2**31 - 2),
    ],
)
def test_no_number_leads_a_kernel_out_of_its_file(
    start: int, taken: int, slots_at: int, slots: int, count: int
) -> None:
    assert kernels is not None
    file, keys = bytes(80), packed([(1, 2, 3), (9, 5, 6)])
    assert len(kernels.chain_keys(file, keys, 0, 2, 40, 10, 1, 0, 0)[0]) == 40
    with pytest.raises(ValueError, match=r"."):
        kernels.chain_keys(file, keys, start, taken, slots_at, slots, count, 0, 0)


@pytest.mark.parametrize("hashed", [-1, 2**31])
def test_a_hash_that_no_key_has_is_refused(hashed: int) -> None:
    assert kernels is not None
    with pytest.raises(ValueError, match="31 bits"):
        kernels.chain_keys(bytes(80), packed([(hashed, 2, 3)]), 0, 1, 40, 10, 1, 0, 0)


@given(st.dictionaries(st.integers(0, 96), st.integers(-(2**31), 2**31 - 1)))
def test_words_are_written_as_by_python(words: dict[int, int]) -> None:
    assert kernels is not None
    by_kernel, by_python = bytearray(100), bytearray(100)
    kernels.write_words(by_kernel, words)
    for position, value in words.items():
        by_python[position : position + 4] = value.to_bytes(4, "big", signed=True)
    assert by_kernel == by_python


@pytest.mark.parametrize("words", [{97: 1}, {-1: 1}, {2**62: 1}, {0: 2**31}, {0: -(2**31) - 1}])
def test_words_elsewhere_are_refused(words: dict[int, int]) -> None:
    assert kernels is not None
    with pytest.raises(ValueError, match="word"):
        kernels.write_words(bytearray(100), words)


def test_a_file_takes_words_and_can_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(mmap.PAGESIZE))
    handle = OsFileHandle(path)
    handle.reserve(mmap.PAGESIZE)
    handle.write_words({4: 7, 1024: -1})
    handle.close()
    data = path.read_bytes()
    assert (data[4:8], data[1024:1028]) == (b"\0\0\0\7", b"\xff" * 4)
