"""An upload is unpacked only as far as its limit, whatever it says of itself."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from failback.analytics.collector.decode import decode, unpacked_bytes
from failback.analytics.collector.page_sizes import pages
from failback.analytics.collector.settings import Limits
from failback.analytics.collector.stream_sizes import BadStream
from failback.analytics.lake.segment_ids import SegmentId
from failback.analytics.web.problems import Problem
from failback.client.consumelog.upload.lake_files import PARQUET

pytestmark = pytest.mark.foreign

NAMED = SegmentId("r1", "70" * 16, 4, "life")
LIMITS = Limits(decoded_bytes=1 << 20)
MANY = 1_000_000


def packed(column: pa.Array, **options: object) -> bytes:
    sink = io.BytesIO()
    options = {"compression": "gzip", "use_dictionary": False, **options}
    pq.write_table(pa.table({"seq": column}), sink, data_page_size=64 << 20, **options)
    return sink.getvalue()


def saying(body: bytes, true: int, said: int) -> bytes:
    """Put ``said`` for a number of the footer, in as many bytes."""
    old, new = varint(2 * true), varint(2 * said)
    new = bytes(byte | 0x80 for byte in new) + b"\x80" * (len(old) - len(new) - 1) + b"\x00"
    begin = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    footer = body[begin:]
    assert old in footer
    return body[:begin] + footer.replace(old, new[: len(old)])


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def lying(body: bytes) -> bytes:
    chunk = pq.read_metadata(io.BytesIO(body)).row_group(0).column(0)
    return saying(body, chunk.total_uncompressed_size, 1000)


ZEROS = np.zeros(MANY, np.int64)
UPLOADS: dict[str, tuple[Callable[[], bytes], str]] = {
    "zeros, as it is": (lambda: packed(pa.array(ZEROS)), "bytes when unpacked, at most"),
    "zeros in a page that the footer makes small": (
        lambda: lying(packed(pa.array(ZEROS))),
        "in a column chunk of 1000",
    ),
    "the same in pages of the second version": (
        lambda: lying(packed(pa.array(ZEROS), data_page_version="2.0")),
        "in a column chunk of 1000",
    ),
    "one long text": (
        lambda: lying(packed(pa.array(["x" * (32 << 20)]))),
        "in a column chunk of 1000",
    ),
    "one long text of a dictionary": (
        lambda: lying(packed(pa.array(["x" * (32 << 20)] * 9), use_dictionary=True)),
        "in a column chunk of 1000",
    ),
    "bytes of a fixed width, each with many rows": (
        lambda: packed(pa.array([b"x" * 10_000] * 1_000, pa.binary(10_000)), use_dictionary=True),
        "bytes when unpacked, at most",
    ),
    "runs of one number": (
        lambda: packed(pa.array(ZEROS), use_dictionary=True),
        "bytes when unpacked, at most",
    ),
    "texts that begin as the one before": (
        lambda: packed(
            pa.array(["x" * 10_000] * 1_000), column_encoding={"seq": "DELTA_BYTE_ARRAY"}
        ),
        "has encoding 7, which is not taken",
    ),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_what_would_grow_beyond_the_limit_is_refused_before_it_is_read(name: str) -> None:
    make, message = UPLOADS[name]
    body = make()
    assert len(body) < 1 << 20
    with pytest.raises(Problem, match=message):
        decode(NAMED, body, PARQUET, "ab", LIMITS)


def test_a_large_footer_is_refused_before_it_is_read() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({f"c{n}": pa.array([1]) for n in range(10_000)}), sink)
    for body in (sink.getvalue(), packed(pa.array([1]))[:-8] + b"\xff\xff\xff\x7fPAR1"):
        with pytest.raises(Problem, match=r"a footer of \d+ bytes, at most 1048576"):
            decode(NAMED, body, PARQUET, "ab", LIMITS)


def test_a_page_counts_for_the_memory_that_it_will_take() -> None:
    assert unpacked_bytes(packed(pa.array(ZEROS)), PARQUET) >= ZEROS.nbytes


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_chunk_that_is_cut_or_spoilt_is_refused(cut: int) -> None:
    body = packed(pa.array(np.arange(100)))
    chunk = pq.read_metadata(io.BytesIO(body)).row_group(0).column(0)
    start, length = chunk.data_page_offset, chunk.total_compressed_size
    assert sum(page.values for page in pages(body, start, length)) == 100
    with pytest.raises(BadStream):
        list(pages(body, start, length - 1 - cut))
    with pytest.raises(BadStream):
        list(pages(body[: start + cut] + b"\xff" * len(body), start, length))
