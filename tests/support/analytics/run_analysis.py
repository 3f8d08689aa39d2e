"""Analyses a built run with an engine, in a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.analysis.analysis import analyse
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.analysis.results import Analysis
from failback.analytics.lake.lake import Lake, open_lake
from failback.analytics.lake.store import StoreAddress
from failback.analytics.report.results import RowsInFiles
from failback.analytics.run.definitions import DEFAULT, Definitions
from failback.analytics.run.folder_reading import read_run_folder

_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
MakeEngine = Callable[[Lake], Engine]


@dataclass(slots=True)
class Analysed(Analysis):
    """With the classified deliveries one by one."""

    rows: pa.Table = field(default_factory=tables.ATTRIBUTED.empty_table)


def analysed(
    folder: Path, make: MakeEngine = local_engine, definitions: Definitions = DEFAULT
) -> Analysed:
    """The analysis of a run folder."""
    run = replace(read_run_folder(folder), definitions=definitions)
    lake = open_lake(run.lake, run.run_id)
    with TemporaryDirectory(dir=_MEMORY) as kept:
        analysis = analyse(run, lake, make(lake), RowsInFiles(StoreAddress(kept, ()), "class"))
        parts = [pq.read_table(part) for part in Path(kept, "class").glob("*.parquet")]
        rows = pa.concat_tables([tables.ATTRIBUTED.empty_table(), *parts])
    known = {each.name: getattr(analysis, each.name) for each in fields(analysis)}
    return Analysed(**known, rows=tables.sorted_table(rows, tables.ATTRIBUTED))
