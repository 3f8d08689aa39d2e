"""Where the files of a lake lie: names below its root. Pure.

    table=<t>/date=<YYYY-MM-DD>/run=<id>/part-<proc_no>-<index>.parquet

The date is the UTC day of run zero, so that a query about some days opens only their folders. It is
not known before the run is open: until then the files lie outside of the tables, in
``_waiting/run=<id>/table=<t>/``. Spark, pyarrow and DuckDB look past names that begin with ``_``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

WAITING: Final = "_waiting"
"""The folder of runs that are not open."""
DOCUMENTS: Final = "_runs"
"""The folder of ``run.json`` and ``closed.json`` of runs."""
MARKS: Final = "_segments"
"""The folder of the catalogue and of its marks."""
OPENED: Final = "opened"
"""The mark of a run whose zero is known: ``{"zero_wall_ns": int, "date": str}``."""
GUARD: Final = "READ-ONE-TABLE-AT-A-TIME.txt"
"""A file in the root that is no Parquet: opening all tables as one is an error that names it.
Its name sorts before the tables, and begins with no ``_``."""
GUARD_TEXT: Final = """\
The folders beside this file are tables with different columns. Open one of them:
table=deliver, not the folder that this file is in. This file is here so that a
program that opens all of them as one table says so instead of mixing them.
"""
_PLACE: Final = re.compile(
    r"(?:table=(?P<table>[^/]+)/date=(?P<day>[^/]+)/run=(?P<run>[^/]+)"
    r"|_waiting/run=(?P<waiting>[^/]+)/table=(?P<of>[^/]+))/(?P<file>[^/]+)$"
)
_LATEST_NS: Final = 253_402_300_800 * 10**9
"""The year 10,000, which no date names."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the name of a file says."""

    table: str
    run: str
    day: str | None
    """Its date; none of a file that waits."""
    waits: bool
    file: str


def place_of(name: str) -> Place | None:
    """Read the name of a file below the root; none if it is no file of a table."""
    found = _PLACE.match(name)
    if found is None:
        return None
    waits = found["waiting"] is not None
    table, run = (found["of"], found["waiting"]) if waits else (found["table"], found["run"])
    return Place(table, run, found["day"], waits, found["file"])


def day_of(zero_wall_ns: Any) -> str | None:
    """The UTC day of an instant, ns since 1970; none if no calendar has it."""
    if not isinstance(zero_wall_ns, int) or not 0 <= zero_wall_ns < _LATEST_NS:
        return None
    return datetime.fromtimestamp(zero_wall_ns // 10**9, UTC).date().isoformat()


def folder_of(table: str, run: str, day: str | None) -> str:
    """The folder of a table's rows of a run; without a day where they wait for it."""
    if day is None:
        return f"{WAITING}/run={run}/table={table}"
    return f"table={table}/date={day}/run={run}"


def lake_path(table: str, run: str, proc_no: int, index: int, day: str | None) -> str:
    """Where the rows of one table from one hot file belong."""
    return f"{folder_of(table, run, day)}/part-{proc_no:05d}-{index:08d}.parquet"


def mark_name(run: str, kind: str) -> str:
    """The name of a mark of a run."""
    return f"{MARKS}/{kind}={run}"


def document_name(run: str, name: str) -> str:
    """The name of ``run.json`` or ``closed.json`` of a run."""
    return f"{DOCUMENTS}/run={run}/{name}"
