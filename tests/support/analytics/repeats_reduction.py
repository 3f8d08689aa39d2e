"""What an analysis of a run gives to workers to reduce repeats with, in a test."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from failback.analytics.analysis.analysis import prepare, reduction_of
from failback.analytics.analysis.causes.repeats import RepeatsReduction
from failback.analytics.analysis.causes.send_backs import SEND_BACK_COLUMNS, send_backs_of
from failback.analytics.analysis.counting.partials.resolution import Resolution
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.lake.lake import open_lake
from failback.analytics.run.folder_reading import read_run_folder
from tests.support.analytics.run_analysis import analysed


def reduction(folder: Path, resolution: Resolution) -> tuple[RepeatsReduction, pa.Table]:
    """Of a run folder whose messages are known by their LAB_ID, with what was sent back."""
    run = read_run_folder(folder)
    lake = open_lake(run.lake, run.run_id)
    prepared = prepare(run, lake, local_engine(lake))
    rows = lake.read("sendback", SEND_BACK_COLUMNS)
    back = send_backs_of(rows, prepared.context)
    return reduction_of(prepared, analysed(folder).distances, resolution), back
