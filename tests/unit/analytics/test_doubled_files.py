"""A segment that lies in a lake twice is counted once, or the report is Inconclusive."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from failback.analytics.lake.lake import SEGMENTS_KEY
from failback.analytics.report.make_report import build_report
from failback.client.consumelog.upload.segments import SEGMENT_KEY
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import RunBuilder, write_manifest

TABLES = ("deliver", "produce", "assign", "commit", "scan")


def lake(folder: Path, parts: int = 2) -> Path:
    b = RunBuilder("doubled")
    b.assign(0, 0)
    for lid in range(4):
        b.produce(lid, lid, lid + 1)
        b.deliver(lid, 10 + lid, 11 + lid)
        b.scan(lid)
    b.commit(50, 4)
    return b.write(folder, parts=parts, manifest=False)


def files(folder: Path, table: str) -> list[Path]:
    return sorted((folder / "lake" / f"table={table}").rglob("*.parquet"))


def told(folder: Path) -> dict[str, Any]:
    write_manifest(folder)
    return build_report(analysed(folder), "local")[0]


def rewritten(path: Path, to: Path, rows: int | None = None, **segment: Any) -> None:
    """The first rows of a file under another name; ``segment`` changes what it says of itself."""
    found = pq.read_table(path, partitioning=None)
    metadata = dict(found.schema.metadata)
    said = json.loads(metadata[SEGMENT_KEY.encode()])
    metadata[SEGMENT_KEY.encode()] = json.dumps(said | segment).encode()
    pq.write_table(found.slice(0, rows).replace_schema_metadata(metadata), to)


@pytest.mark.few(5)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", ["copy.parquet", "aaa.parquet", "part-99999-00000000.parquet"])
def test_a_copy_is_counted_once(table: str, name: str, tmp_path: Path) -> None:
    folder = lake(tmp_path / "run")
    once = files(folder, table)[0]
    shutil.copy(once, once.with_name(name))
    shutil.copy(once, once.with_name(f"again-{name}"))
    document = told(folder)
    assert document["verdict"]["value"] == "Pass"
    assert document["totals"]["delivered"] == document["totals"]["produced"] == 4
    assert document["totals"]["dup"] == 0


def test_a_segment_with_other_rows_is_left_out(tmp_path: Path) -> None:
    folder = lake(tmp_path / "run", parts=1)
    (once,) = files(folder, "deliver")
    rewritten(once, once.with_name("zzz.parquet"), rows=3)
    document = told(folder)
    assert document["verdict"]["value"] == "Inconclusive"
    assert document["totals"]["delivered"] == 4
    assert any("zzz.parquet" in each for each in document["evidence"]["unreadable"])


def test_an_overlapping_range_is_left_out(tmp_path: Path) -> None:
    folder = lake(tmp_path / "run", parts=1)
    (once,) = files(folder, "deliver")
    rewritten(once, once.with_name("zzz.parquet"), rows=3, seq_hi=4)
    document = told(folder)
    assert document["verdict"]["value"] == "Inconclusive"
    assert document["totals"]["dup"] == 0


def test_merged_files_that_share_a_segment(tmp_path: Path) -> None:
    """Neither has all of the other: one is counted, and what is missing is named."""
    folder = lake(tmp_path / "run", parts=3)
    parts = files(folder, "deliver")
    for name, chosen in (("merged-a", parts[:2]), ("merged-b", parts[1:])):
        tables = [pq.read_table(path, partitioning=None) for path in chosen]
        said = [json.loads(each.schema.metadata[SEGMENT_KEY.encode()]) for each in tables]
        metadata = {**tables[0].schema.metadata, SEGMENTS_KEY.encode(): json.dumps(said).encode()}
        with pq.ParquetWriter(
            parts[0].with_name(f"{name}.parquet"), tables[0].schema.with_metadata(metadata)
        ) as writer:
            for each in tables:
                writer.write_table(each.replace_schema_metadata(metadata))
    for path in parts:
        path.unlink()
    document = told(folder)
    assert document["verdict"]["value"] == "Inconclusive"
    assert document["totals"]["dup"] == 0
