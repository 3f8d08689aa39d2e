"""The walk over an Arrow stream agrees with Arrow, and nothing makes it fail otherwise."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.analytics.collector.stream_sizes import BadStream, stream_sizes
from tests.support.common.counts import examples


def stream(*tables: pa.Table, packed: bool = True) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if packed else None)
    with pa.ipc.new_stream(sink, tables[0].schema, options=options) as writer:
        for table in tables:
            writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def sample(rows: int) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "name": pa.array([f"name-{n % 5}" for n in range(rows)]).dictionary_encode(),
            "text": pa.array(["x" * (n % 50) if n % 3 else None for n in range(rows)]),
            "flag": pa.array([n % 2 == 0 for n in range(rows)]),
        }
    )


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 5000])
def test_rows_and_bytes_are_those_that_arrow_reads(packed: bool, rows: int) -> None:
    table = sample(rows)
    sizes = stream_sizes(stream(table, packed=packed))
    assert sizes.rows == rows
    assert sizes.dictionary_entries == min(rows, 5)
    values = sum(len(column.chunk(0).dictionary.buffers()[2]) for column in [table["name"]])
    assert table.nbytes <= sizes.unpacked_bytes <= table.nbytes + values + 64 * 64


def test_several_batches_add_up() -> None:
    assert stream_sizes(stream(sample(10), sample(20))).rows == 30


def test_a_bomb_is_seen_before_it_is_unpacked() -> None:
    zeros = pa.table({"n": pa.array([0], pa.int64()).take(pa.array([0] * 2_000_000))})
    packed = stream(zeros)
    assert len(packed) < 100_000
    assert stream_sizes(packed).unpacked_bytes >= 16_000_000


def test_a_length_word_that_lies_is_taken_at_its_word() -> None:
    data = bytearray(stream(pa.table({"n": pa.array(range(4000), pa.int64())})))
    at = bytes(data).index(struct.pack("<q", 32_000))
    struct.pack_into("<q", data, at, 1 << 50)
    assert stream_sizes(bytes(data)).unpacked_bytes >= 1 << 50


def test_every_cut_is_noticed() -> None:
    whole = stream(sample(20))
    for length in range(len(whole)):
        with pytest.raises(BadStream):
            stream_sizes(whole[:length])


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_changed_bytes_give_sizes_or_a_bad_stream(data: st.DataObject) -> None:
    whole = bytearray(stream(sample(5)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        sizes = stream_sizes(bytes(whole))
    except BadStream:
        return
    assert sizes.rows >= 0
    assert sizes.unpacked_bytes >= 0


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bad_stream(data: bytes) -> None:
    if data[:8] == b"\xff\xff\xff\xff\0\0\0\0":
        return
    with pytest.raises(BadStream):
        stream_sizes(data)


def test_endless_messages_are_refused() -> None:
    schema = stream(pa.table({"n": pa.array([], pa.int64())}), packed=False)[:-8]
    with pytest.raises(BadStream, match="more than"):
        stream_sizes(schema * 10_001 + b"\xff\xff\xff\xff\0\0\0\0")
