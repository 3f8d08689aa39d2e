"""Merging the files of a closed run: what becomes one file, and that every row stays, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.catalogue import CLOSED, Catalogue, StoredCatalogue
from failback.analytics.lake.compact import compact_run, groups_of
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.lake import open_lake, shadowed
from failback.analytics.lake.layout import partitions, run_files
from failback.analytics.lake.store import Found, LakeStore, open_store
from failback.cli.measure.lake import main
from failback.client.consumelog.upload.sealing import Shipper
from tests.support.analytics.collector_lab import RUN, write_log


def sizes(groups: list[list[Found]]) -> list[list[int]]:
    return [[found.size for found in group] for group in groups]


def test_neighbours_become_one_file_up_to_a_size_and_large_files_stay() -> None:
    files = [Found(f"f{n}", size) for n, size in enumerate([4, 4, 90, 3, 6, 2, 5, 4])]
    assert sizes(groups_of(files, 64, 10)) == [[4, 4], [3, 6], [2, 5]]
    assert sizes(groups_of(files, 64, 1000)) == [[4, 4, 3, 6, 2, 5, 4]]
    assert groups_of(files[:1], 64, 10) == []
    assert groups_of([], 64, 10) == []


def test_a_file_is_passed_over_only_if_larger_files_have_all_of_it() -> None:
    a, b, c = {1}, {2}, {3}
    assert shadowed({"a": a, "b": b, "ab": a | b, "c": c}) == {"a", "b"}
    assert shadowed({"a": a, "b": b}) == set()
    assert shadowed({"ac": a | c, "ab": a | b, "a": a}) == {"a"}
    assert shadowed({"foreign": set(), "ab": a | b}) == set()


def closed_lake(folder: Path) -> LakeStore:
    write_log(folder / "hot", deliveries=60)
    write_log(folder / "hot", proc_no=2, deliveries=40)
    Shipper(folder / "hot", folder / "lake").seal_all(final=True)
    catalogue = Catalogue(folder / "lake")
    store = open_store(folder / "lake")
    check_run(store, catalogue, RUN, 1)
    catalogue.mark(RUN, CLOSED).write_text('{"procs": {}}')
    return store


def rows_of(store: LakeStore, table: str) -> pa.Table:
    found = open_lake(store, RUN).read(table)
    return found.sort_by([("proc_no", "ascending"), ("seq", "ascending")])


def test_every_row_and_every_segment_stays(tmp_path: Path) -> None:
    store = closed_lake(tmp_path)
    before = {table: rows_of(store, table) for table in ("deliver", "life")}
    segments = open_lake(store, RUN).segments()
    lines = {(e.id, e.rows, e.records) for e in StoredCatalogue(store).entries(RUN)}
    done = compact_run(store, RUN, 2)
    assert done.before == len(segments) > 4
    assert done.after == len(done.merged) == len(list(partitions(store)))
    assert done.bytes_after < done.bytes_before
    for table, rows in before.items():
        assert rows_of(store, table).equals(rows), table
    after = open_lake(store, RUN)
    assert sorted(map(str, ({**s} for s in after.segments()))) == sorted(map(str, segments))
    kept = list(StoredCatalogue(store).entries(RUN))
    assert {(e.id, e.rows, e.records) for e in kept} == lines
    assert {e.path for e in kept} == set(done.merged)
    again = compact_run(store, RUN, 3)
    assert (again.merged, again.before) == ([], done.after)


def test_rows_in_a_merged_and_an_old_file_are_read_once(tmp_path: Path) -> None:
    store = closed_lake(tmp_path)
    count = open_lake(store, RUN).rows("deliver")
    files = run_files(store, RUN)["deliver"]
    old = {found.name: store.read(found.name) for found in files}
    compact_run(store, RUN, 2)
    for name, content in old.items():
        store.write(name, content)
    lake = open_lake(store, RUN)
    assert lake.rows("deliver") == count
    assert lake.passed_over == sorted(old)
    checked = check_run(store, StoredCatalogue(store), RUN, 3)
    assert (checked.doubled, checked.vanished) == (tuple(sorted(old)), ())
    assert not [name for name in old if store.size(name) is not None]


def test_a_run_that_may_grow_or_that_a_manifest_names_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = closed_lake(tmp_path)
    files = sorted(tmp_path.rglob("*.parquet"))
    Catalogue(tmp_path / "lake").mark(RUN, CLOSED).unlink()
    with pytest.raises(ReportInputError, match="not closed"):
        compact_run(store, RUN, 2)
    assert main(["compact", str(tmp_path / "lake")]) == 0
    assert "left alone" in capsys.readouterr().out
    (tmp_path / "manifest.json").write_text("{}")
    assert main(["compact", "--also-open", "--run", RUN, str(tmp_path / "lake")]) == 2
    assert "manifest" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*.parquet")) == files
    (tmp_path / "manifest.json").unlink()
    assert main(["compact", "--also-open", str(tmp_path / "lake")]) == 0
    assert len(list(tmp_path.rglob("*.parquet"))) == len(list(partitions(store))) < len(files)
