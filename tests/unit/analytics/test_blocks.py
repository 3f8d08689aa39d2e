"""Blocks: tables that cross the shuffle of Spark as one value for each part of their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.engines import blocks


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


def test_every_message_has_one_part_and_parts_are_about_equal() -> None:
    lane = np.repeat(np.array([-1, 0, 7, 1 << 40]), 25_000)
    lseq = np.tile(np.arange(25_000), 4)
    part = blocks.parts_of(lane, lseq, 16)
    counts = np.bincount(part, minlength=16)
    assert counts.size == 16
    assert counts.min() > 0.9 * counts.mean()
    alone = [blocks.parts_of(lane[[n]], lseq[[n]], 16)[0] for n in range(0, lane.size, 9_973)]
    assert alone == part[::9_973].tolist()


def test_the_rows_of_a_part_come_back_in_their_order() -> None:
    table = table_of(1_000)
    part = blocks.parts_of(table["lane"].to_numpy(), table["lseq"].to_numpy(), 5)
    found = blocks.split(table, part)
    assert found.schema == blocks.BLOCKS
    assert found["part"].to_pylist() == [0, 1, 2, 3, 4]
    for number in range(5):
        (mine,) = blocks.unpacked(found.slice(number, 1))
        assert mine.to_pylist() == table.filter(pa.array(part == number)).to_pylist()
    assert plain(pa.concat_tables(blocks.unpacked(found))) == plain(table)


def test_a_block_has_only_the_names_of_its_rows() -> None:
    table = table_of(10_000).slice(0, 4)
    assert len(table["okey"].chunk(0).dictionary) == 5_000
    (found,) = blocks.unpacked(blocks.split(table, np.zeros(4, np.int64)))
    assert found["okey"].chunk(0).dictionary.to_pylist() == ["key-1", "key-3"]
    assert found.schema == table.schema


def test_no_rows_are_no_blocks() -> None:
    found = blocks.split(table_of(0), np.empty(0, np.int64))
    assert found.schema == blocks.BLOCKS
    assert blocks.unpacked(found) == []
