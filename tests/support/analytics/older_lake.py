"""A lake as versions before 0.2 wrote it: ``table=<t>/run=<id>``, and ``run`` in every file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.lake.catalogue import Catalogue
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.layout import runs
from failback.analytics.lake.store import open_store
from failback.client.consumelog.schema import arrow_schema
from failback.client.consumelog.upload.layout import (
    GUARD,
    OPENED,
    mark_name,
    older_folder_of,
    place_of,
)


def make_older(lake: Path, *, catalogued: bool = False) -> None:
    """Give every file of a lake its former place and its column ``run``."""
    for path in sorted(lake.rglob("table=*/**/*.parquet")):
        place = place_of(str(path.relative_to(lake)))
        assert place is not None
        rows = pq.read_table(path, partitioning=None)
        run = pa.array([place.run] * rows.num_rows).dictionary_encode()
        names = [name for name in arrow_schema(place.table).names if name != "run"]
        older = rows.select(names).add_column(0, arrow_schema(place.table).field("run"), run)
        to = lake / older_folder_of(place.table, place.run) / place.file
        to.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(older.replace_schema_metadata(rows.schema.metadata), to)
        path.unlink()
        (lake / mark_name(place.run, OPENED)).unlink(missing_ok=True)
    (lake / GUARD).unlink(missing_ok=True)
    for dated in lake.glob("table=*/date=*"):
        shutil.rmtree(dated)
    for run in runs(open_store(lake)) if catalogued else ():
        check_run(open_store(lake), Catalogue(lake), run, 1)
