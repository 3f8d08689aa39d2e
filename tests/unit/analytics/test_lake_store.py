"""Where a lake is, how a store is reached, and that files are whole or not there."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from failback.analytics.analysis.engines.spark import session
from failback.analytics.analysis.engines.spark.session import is_cluster, master_of
from failback.analytics.errors import EngineUnavailable, ReportInputError
from failback.analytics.lake.layout import partitions, runs
from failback.analytics.lake.store import S3Place, open_store
from tests.support.processes.child_process import ROOT


def test_files_come_whole_are_listed_and_go(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake")
    assert (runs(store), store.files("table=life/date=2026-01-31/run=a"), store.size("x")) == (
        [],
        [],
        None,
    )
    store.write("table=life/date=2026-01-31/run=a/b.parquet", b"two")
    store.write("table=life/date=2026-01-31/run=a/a.parquet", b"three")
    store.write("table=life/date=2026-01-31/run=a/.c.parquet", b"unfinished")
    store.write("table=pull/date=2026-01-31/run=b/a.parquet", b"")
    found = store.files("table=life/date=2026-01-31/run=a")
    assert [(each.name, each.size) for each in found] == [
        ("table=life/date=2026-01-31/run=a/a.parquet", 5),
        ("table=life/date=2026-01-31/run=a/b.parquet", 3),
    ]
    assert [(each.table, each.run) for each in partitions(store)] == [("life", "a"), ("pull", "b")]
    assert runs(store) == ["a", "b"]
    store.write("table=life/date=2026-01-31/run=a/a.parquet", b"new")
    assert store.read("table=life/date=2026-01-31/run=a/a.parquet") == b"new"
    store.delete("table=life/date=2026-01-31/run=a/a.parquet")
    store.delete("table=life/date=2026-01-31/run=a/a.parquet")
    with pytest.raises(FileNotFoundError):
        store.read("table=life/date=2026-01-31/run=a/a.parquet")
    store.delete_folder("table=life/date=2026-01-31/run=a")
    store.delete_folder("table=life/date=2026-01-31/run=a")
    assert runs(store) == ["b"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/lake")
    store.write("a", b"old")
    (tmp_path / "lake" / "b").mkdir()
    with pytest.raises(OSError, match="directory"):
        store.write("b", b"new")
    assert store.read("a") == b"old"
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == ["a", "b"]


ENVIRONMENT = {
    "AWS_ENDPOINT_URL": "https://other.example",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000",
    "AWS_REGION": "eu-1",
}


def test_a_store_is_found_by_the_uri_and_else_by_the_environment() -> None:
    assert S3Place.of("", {}) == S3Place(None, None)
    assert S3Place.of("", ENVIRONMENT) == S3Place("http://127.0.0.1:9000", "eu-1")
    named = S3Place.of("endpoint_override=store.example:1&region=x", ENVIRONMENT)
    assert named == S3Place("https://store.example:1", "x")
    assert S3Place.of("", {"AWS_ENDPOINT_URL": "http://h:1"}) == S3Place("http://h:1", "us-east-1")
    assert S3Place.of("", {"AWS_DEFAULT_REGION": "b"}).region == "b"
    with pytest.raises(ReportInputError, match="secret in the URI"):
        S3Place.of("secret=x", {})


def test_a_uri_becomes_paths_for_both_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    store = open_store("s3://bucket/a/lake/?endpoint_override=http://127.0.0.1:1")
    assert store.folder is None
    assert store.path("table=life") == "bucket/a/lake/table=life"
    assert store.spark_uri("table=life") == "s3a://bucket/a/lake/table=life"
    assert str(store) == "s3://bucket/a/lake"
    assert store.spark_settings() == {
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:1",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    }


@pytest.mark.parametrize("uri", ["gs://bucket/lake", "s3:///lake"])
def test_a_uri_that_is_none_is_refused(uri: str) -> None:
    with pytest.raises(ReportInputError, match=re.escape(uri)):
        open_store(uri)


def test_sparks_jars_are_those_that_the_tests_fetch(tmp_path: Path) -> None:
    pom = (ROOT / "tests" / "spark" / "s3a" / "pom.xml").read_text()
    parts = re.findall(
        r"<dependency>\s*<groupId>(.*?)</groupId>\s*<artifactId>(.*?)</artifactId>"
        r"\s*<version>(.*?)</version>",
        pom,
    )
    assert tuple(":".join(part) for part in parts) == session.PACKAGES
    s3 = open_store("s3://bucket/lake")
    fetched = session.settings_for([s3], {})
    assert fetched["spark.jars.packages"].split(",") == list(session.PACKAGES)
    with pytest.raises(EngineUnavailable, match="has no jars"):
        session.settings_for([s3], {session.JARS: str(tmp_path)})
    (tmp_path / "a.jar").touch()
    given = session.settings_for([s3], {session.JARS: str(tmp_path)})
    assert given["spark.jars"] == str(tmp_path / "a.jar")
    assert "spark.jars.packages" not in given
    assert session.settings_for([open_store(tmp_path)], {}) == {}


def test_a_master_is_a_cluster_unless_it_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAILBACK_SPARK_MASTER", raising=False)
    assert (master_of(), is_cluster()) == ("local[*]", False)
    assert is_cluster("spark://127.0.0.1:7077")
    monkeypatch.setenv("FAILBACK_SPARK_MASTER", "k8s://https://api")
    assert is_cluster()
    assert not is_cluster("local[2]")


HIDDEN = ("._part-0.parquet", "_x.parquet", ".x.parquet.crc", "_SUCCESS")


def test_files_that_others_hide_are_no_rows(tmp_path: Path) -> None:
    """Neither for a reader here nor for the glob that is printed for DuckDB."""
    folder = tmp_path / "table=deliver" / "date=2026-01-01" / "run=r"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), folder / "part-0.parquet")
    for name in HIDDEN:
        (folder / name).write_bytes(b"no rows")
    (folder / "_pipe.parquet").mkdir()
    store = open_store(tmp_path)
    below = folder.relative_to(tmp_path).as_posix()
    assert [each.name for each in store.files(below)] == [f"{below}/part-0.parquet"]
    assert store.irregular_files("") == []
    page = (ROOT / "docs" / "howto" / "query-the-lake.md").read_text(encoding="utf-8")
    (glob,) = re.findall(r"'lake/(table=deliver/date=\*/\S+)'", page)
    seen = duckdb.connect().execute(f"SELECT a FROM read_parquet('{tmp_path}/{glob}')").fetchall()
    assert seen == [(1,)]
