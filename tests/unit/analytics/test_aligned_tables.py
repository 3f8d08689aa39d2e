"""``jobs.normalise``: the smaller tables on one clock, each row once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from failback.analytics.jobs.normalise import align_table
from failback.analytics.lake.store import open_store
from failback.analytics.run.history_reading import read_history
from failback.analytics.run.run_source import source_at
from tests.support.analytics.cases import c2
from tests.support.analytics.run_builder import MS


def test_rows_of_an_earlier_job_do_not_stay_beside_those_of_this_one(tmp_path: Path) -> None:
    builder = c2()[0]
    source = source_at(builder.write(tmp_path / "run"))
    history = read_history(source.folder, source.lake)
    out = open_store(tmp_path / "out")
    align_table(source, history, "commit", out)
    (folder,) = (tmp_path / "out" / "aligned" / "table=commit").glob("date=*/run=c2")
    first = folder / "part-00000.parquet"
    rows = pq.read_table(first, partitioning=None)
    assert rows.column("t").to_pylist() == [
        row["t"] - source.folder.zero_mono_ns for row in builder.rows["commit"]
    ]
    assert min(rows.column("t").to_pylist()) < 1000 * MS, "after run zero"
    (folder / "part-00001.parquet").write_bytes(first.read_bytes())  # there were more, once
    align_table(source, history, "commit", out)
    assert [path.name for path in folder.iterdir()] == ["part-00000.parquet"]
