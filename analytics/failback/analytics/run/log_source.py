"""A run made of consume logs that lie in a folder: what ``failback workload`` leaves behind.

The logs stay as they are: their rows are put into a lake of its own. All processes that left one
count as one run under any name: a producer and a consumer started by hand belong together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.lake import open_lake
from failback.analytics.lake.segment_ids import RUN_PATTERN
from failback.analytics.run.run_source import RunSource, of_rows
from failback.client.consumelog.hot_format import SUFFIX, BadHotLog
from failback.client.consumelog.reader import HotLog, read_hot
from failback.client.consumelog.upload.lake_files import arrow_table, lake_rows, write_parquet
from failback.client.consumelog.upload.layout import day_of
from failback.client.consumelog.upload.segments import segments_of
from failback.common.text import where_and_why

_LEVELS: Final = 2
"""How far below a folder its logs are looked for."""


def logs_in(folder: Path) -> list[Path]:
    """The files of consume logs in a folder and in those in it."""
    return sorted(
        path for depth in range(_LEVELS) for path in folder.glob("*/" * depth + f"*{SUFFIX}")
    )


def source_of_logs(folder: Path, scratch: Path) -> RunSource:
    """The run that the consume logs of a folder make.

    Args:
        folder: Has the logs, or folders of them. A log whose writer lives is read as far as it is.
        scratch: An empty folder for the rows, as long as the run is worked on.

    Raises:
        ReportInputError: There are none, none that can be read, or two processes have one number.
    """
    run = folder.resolve().name
    if not re.fullmatch(RUN_PATTERN, run):
        run = "workload"
    logs: dict[Path, HotLog] = {}
    bad = []
    for path in logs_in(folder):
        try:
            logs[path] = read_hot(path)
        except (BadHotLog, OSError) as error:
            bad.append(where_and_why(error) if isinstance(error, OSError) else str(error))
    begins = [record[2] for log in logs.values() for record in log.records[:1]]
    if not begins:
        raise ReportInputError(
            f"has no consume log with rows{f': {bad[0]}' if bad else ''}", folder
        )
    _check_numbers(logs)
    day = day_of(min(begins))
    for log in logs.values():
        for segment in segments_of(replace(log, head=replace(log.head, run=run))):
            rows = lake_rows(arrow_table(segment), segment.table)
            write_parquet(rows, scratch / segment.path(day))
    lake = open_lake(scratch, run)
    lake.unreadable += bad
    return of_rows(lake, folder)


def _check_numbers(logs: Mapping[Path, HotLog]) -> None:
    """Refuse two processes of one number: rows name their process by it."""
    seen: dict[int, tuple[bytes, Path]] = {}
    for path, log in logs.items():
        proc, first = seen.setdefault(log.head.proc_no, (log.head.proc, path))
        if proc != log.head.proc:
            raise ReportInputError(
                f"is of another process than {first.name}, and both have number"
                f" {log.head.proc_no}: start each with its own --proc-no",
                path,
            )
