"""How large pages of Parquet become is known from their heads, before one is unpacked."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from failback.analytics.collector.page_sizes import Page, pages
from failback.analytics.collector.stream_sizes import BadStream

pytestmark = pytest.mark.foreign

MANY = 1_000_000
ZEROS = np.zeros(MANY, np.int64)
LONG = "x" * (32 << 20)


def packed(column: pa.Array, **options: object) -> bytes:
    sink = io.BytesIO()
    options = {"compression": "gzip", "use_dictionary": False, **options}
    pq.write_table(pa.table({"seq": column}), sink, data_page_size=64 << 20, **options)
    return sink.getvalue()


def chunk_of(body: bytes) -> tuple[int, int]:
    """Where the only column chunk begins, and its bytes."""
    chunk = pq.read_metadata(io.BytesIO(body)).row_group(0).column(0)
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return min(at for at in starts if at is not None), chunk.total_compressed_size


def pages_of(body: bytes) -> list[Page]:
    return list(pages(body, *chunk_of(body)))


@pytest.mark.parametrize(
    ("column", "options", "least_bytes"),
    [
        (pa.array(ZEROS), {}, ZEROS.nbytes),
        (pa.array(ZEROS), {"data_page_version": "2.0"}, ZEROS.nbytes),
        (pa.array([LONG]), {}, len(LONG)),
        (pa.array([LONG] * 9), {"use_dictionary": True}, len(LONG)),
    ],
    ids=["numbers", "pages of the second version", "a long text", "a long text of a dictionary"],
)
def test_a_small_body_says_the_bytes_and_values_that_it_becomes(
    column: pa.Array, options: dict[str, Any], least_bytes: int
) -> None:
    body = packed(column, **options)
    assert len(body) < 1 << 20
    found = pages_of(body)
    assert sum(page.unpacked_bytes for page in found) >= least_bytes
    assert sum(page.values for page in found) == len(column)


@pytest.mark.parametrize(
    "column",
    [pa.array(ZEROS), pa.array([b"x" * 10_000] * 1_000, pa.binary(10_000))],
    ids=["runs of one number", "bytes of a fixed width, each with many rows"],
)
def test_values_that_a_dictionary_repeats_are_counted(column: pa.Array) -> None:
    found = pages_of(packed(column, use_dictionary=True))
    assert sum(page.unpacked_bytes for page in found) < column.nbytes
    assert sum(page.values for page in found) == len(column)


def test_texts_that_begin_as_the_one_before_are_refused() -> None:
    column = pa.array(["x" * 10_000] * 1_000)
    body = packed(column, column_encoding={"seq": "DELTA_BYTE_ARRAY"})
    with pytest.raises(BadStream, match="has encoding 7, which is not taken"):
        pages_of(body)


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_chunk_that_is_cut_or_spoilt_is_refused(cut: int) -> None:
    body = packed(pa.array(np.arange(100)))
    start, length = chunk_of(body)
    assert sum(page.values for page in pages(body, start, length)) == 100
    with pytest.raises(BadStream):
        list(pages(body, start, length - 1 - cut))
    with pytest.raises(BadStream):
        list(pages(body[: start + cut] + b"\xff" * len(body), start, length))
