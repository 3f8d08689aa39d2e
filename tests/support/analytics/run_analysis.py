"""Analyses a built run with an engine, in a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from failback.analytics.analysis.analysis import analyse
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.analysis.results import Analysis
from failback.analytics.lake.lake import Lake, open_lake
from failback.analytics.run.definitions import DEFAULT, Definitions
from failback.analytics.run.folder_reading import read_run_folder

MakeEngine = Callable[[Lake], Engine]


def analysed(
    folder: Path, make: MakeEngine = local_engine, definitions: Definitions = DEFAULT
) -> Analysis:
    """The analysis of a run folder."""
    run = replace(read_run_folder(folder), definitions=definitions)
    lake = open_lake(run.lake, run.run_id)
    return analyse(run, lake, make(lake))
