"""The one door for Parquet files: what their rows take in memory is known before they are read.

A page of a few bytes can name one long value for every row, and the sizes in a footer may be false.
So the heads of all pages are read first. No other module opens a Parquet file (a rule of ruff).
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.lake.page_sizes import Page, pages
from failback.common.files import open_file
from failback.common.text import why

MOST_BATCH_BYTES: Final = 512 * 1024 * 1024
"""What one batch of rows may take in memory."""
MOST_TABLE_BYTES: Final = 256 * 1024 * 1024
"""What a file that is read as a whole may take."""
BATCH_ROWS: Final = 131_072
"""Rows of a batch of Arrow's datasets; no reader of ours has larger ones, but for merging."""
_WINDOW_BYTES: Final = 512
"""More than the head of most pages has."""
_VALUE_BYTES: Final = 8
"""Of a number, and of a text's place."""


def footer_of(source: Any, *, batch_rows: int | None = BATCH_ROWS) -> pq.FileMetaData:
    """Return the footer of a file whose rows fit in memory.

    Args:
        source: The file, open for reading anywhere in it.
        batch_rows: How many rows are in memory at a time; ``None`` is all of the file.

    Raises:
        ValueError: It is damaged, or its rows take too much.
        pa.ArrowException: It is no Parquet file.
    """
    footer = pq.read_metadata(source)
    data = source.getbuffer() if isinstance(source, io.BytesIO) else _Window(source.fileno())
    most = MOST_TABLE_BYTES if batch_rows is None else MOST_BATCH_BYTES
    groups = [
        sum(_chunk_bytes(data, footer, group, at, batch_rows) for at in range(footer.num_columns))
        for group in range(footer.num_row_groups)
    ]
    found = sum(groups) if batch_rows is None else max(groups, default=0)
    if found > most:
        rows = "its rows take" if batch_rows is None else f"{batch_rows} of its rows take"
        raise ValueError(f"{rows} {found >> 20} MiB in memory, and {most >> 20} MiB are the most")
    source.seek(0)
    return footer


def read_table(source: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Read a file that is small as a whole. Raises as :func:`footer_of`."""
    footer_of(source, batch_rows=None)
    return pq.read_table(source, schema=schema, partitioning=None)


def check_files(files: list[Path], *, batch_rows: int | None = BATCH_ROWS) -> None:
    """Make sure that a dataset of these files can be scanned.

    Raises:
        ValueError: One cannot be read, or takes too much; it is named.
    """
    for path in files:
        try:
            with open_file(path) as source:
                footer_of(source, batch_rows=batch_rows)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"{path}: {why(error)}") from error


class _Window:
    """The bytes of a file, of which a few are in memory: heads are far from one another.

    Not mapped: a file that is cut meanwhile would end the process (SIGBUS).
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._size = os.fstat(number).st_size
        self._start = 0
        self._held = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return os.pread(self._number, at.stop - at.start, at.start)
        place = at - self._start
        if not 0 <= place < len(self._held):
            self._start, place = at, 0
            self._held = os.pread(self._number, _WINDOW_BYTES, at)
            if not self._held:
                raise ValueError("it was cut while it was read")
        return self._held[place]


def _chunk_bytes(
    data: Any, footer: pq.FileMetaData, group: int, at: int, batch_rows: int | None
) -> int:
    """Return the most bytes that a column of a row group takes in memory at a time."""
    column = footer.row_group(group).column(at)
    length, places = column.total_compressed_size, [column.data_page_offset]
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        places.append(column.dictionary_page_offset)
    # A column without a value has no data page, and a writer may call its place 0, as Arrow does.
    start = min((each for each in places if each), default=0)
    if not start:
        return 0
    dictionary: Page | None = None
    values = coded = plain = largest = 0
    for page in pages(data, start, length):
        if page.is_dictionary:
            dictionary = page
            continue
        values += page.values
        largest = max(largest, page.unpacked_bytes)
        if page.is_coded:
            coded += page.values
        elif page.grows:
            coded += page.values
            dictionary = page
        else:
            plain += page.unpacked_bytes
    share = 1.0 if batch_rows is None else min(1.0, batch_rows / max(values, 1))
    taken = max(int(plain * share), largest) + int(values * share) * _VALUE_BYTES
    if dictionary is None or not coded:
        return taken
    taken += dictionary.unpacked_bytes
    if column.physical_type == "BYTE_ARRAY":
        taken += int(coded * share) * _longest(data, dictionary, column.compression)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        taken += int(coded * share) * footer.schema.column(at).length
    return taken


def _longest(data: Any, page: Page, compression: str) -> int:
    """Return the length of the longest value of a dictionary; of what can't be read, its size."""
    if page.grows or page.unpacked_bytes > MOST_BATCH_BYTES:
        return page.unpacked_bytes
    body: Any = bytes(data[page.start : page.start + page.packed_bytes])
    if compression != "UNCOMPRESSED":
        try:
            name = compression.lower().replace("lz4", "lz4_raw")
            body = pa.Codec(name).decompress(body, page.unpacked_bytes).to_pybytes()
        except (ValueError, OSError, pa.ArrowException):
            return page.unpacked_bytes
    longest = position = 0
    while position + 4 <= len(body):
        length = int.from_bytes(body[position : position + 4], "little")
        longest = max(longest, length)
        position += 4 + length
    return min(longest, page.unpacked_bytes)
