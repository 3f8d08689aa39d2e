"""Blocks: tables that cross the shuffle of Spark as one value for each part of their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.engines import row_blocks


def table_of(count: int) -> pa.Table:
    grp = pa.array([f"g{n % 3}" for n in range(count)])
    okey = pa.array([f"key-{n}" if n % 2 else None for n in range(count)])
    return pa.table(
        {
            "lane": pa.array(np.full(count, -1, np.int64)),
            "lseq": pa.array(np.arange(count)),
            "grp": grp.dictionary_encode(),
            "okey": okey.dictionary_encode(),
        }
    )


def plain(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: row["lseq"])


@pytest.mark.parametrize(("lane", "most"), [(-1, 1.05), (0, 1.4), (7, 1.4), (1 << 40, 1.4)])
def test_every_message_has_one_part_and_parts_are_about_equal(lane: int, most: float) -> None:
    lseq = np.arange(1_000_000)
    lanes = np.full(lseq.size, lane)
    part = row_blocks.parts_of(lanes, lseq, 8)
    counts = np.bincount(part, minlength=8)
    assert counts.size == 8
    assert counts.max() < most * counts.mean()
    alone = [row_blocks.parts_of(lanes[[n]], lseq[[n]], 8)[0] for n in range(0, lseq.size, 99_773)]
    assert alone == part[::99_773].tolist()


def test_neighbours_of_a_lane_are_in_one_part() -> None:
    lseq = np.arange(1 << 20)
    part = row_blocks.parts_of(np.full(lseq.size, 3), lseq, 50)
    assert (part.reshape(-1, 1 << 10) == part[:: 1 << 10, None]).all()


def test_the_rows_of_a_part_come_back_in_their_order() -> None:
    table = table_of(1_000)
    part = row_blocks.parts_of(table["lane"].to_numpy(), table["lseq"].to_numpy(), 5)
    found = row_blocks.split(table, part)
    assert found.schema == row_blocks.BLOCKS
    assert found["part"].to_pylist() == [0, 1, 2, 3, 4]
    for number in range(5):
        (mine,) = row_blocks.unpacked(found.slice(number, 1))
        assert mine.to_pylist() == table.filter(pa.array(part == number)).to_pylist()
    assert plain(pa.concat_tables(row_blocks.unpacked(found))) == plain(table)


def test_a_block_has_only_the_names_of_its_rows() -> None:
    table = table_of(10_000).slice(0, 4)
    assert len(table["okey"].chunk(0).dictionary) == 5_000
    (found,) = row_blocks.unpacked(row_blocks.split(table, np.zeros(4, np.int64)))
    assert found["okey"].chunk(0).dictionary.to_pylist() == ["key-1", "key-3"]
    assert found.schema == table.schema


def test_no_rows_are_no_blocks() -> None:
    found = row_blocks.split(table_of(0), np.empty(0, np.int64))
    assert found.schema == row_blocks.BLOCKS
    assert row_blocks.unpacked(found) == []
