"""The kernel that walks queue entries chooses what its twin in Python chooses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.native import kernels
from failback.broker.store.queues.consume_queue import ENTRY, PRE_BLANK
from failback.broker.store.reading.reading import _Scan, _walk_entries
from tests.support.common.counts import examples

pytestmark = [
    pytest.mark.skipif(kernels is None, reason="there are no kernels"),
]

FILE_BYTES = 1000
NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING = 1, 2
codes = st.sampled_from([0, 1, -1, 7, 1 << 31, (1 << 32) + 7, -(1 << 63), (1 << 63) - 1])


@st.composite
def queues(draw: st.DrawFn) -> bytes:
    """Entries as a queue has them: ascending, many adjacent, some far away, some blank."""
    place, entries = draw(st.integers(0, 3000)), []
    for _ in range(draw(st.integers(0, 40))):
        size = draw(st.integers(0, 120))
        entries.append(ENTRY.pack(place, size, draw(codes)))
        place += size + draw(st.sampled_from([0, 0, 0, 0, 1, 50, 700]))
        if draw(st.integers(0, 20)) == 0:
            entries.append(PRE_BLANK)
    return b"".join(entries)


odd_entries = st.lists(
    st.tuples(
        st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 5000),
        st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 200),
        codes,
    )
).map(lambda entries: b"".join(ENTRY.pack(*entry) for entry in entries))


def scan(
    tail: int = 100_000,
    start: int = 0,
    tags: frozenset[int] | None = None,
    most: int = 32,
    most_bytes: int = 1 << 20,
    in_memory_bytes: int = 1 << 20,
) -> _Scan:
    log: Any = SimpleNamespace(
        tail=tail, min_offset=start, files=SimpleNamespace(file_bytes=FILE_BYTES)
    )
    config: Any = SimpleNamespace(
        in_memory_bytes=in_memory_bytes,
        max_transfer_count_in_memory=32,
        max_transfer_bytes_in_memory=most_bytes,
        max_transfer_count_on_disk=8,
        max_transfer_bytes_on_disk=most_bytes // 4,
    )
    return _Scan(log, config, most, tags)


def by_kernel(scan: _Scan, entries: bytes) -> Any:
    assert _walk_entries is not None
    return _walk_entries(
        memoryview(entries),
        scan._tag_filter,
        scan._log.min_offset,
        scan._log.tail,
        scan._log.files.file_bytes,
        scan._in_memory_from,
        scan._memory_limits,
        scan._disk_limits,
    )


@settings(max_examples=examples(500))
@given(
    entries=queues(),
    tail=st.integers(0, 9000),
    start=st.integers(-1, 3000),
    tags=st.none() | st.frozensets(st.sampled_from([0, 1, -1, 7, -(1 << 31)])),
    most=st.integers(-1, 50),
    most_bytes=st.integers(0, 2000),
    in_memory_bytes=st.integers(0, 9000),
)
def test_both_choose_the_same(entries: bytes, **limits: Any) -> None:
    one = scan(**limits)
    assert by_kernel(one, entries) == one.walk(memoryview(entries))


@given(entries=odd_entries, tail=st.integers(0, (1 << 63) - 1))
def test_what_no_queue_of_ours_holds_is_left_to_the_twin(entries: bytes, tail: int) -> None:
    one = scan(tail, in_memory_bytes=1000)
    found = by_kernel(one, entries)
    assert found is None or found == one.walk(memoryview(entries))


def test_a_number_below_0_is_left_to_the_twin() -> None:
    assert by_kernel(scan(), ENTRY.pack(-1, 5, 0)) is None
    assert by_kernel(scan(), ENTRY.pack(5, -1, 0)) is None
    assert by_kernel(scan(), ENTRY.pack((1 << 63) - 5, 1, 0)) is None


def test_adjacent_records_are_one_span_within_a_file() -> None:
    places = [(0, 100), (100, 200), (300, 700), (1000, 50), (1100, 50)]
    entries = b"".join(ENTRY.pack(place, size, 0) for place, size in places)
    spans = [(0, 1000), (1000, 1050), (1100, 1150)]
    assert by_kernel(scan(), entries) == (NO_MATCHED_MESSAGE, 5, 5, 1100, 1100, spans)


def test_records_the_log_no_longer_holds_are_skipped_by_the_file() -> None:
    entries = b"".join(ENTRY.pack(place, 100, 0) for place in (0, 100, 1000))
    found = (MESSAGE_WAS_REMOVING, 3, 1, 100, 1000, [(1000, 1100)])
    assert by_kernel(scan(start=1000), entries)[1:] == found[1:]
    assert by_kernel(scan(start=1000), entries[:40]) == (MESSAGE_WAS_REMOVING, 2, 0, 0, 100, [])


@pytest.mark.parametrize(
    ("entries", "tags", "file_bytes"),
    [(b"x" * 19, None, 1000), (b"", [1], 1000), (b"", None, 0)],
)
def test_nonsense_is_refused(entries: bytes, tags: Any, file_bytes: int) -> None:
    assert _walk_entries is not None
    with pytest.raises(ValueError, match="whole entries"):
        _walk_entries(entries, tags, 0, 0, file_bytes, 0, (1, 1), (1, 1))
