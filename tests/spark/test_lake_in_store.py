"""``failback lake migrate`` of a lake in an object store, from the layout of before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.analytics.jobs.lake import main
from failback.analytics.lake.lake import open_lake
from failback.analytics.lake.layout import partitions
from failback.analytics.lake.store import LakeStore, open_store
from tests.support.analytics.cases import c2
from tests.support.analytics.older_lake import make_older
from tests.support.analytics.s3_server import BUCKET, S3Server, s3_server

LAKE = f"s3://{BUCKET}/lake"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3") as server:
        yield server


def rows_in(store: LakeStore, run: str) -> dict[str, list[str]]:
    lake = open_lake(store, run)
    assert lake.unreadable == []
    return {table: sorted(map(repr, lake.records(table))) for table in lake.parts}


def test_a_lake_of_before_is_moved_within_an_object_store(
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    builder, _ = c2()
    folder = builder.write(tmp_path / "run", parts=2, manifest=False) / "lake"
    wanted = rows_in(open_store(folder), builder.name)
    make_older(folder)
    store = open_store(LAKE)
    for path in sorted(folder.rglob("*.parquet")):
        store.write(path.relative_to(folder).as_posix(), path.read_bytes())
    assert all(each.older for each in partitions(store))
    assert rows_in(store, builder.name) == wanted
    moved = len(list(folder.rglob("*.parquet")))
    assert main(["migrate", LAKE]) == 0
    assert f"{builder.name}: {moved} files moved to date=" in capsys.readouterr().out
    places = list(partitions(store))
    assert places
    assert all(each.day for each in places)
    assert rows_in(store, builder.name) == wanted
    assert main(["migrate", LAKE]) == 0
    assert capsys.readouterr().out == ""
    assert main(["fsck", LAKE]) == 0
    with pytest.raises(FileNotFoundError):
        store.read(next(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")))
    assert main(["show", f"s3://{BUCKET}/elsewhere"]) == 2
    assert "is no lake" in capsys.readouterr().err
