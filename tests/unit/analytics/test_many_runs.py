"""A lake of 2,000 runs, opened by programs that know nothing of it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from failback.analytics.run.lake_sql import asked, lake_tables
from tests.support.analytics.many_runs import DELIVERIES, many_runs

RUNS = 2_000
ROWS = RUNS * DELIVERIES


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_runs(tmp_path_factory.mktemp("many"), RUNS)


@pytest.mark.full
def test_pyarrow(lake: Path) -> None:
    found = ds.dataset(lake / "table=deliver", partitioning="hive")
    assert found.count_rows() == ROWS
    assert found.count_rows(filter=pc.field("run") == "r7") == DELIVERIES
    table = found.to_table(columns=["run", "date", "lseq"])
    assert table.group_by("run").aggregate([("lseq", "count_distinct")]).num_rows == RUNS
    assert pc.count_distinct(table.column("date")).as_py() == RUNS // 50


@pytest.mark.full
def test_pandas(lake: Path) -> None:
    frame = pd.read_parquet(lake / "table=deliver", columns=["run", "date", "lseq"])
    assert len(frame) == ROWS
    assert frame.run.nunique() == RUNS
    one = pd.read_parquet(lake / "table=deliver", filters=[("run", "=", "r7")])
    assert len(one) == DELIVERIES


def test_duckdb(lake: Path) -> None:
    files = f"{lake}/table=deliver/*/*/*.parquet"
    counted = duckdb.execute(f"SELECT count(*), count(DISTINCT run) FROM '{files}'").fetchall()
    assert counted == [(ROWS, RUNS)]
    deep = f"{lake}/table=deliver/**/*.parquet"
    one = f"SELECT count(*) FROM '{deep}' WHERE date = '2025-10-09' AND run = 'r7'"
    assert duckdb.execute(one).fetchall() == [(DELIVERIES,)]


@pytest.mark.full
def test_a_query_of_our_own(lake: Path) -> None:
    tables = lake_tables(lake)
    assert tables.unseen == ["waits"]
    sql = "SELECT count(*) AS runs, sum(delivered), sum(duplicates) FROM totals"
    with asked(tables, sql) as answer:
        assert list(answer.rows) == [(RUNS, ROWS, RUNS)]
    with asked(lake_tables(lake, "r7"), sql) as answer:
        assert list(answer.rows) == [(1, DELIVERIES, 1)]
