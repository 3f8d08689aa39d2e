"""Where a lake's files lie: the date of a run, rows that wait for it."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.catalogue import StoredCatalogue
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.lake import open_lake
from failback.analytics.lake.layout import opened_day, run_files
from failback.analytics.lake.layout import settle as settle_in
from failback.analytics.lake.store import LakeStore, open_store
from failback.cli.measure.lake import main
from failback.client.consumelog.schema import TABLES, lake_schema, unit_of
from failback.client.consumelog.upload.layout import (
    GUARD,
    OPENED,
    Place,
    day_of,
    folder_of,
    lake_path,
    mark_name,
    place_of,
)
from failback.client.consumelog.upload.run_days import known_day, open_run, settle
from failback.client.consumelog.upload.sealing import Shipper
from tests.support.analytics.collector_lab import RUN, files_of, write_log

ZERO = 1_790_000_000 * 10**9
DAY = "2026-09-21"


def sealed(folder: Path, run: str = RUN) -> LakeStore:
    write_log(folder / "hot", deliveries=40, run=run)
    open_run(folder / "lake", run, ZERO)
    Shipper(folder / "hot", folder / "lake").seal_all(final=True)
    return open_store(folder / "lake")


def _by_process(row: dict[str, Any]) -> tuple[int, int]:
    return row["proc_no"], row["seq"]


def content(store: LakeStore, run: str = RUN) -> dict[str, list[Any]]:
    """All rows of a run by table, and what each segment says of itself."""
    lake = open_lake(store, run)
    assert lake.unreadable == []
    rows = {table: sorted(lake.records(table), key=_by_process) for table in lake.parts}
    return rows | {"segments": sorted(map(json.dumps, lake.segments()))}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (lake_path("deliver", "a.b", 1, 2, DAY),
         Place("deliver", "a.b", DAY, False, "part-00001-00000002.parquet")),
        (lake_path("life", "r", 0, 0, None),
         Place("life", "r", None, True, "part-00000-00000000.parquet")),
        ("table=life/run=r/x", None),
        ("_segments/run=r.jsonl", None),
        (f"_segments/table=a/date={DAY}/run=r/x", None),
        (GUARD, None),
    ],
)  # fmt: skip
def test_a_name_says_where_it_belongs(name: str, place: Place | None) -> None:
    assert place_of(name) == place


def test_a_day_is_of_utc_and_of_a_calendar() -> None:
    assert (day_of(0), day_of(ZERO)) == ("1970-01-01", DAY)
    assert day_of(86_400 * 10**9 - 1) == "1970-01-01"
    assert [day_of(each) for each in (-1, 1 << 62, None, 1.5, "5")] == [
        None, "2116-02-20", None, None, None
    ]  # fmt: skip
    assert day_of(10**21) is None


def test_a_table_opens_without_a_hint_and_the_root_says_why_it_does_not(tmp_path: Path) -> None:
    rows = content(sealed(tmp_path))["deliver"]
    table = tmp_path / "lake" / "table=deliver"
    found = ds.dataset(table, partitioning="hive").to_table()
    assert set(found.column_names) == {*lake_schema("deliver").names, "date", "run"}
    assert set(found.column("run").to_pylist()) == {RUN}
    assert set(found.column("date").to_pylist()) == {DAY}
    frame = pd.read_parquet(table)
    assert len(frame) == found.num_rows == len(rows)
    with pytest.raises((pa.ArrowInvalid, OSError), match=GUARD):
        ds.dataset(tmp_path / "lake", partitioning="hive")
    with pytest.raises((pa.ArrowInvalid, OSError), match=GUARD):
        pd.read_parquet(tmp_path / "lake")


def test_each_column_says_what_it_is(tmp_path: Path) -> None:
    store = sealed(tmp_path)
    file = next(iter(run_files(store, RUN)["deliver"]))
    fields = ds.dataset(store.path(file.name)).schema
    assert fields.field("bt").metadata[b"unit"] == b"ns, CLOCK_MONOTONIC of the host"
    assert b"clock of the broker" in fields.field("store_ms").metadata[b"unit"]
    for table in TABLES.values():
        for column in table.columns:
            timed = column.kind == "T" or column.name.endswith(("_ms", "_ns"))
            assert bool(unit_of(table.name, column)) or not timed, column


def test_rows_wait_until_the_run_is_open(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_log(tmp_path / "hot")
    Shipper(tmp_path / "hot", lake).seal_all()
    assert {name.split("/")[0] for name in files_of(lake)} == {"_waiting"}
    assert not list(lake.glob("table=*"))
    waiting = content(open_store(lake))
    assert known_day(lake, RUN) is None
    (tmp_path / "run.json").write_text(json.dumps({"run": RUN, "zero": {"wall_ns": ZERO}}))
    Shipper(tmp_path / "hot", lake).seal_all()
    assert {name.split("/")[1] for name in files_of(lake)} == {f"date={DAY}"}
    assert not (lake / "_waiting").exists()
    assert content(open_store(lake)) == waiting


def test_a_document_of_another_run_or_none_opens_nothing(tmp_path: Path) -> None:
    for text in (
        "[]", "{", '{"run": "other", "zero": {"wall_ns": 5}}', f'{{"run": "{RUN}"}}',
        f'{{"run": "{RUN}", "zero": {{"wall_ns": 1e300}}}}', f'{{"run": "{RUN}", "zero": 5}}',
    ):  # fmt: skip
        (tmp_path / "run.json").write_text(text)
        assert known_day(tmp_path / "lake", RUN) is None


def test_the_last_pass_opens_a_run_by_its_first_row(tmp_path: Path) -> None:
    write_log(tmp_path / "hot")
    Shipper(tmp_path / "hot", tmp_path / "lake").seal_all(final=True)
    store = open_store(tmp_path / "lake")
    rows = [row for each in content(store).values() for row in each if isinstance(row, dict)]
    assert opened_day(store, RUN) == day_of(min(row["wall_ns"] for row in rows))


def test_the_first_who_opens_a_run_decides(tmp_path: Path) -> None:
    found: list[str] = []
    at = [ZERO + n * 86_400 * 10**9 for n in range(8)]
    threads = [
        threading.Thread(target=lambda zero=zero: found.append(open_run(tmp_path, RUN, zero)))
        for zero in at
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert not list(tmp_path.rglob("*.tmp"))
    (tmp_path / mark_name(RUN, OPENED)).write_bytes(b"damaged")
    assert open_run(tmp_path, RUN, ZERO) == DAY == known_day(tmp_path, RUN)


def test_two_shippers_settle_one_run(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_log(tmp_path / "hot")
    Shipper(tmp_path / "hot", lake).seal_all()
    waiting = content(open_store(lake))
    open_run(lake, RUN, ZERO)
    threads = [threading.Thread(target=settle, args=(lake,)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert content(open_store(lake)) == waiting
    assert not (lake / "_waiting").exists()


def test_a_lake_without_dates_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = sealed(tmp_path)
    lake = tmp_path / "lake"
    table = lake / "table=deliver"
    (table / f"date={DAY}/run={RUN}").rename(table / f"run={RUN}")
    for words in (["show"], ["fsck"], ["compact"], ["query"]):
        code = main([*words, str(lake), *(["SELECT 1"] if words == ["query"] else [])])
        told = capsys.readouterr().err
        assert (code, told.count("\n")) == (2, 1), words
        assert f"table=deliver/run={RUN}: has rows without a date" in told
    for table in lake.glob("table=*/date=*"):
        shutil.rmtree(table)
    with pytest.raises(ReportInputError, match="without a date"):
        run_files(store, RUN)


class Killed(BaseException):
    """The process is gone."""


class Mortal(LakeStore):
    """A store whose process dies right before, or right after, its n-th change."""

    def __init__(self, store: LakeStore, dies_at: int) -> None:
        super().__init__(store.fs, str(store.folder), folder=store.folder)
        self.left = dies_at

    def _count(self, change: Callable[..., None], *arguments: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed
        change(*arguments)
        self.left -= 1
        if self.left == 0:
            raise Killed

    def write(self, name: str, content: Any) -> None:
        self._count(super().write, name, content)

    def move(self, name: str, to: str) -> None:
        self._count(super().move, name, to)

    def delete(self, name: str) -> None:
        self._count(super().delete, name)


class MortalObjects(Mortal):
    """The same of an object store: a move is a copy and a deletion."""

    def __init__(self, store: LakeStore, dies_at: int) -> None:
        super().__init__(store, dies_at)
        self.folder = None

    def move(self, name: str, to: str) -> None:
        self.fs.create_dir(self.path(to).rpartition("/")[0])
        self._count(self.fs.copy_file, self.path(name), self.path(to))
        self._count(self.fs.delete_file, self.path(name))


def test_a_move_within_an_object_store_that_is_killed_anywhere_doubles_nothing(
    tmp_path: Path,
) -> None:
    write_log(tmp_path / "hot", deliveries=4)
    Shipper(tmp_path / "hot", tmp_path / "whole").seal_all()
    open_run(tmp_path / "whole", RUN, ZERO)
    wanted = content(open_store(tmp_path / "whole"))
    dies_at, mortal = 0, None
    while mortal is None or mortal.left <= 0:
        dies_at += 1
        shutil.copytree(tmp_path / "whole", tmp_path / "lake")
        store = open_store(tmp_path / "lake")
        mortal = MortalObjects(store, dies_at)
        with contextlib.suppress(Killed):
            settle_in(mortal, RUN, DAY)
        assert content(store) == wanted, dies_at
        check_run(store, StoredCatalogue(store), RUN, 2)
        assert content(store) == wanted, dies_at
        assert {name.split("/")[1] for name in files_of(tmp_path / "lake")} == {f"date={DAY}"}
        shutil.rmtree(tmp_path / "lake")
    assert dies_at > 8


class Counting(LakeStore):
    """Counts what listings return."""

    seen = 0

    def _below(self, prefix: str) -> list[Any]:
        found = super()._below(prefix)
        self.seen += len(found)
        return found


def test_one_of_ten_thousand_runs_is_found_without_listing_the_others(tmp_path: Path) -> None:
    sealed(tmp_path)
    lake = tmp_path / "lake"
    for n in range(10_000):
        (lake / folder_of("deliver", f"r{n}", f"2026-{1 + n % 9:02d}-{1 + n % 28:02d}")).mkdir(
            parents=True
        )
    store = Counting(open_store(lake).fs, str(lake), folder=lake)
    assert open_lake(store, RUN).rows("deliver") == 40
    assert store.seen < 100
    (lake / mark_name(RUN, OPENED)).unlink()  # somebody copied the tables alone
    store.seen = 0
    assert open_lake(store, RUN).rows("deliver") == 40
    assert store.seen < 500
