"""The day of each run in a lake on this host, and files that waited for it.

A run is open once its zero is known: it has the mark ``opened``, or its ``run.json`` says it. The
first process that opens a run decides; the others follow the mark.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from failback.client.consumelog.upload.layout import (
    GUARD,
    GUARD_TEXT,
    OPENED,
    WAITING,
    day_of,
    document_name,
    folder_of,
    mark_name,
    place_of,
)
from failback.common.files import parsed, read_file, sync_folder
from failback.common.replacing import place, replace_file


def opened_note(zero_wall_ns: int) -> bytes:
    """What the mark ``opened`` holds. Raises ``ValueError`` if no calendar has the instant."""
    day = day_of(zero_wall_ns)
    if day is None:
        raise ValueError(f"{zero_wall_ns} is no time, ns since 1970")
    return json.dumps({"zero_wall_ns": zero_wall_ns, "date": day}).encode()


def day_in_note(content: bytes) -> str | None:
    """The day that a mark says; none if it cannot be read."""
    found = _json(content)
    return day_of(found.get("zero_wall_ns"))


def zero_in_document(content: bytes, run: str) -> int | None:
    """Run zero, as ``run.json`` of this run says it; none of another run or a damaged document."""
    found = _json(content)
    zero = found.get("zero")
    if found.get("run") != run or not isinstance(zero, dict):
        return None
    wall_ns = zero.get("wall_ns")
    return wall_ns if day_of(wall_ns) is not None else None


def _json(content: bytes) -> dict[str, Any]:
    try:
        found = parsed(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def known_day(lake: Path, run: str) -> str | None:
    """The day of a run, or nothing while it is not open. A document that says it opens the run."""
    with contextlib.suppress(FileNotFoundError):
        day = day_in_note(read_file(lake / mark_name(run, OPENED)))
        if day is not None:
            return day
    for document in (lake / document_name(run, "run.json"), lake.parent / "run.json"):
        with contextlib.suppress(OSError):
            zero = zero_in_document(read_file(document), run)
            if zero is not None:
                return open_run(lake, run, zero)
    return None


def open_run(lake: Path, run: str, zero_wall_ns: int) -> str:
    """Say when a run began, unless that has been said; returns its day.

    Raises:
        ValueError: No calendar has the instant.
    """
    mark = lake / mark_name(run, OPENED)
    mark.parent.mkdir(parents=True, exist_ok=True)
    beside = mark.with_name(f".{mark.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    note = opened_note(zero_wall_ns)
    guard(lake)
    place(note, beside.with_suffix(".new"), beside)
    try:
        os.link(beside, mark)
    except FileExistsError:
        said = day_in_note(read_file(mark))
        if said is not None:
            beside.unlink()
            return said
        beside.replace(mark)  # somebody damaged it
    except OSError:  # a file system without links
        beside.replace(mark)
    beside.unlink(missing_ok=True)
    sync_folder(mark.parent)
    return str(day_of(zero_wall_ns))


def guard(lake: Path) -> None:
    """Put the file there that keeps programs from reading all tables as one."""
    if not (lake / GUARD).exists():
        replace_file(lake / GUARD, GUARD_TEXT.encode())


def settle(lake: Path, *, opening: bool = False) -> None:
    """Move the files that waited into the tables, of every run that is open now.

    Args:
        opening: No other process will open the runs: each begins with its first row by the wall
        clock.
    """
    for folder in _listed(lake / WAITING, "run=*"):
        run = folder.name.removeprefix("run=")
        day = known_day(lake, run)
        if day is None and opening:
            first = _first_row_ns(folder)
            day = None if first is None else open_run(lake, run, first)
        if day is not None:
            for path in _waiting(folder):
                _move(lake, path, day)
            _remove_empty(folder)


def _move(lake: Path, path: Path, day: str) -> None:
    found = place_of(str(path.relative_to(lake)))
    if found is None:
        return
    target = lake / folder_of(found.table, found.run, day) / found.file
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # another shipper of this lake was faster
        path.replace(target)
    sync_folder(target.parent)


def _remove_empty(folder: Path) -> None:
    """Take folders away in which nothing waits; one that got a file meanwhile stays."""
    for each in (*_listed(folder, "table=*"), folder, folder.parent):
        with contextlib.suppress(OSError):
            each.rmdir()


def _first_row_ns(folder: Path) -> int | None:
    walls = [wall for path in _waiting(folder) if (wall := _first_wall_ns(path)) is not None]
    return min(walls, default=None)


def _waiting(folder: Path) -> list[Path]:
    return [path for table in _listed(folder, "table=*") for path in _listed(table, "*.parquet")]


def _listed(folder: Path, pattern: str) -> list[Path]:
    """What is in a folder; nothing if another shipper took it away meanwhile."""
    try:
        return sorted(folder.glob(pattern))
    except FileNotFoundError:
        return []


def _first_wall_ns(path: Path) -> int | None:
    from failback.client.consumelog.upload.lake_files import first_wall_ns

    with contextlib.suppress(FileNotFoundError):
        return first_wall_ns(path)
    return None
