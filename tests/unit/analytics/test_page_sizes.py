"""How large pages of Parquet become is known from their heads, before one is unpacked."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from failback.analytics.lake import parquet_guard
from failback.analytics.lake.page_sizes import BadPages, Page, pages
from failback.analytics.lake.parquet_guard import check_files, footer_of, read_table

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
    assert sum(page.values for page in found if not page.is_dictionary) == len(column)


@pytest.mark.parametrize(
    "column",
    [pa.array(ZEROS), pa.array([b"x" * 10_000] * 1_000, pa.binary(10_000))],
    ids=["runs of one number", "bytes of a fixed width, each with many rows"],
)
def test_values_that_a_dictionary_repeats_are_counted(column: pa.Array) -> None:
    found = pages_of(packed(column, use_dictionary=True))
    assert sum(page.unpacked_bytes for page in found) < column.nbytes
    assert sum(page.values for page in found if not page.is_dictionary) == len(column)


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_chunk_that_is_cut_or_spoilt_is_refused(cut: int) -> None:
    body = packed(pa.array(np.arange(100)))
    start, length = chunk_of(body)
    assert sum(page.values for page in pages(body, start, length)) == 100
    with pytest.raises(BadPages):
        list(pages(body, start, length - 1 - cut))
    with pytest.raises(BadPages):
        list(pages(body[: start + cut] + b"\xff" * len(body), start, length))


def file_of(column: pa.Array, **options: Any) -> bytes:
    """A file without Arrow's own schema, so that texts of a dictionary are spelled out."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"seq": column}), sink, store_schema=False, **options)
    return sink.getvalue()


def repeated(letters: int, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * letters])


SMALL_BOMBS = {
    "a long text with every row": file_of(repeated(10_000, 10_000)),
    "a shorter one with more": file_of(repeated(400, 200_000), row_group_size=200_000),
    "texts that begin as the one before": file_of(
        pa.array(["x" * 100_000] * 1_000),
        use_dictionary=False,
        column_encoding={"seq": "DELTA_BYTE_ARRAY"},
    ),
    "bytes of a fixed width": file_of(pa.array([b"x" * 10_000] * 5_000, pa.binary(10_000))),
    "numbers without end": file_of(pa.array(np.zeros(4_000_000, np.int64))),
    "one text": file_of(pa.array(["x" * (40 << 20)]), use_dictionary=False, compression="zstd"),
}


@pytest.mark.parametrize("name", SMALL_BOMBS)
def test_rows_that_take_more_than_they_may_are_never_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = SMALL_BOMBS[name]
    assert len(body) < 1 << 20
    monkeypatch.setattr(parquet_guard, "MOST_TABLE_BYTES", 16 << 20)
    monkeypatch.setattr(parquet_guard, "MOST_BATCH_BYTES", 32 << 20)
    for reader in (pq.read_table, pq.ParquetFile):
        monkeypatch.setattr(pq, reader.__name__, None)
    with pytest.raises(ValueError, match=r"MiB in memory, and 16 MiB are the most"):
        read_table(io.BytesIO(body))
    if name != "numbers without end":  # which come in batches
        (tmp_path / "x.parquet").write_bytes(body)
        with pytest.raises(ValueError, match=r"x.parquet: .* MiB in memory, and 32 MiB"):
            check_files([tmp_path / "x.parquet"])


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_honest_files_of_others_are_read(compression: str, version: str) -> None:
    count = 200_000
    table = pa.table(
        {
            "few": pa.array([f"a-name-as-real-ones-are-{n % 999}" for n in range(count)]),
            "many": pa.array([f"7F0000010000{n:020d}" for n in range(count)]),
            "none": pa.nulls(count, pa.utf8()),
            "number": pa.array(np.arange(count)),
        }
    )
    sink = io.BytesIO()
    pq.write_table(
        table, sink, compression=compression, store_schema=False, data_page_version=version
    )
    assert footer_of(sink).num_rows == count
    assert read_table(sink).num_rows == count


def test_a_file_that_is_cut_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(bytes(2_000))
    with path.open("rb") as file:
        window = parquet_guard._Window(file.fileno())
        assert (len(window), window[0]) == (2_000, 0)
        path.write_bytes(b"")
        with pytest.raises(ValueError, match="cut while it was read"):
            window[1_500]


@pytest.mark.parametrize("with_group", [True, False])
def test_a_table_without_rows_is_read(tmp_path: Path, with_group: bool) -> None:
    """Arrow writes a dictionary page for no value, and says that the data begin at byte 0."""
    path, schema = tmp_path / "none.parquet", pa.schema([("kind", pa.utf8()), ("t", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        if with_group:
            writer.write_table(schema.empty_table())
    with path.open("rb") as file:
        assert read_table(file).num_rows == 0
