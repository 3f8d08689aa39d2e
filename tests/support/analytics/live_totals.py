"""What the engine of the reports says of each queue, to compare live totals with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from failback.analytics.analysis.analysis import analyse
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.lake.lake import open_lake
from failback.analytics.run.folder_reading import read_run_folder


def batch_totals(folder: Path) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """What the engine of the reports says of each queue, without regard to epochs."""
    run = read_run_folder(folder)
    lake = open_lake(run.lake, run.run_id)
    copies = analyse(run, lake, local_engine(lake)).counts.depths["copy"]
    assert pc.max(copies.column("n2")).as_py() == 0  # one epoch: offsets mean one message each
    delivered: Counter[tuple[Any, ...]] = Counter()
    distinct: Counter[tuple[Any, ...]] = Counter()
    for row in copies.to_pylist():
        key = (row["grp"], row["broker"], row["topic"], row["n1"])
        delivered[key] += (row["hi"] - row["lo"]) * row["depth"]
        distinct[key] += row["hi"] - row["lo"]
    return {k: (n, distinct[k], n - distinct[k]) for k, n in delivered.items()}
