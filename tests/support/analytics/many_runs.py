"""A lake of many tiny runs: the rows of one, in the folder of each."""

from __future__ import annotations

import shutil
from pathlib import Path

from failback.client.consumelog.upload.layout import day_of, folder_of, place_of
from failback.client.consumelog.upload.run_days import open_run
from tests.support.analytics.run_builder import RunBuilder

DAY_NS = 86_400 * 10**9
ZERO_NS = 1_760_000_000 * 10**9
DELIVERIES = 3


def many_runs(folder: Path, count: int, runs_a_day: int = 50) -> Path:
    """Make a lake of ``count`` runs ``r0``, ``r1``, ... and one that waits; returns its folder.

    Each run has three deliveries of two messages, on the day ``number // runs_a_day``.
    """
    builder = RunBuilder("one")
    builder.assign(0, 0)
    builder.run_of(range(2), 10)
    builder.deliver(1, 20, 21)
    one = builder.write(folder / "one", manifest=False) / "lake"
    files = [(path, place_of(str(path.relative_to(one)))) for path in one.rglob("*.parquet")]
    lake = folder / "lake"
    for number in range(count):
        run, zero = f"r{number}", ZERO_NS + number // runs_a_day * DAY_NS
        for path, place in files:
            assert place is not None
            target = lake / folder_of(place.table, run, day_of(zero)) / path.name
            target.parent.mkdir(parents=True)
            shutil.copyfile(path, target)
    open_run(lake, "r0", ZERO_NS)
    for path, place in files:
        assert place is not None
        target = lake / folder_of(place.table, "waits", None) / path.name
        target.parent.mkdir(parents=True)
        shutil.copyfile(path, target)
    shutil.rmtree(folder / "one")
    return lake
