"""Memory of repeats: bounded by the size of a part, whatever the number of repeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.engines import row_blocks
from failback.analytics.analysis.engines.local import LocalRows
from tests.support.processes.peak_memory import peak_memory

ROWS = 50_000
"""Of a chunk."""
MIB = 1 << 20
TOTALS = pa.schema([("rows", pa.int64())])
HOT = 40


def chunks(count: int, parts: int, *, hot: bool) -> Iterator[pa.Table]:
    """Rows of about 150 bytes that cannot be compressed; if hot, of one message all."""
    random = np.random.default_rng(1)
    for at in range(count):
        lseq = np.full(ROWS, 7) if hot else np.arange(at * ROWS, (at + 1) * ROWS)
        lane = np.zeros(ROWS, np.int64)
        numbers = {f"n{k}": random.integers(0, 1 << 62, ROWS) for k in range(18)}
        table = pa.table({"lane": lane, "lseq": lseq, **numbers})
        yield row_blocks.split(table, row_blocks.parts_of(lane, lseq, parts))


def rows_of(part: pa.Table) -> pa.Table:
    return pa.table({"rows": [sum(table.num_rows for table in row_blocks.unpacked(part))]})


def group(payload: bytes) -> None:
    """Groups ``count parts spill_MiB hot`` and checks that nothing is lost."""
    count, parts, spill, hot = (int(word) for word in payload.decode().split())
    rows = LocalRows(chunks(count, parts, hot=bool(hot)), row_blocks.BLOCKS, spill * MIB)
    found = rows.by_part(rows_of, TOTALS).whole().column("rows").to_pylist()
    assert sum(found) == count * ROWS, found
    assert len(found) == (1 if hot else parts), found


@pytest.mark.soak
@pytest.mark.parametrize("spill_mib", [16])
def test_twice_the_repeats_take_no_more_memory(spill_mib: int) -> None:
    """300 and 600 MB of rows, in parts of 15 MB."""
    with peak_memory(f"{__name__}:group", f"2 2 {spill_mib} 0".encode()) as child:
        small = child.measure(f"{HOT} 20 {spill_mib} 0".encode())
        large = child.measure(f"{2 * HOT} 40 {spill_mib} 0".encode())
        everything_here = child.measure(f"{HOT} 20 4096 0".encode())
    assert (small.error, large.error, everything_here.error) == ("", "", "")
    assert large.peak_bytes < 1.3 * small.peak_bytes
    assert large.peak_bytes < 150 * MIB
    assert everything_here.peak_bytes > 250 * MIB  # what is measured is there


@pytest.mark.full
def test_a_hot_message_is_one_part_and_takes_what_its_rows_take() -> None:
    """A million deliveries of one message, 150 MB."""
    with peak_memory(f"{__name__}:group", b"2 2 16 0") as child:
        hot = child.measure(f"{HOT // 2} 20 16 1".encode())
    assert hot.error == ""
    assert 100 * MIB < hot.peak_bytes < 600 * MIB


def test_files_of_parts_are_gone_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fails(part: pa.Table) -> pa.Table:
        assert list(tmp_path.glob("*/*.arrow"))
        raise ValueError(part.num_rows)

    rows = LocalRows(chunks(2, 4, hot=False), row_blocks.BLOCKS, 1000).by_part(fails, TOTALS)
    with pytest.raises(ValueError, match=r"\d"):
        rows.whole()
    del rows
    assert not list(tmp_path.iterdir())
