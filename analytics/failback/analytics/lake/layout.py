"""Which files and runs a lake has, wherever they lie; the names are those of ``upload.layout``.

What is asked about one run looks into that run's folders only: the mark ``opened`` says its day.
Files that wait for their run are found as well. A folder ``table=T/run=ID`` without a date, which
only an earlier checkout wrote, is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.store import Found, LakeStore
from failback.client.consumelog.upload.lake_files import first_wall_ns
from failback.client.consumelog.upload.layout import (
    GUARD,
    GUARD_TEXT,
    MARKS,
    OPENED,
    WAITING,
    document_name,
    folder_of,
    mark_name,
    place_of,
)
from failback.client.consumelog.upload.run_days import day_in_note, zero_in_document


@dataclass(frozen=True, slots=True)
class Partition:
    """The rows of one table and run in one folder."""

    table: str
    run: str
    day: str | None
    """Its date; none where rows wait because the run is not open."""
    folder: str


def partitions(store: LakeStore) -> Iterator[Partition]:
    """Every folder with rows of the lake."""
    for name in store.folders():
        table = _value(name, "table")
        if table is not None:
            yield from _of_table(store, table, name)
    for name in store.folders(WAITING):
        run = _value(name, "run")
        for below in store.folders(f"{WAITING}/{name}") if run is not None else ():
            table = _value(below, "table")
            if table is not None and run is not None:
                yield Partition(table, run, None, f"{WAITING}/{name}/{below}")


def _of_table(store: LakeStore, table: str, name: str) -> Iterator[Partition]:
    for below in store.folders(name):
        run, day = _value(below, "run"), _value(below, "date")
        if run is not None:
            _refuse_undated(store, f"{name}/{below}")
        elif day is not None:
            for folder in store.folders(f"{name}/{below}"):
                run = _value(folder, "run")
                if run is not None:
                    yield Partition(table, run, day, f"{name}/{below}/{folder}")


def _refuse_undated(store: LakeStore, folder: str) -> None:
    # Some object stores go on showing a folder that has no object any more.
    if store.files(folder, ""):
        what = "has rows without a date, as an earlier checkout wrote them: make the run again"
        raise ReportInputError(what, store.path(folder))


def _value(folder: str, key: str) -> str | None:
    found, given, value = folder.partition("=")
    return value if given and found == key and value else None


def runs(store: LakeStore) -> list[str]:
    """The runs that have rows of any table."""
    return sorted({each.run for each in partitions(store)})


def opened_day(store: LakeStore, run: str) -> str | None:
    """The day of a run as its mark says it; none of a run that is not open."""
    content = _content(store, mark_name(run, OPENED))
    return None if content is None else day_in_note(content)


def documented_zero(store: LakeStore, run: str) -> int | None:
    """Run zero, ns since 1970, as ``run.json`` in the lake says it."""
    content = _content(store, document_name(run, "run.json"))
    return None if content is None else zero_in_document(content, run)


def _content(store: LakeStore, name: str) -> bytes | None:
    try:
        return store.read(name)
    except FileNotFoundError:
        return None


def check_lake(store: LakeStore) -> None:
    """Make sure that rows were ever put here: a lake whose runs are all deleted still is one.

    Raises:
        ReportInputError: It is no lake.
    """
    names = store.folders()
    tables = any(_value(name, "table") is not None for name in names)
    if not tables and WAITING not in names and MARKS not in names and store.size(GUARD) is None:
        raise ReportInputError(f"{store} is no lake: it has no folder table=TABLE")


def put_guard(store: LakeStore) -> None:
    """Put the file there that keeps programs from reading all tables as one."""
    if store.size(GUARD) is None:
        store.write(GUARD, GUARD_TEXT.encode())


def run_partitions(store: LakeStore, run: str) -> list[Partition]:
    """The folders that may have rows of a run; some may not exist."""
    root = store.folders()
    tables = [table for name in root if (table := _value(name, "table")) is not None]
    day = opened_day(store, run)
    found = []
    if day is not None:
        found = [Partition(t, run, day, folder_of(t, run, day)) for t in tables]
    if WAITING in root:
        below = store.folders(f"{WAITING}/run={run}")
        waiting = [table for name in below if (table := _value(name, "table")) is not None]
        found += [Partition(t, run, None, folder_of(t, run, None)) for t in waiting]
    return found


def run_files(store: LakeStore, run: str) -> dict[str, list[Found]]:
    """The files of a run, by table and name."""
    found: dict[str, list[Found]] = {}
    for each in run_partitions(store, run):
        found.setdefault(each.table, []).extend(store.files(each.folder))
    if not any(found.values()):  # somebody copied it here without its mark
        for each in _on_every_day(store, run):
            found.setdefault(each.table, []).extend(store.files(each.folder))
    return {
        table: sorted(files, key=lambda file: file.name) for table, files in found.items() if files
    }


def _on_every_day(store: LakeStore, run: str) -> Iterator[Partition]:
    for name in store.folders():
        table = _value(name, "table")
        for below in store.folders(name) if table is not None else ():
            day = _value(below, "date")
            if table is not None and day is not None:
                yield Partition(table, run, day, folder_of(table, run, day))
            elif _value(below, "run") == run:
                _refuse_undated(store, f"{name}/{below}")


def settle(store: LakeStore, run: str, day: str) -> list[str]:
    """Move the files of a run that waited into the tables; returns the names that they have now.

    Killed between two of them, or within one in an object store, it can be done again.
    """
    moved = []
    for name in store.folders(f"{WAITING}/run={run}"):
        for found in store.files(f"{WAITING}/run={run}/{name}"):
            moved.append(settled_name(found.name, day))
            store.move(found.name, moved[-1])
    if moved:
        store.delete_folder(f"{WAITING}/run={run}")
    return moved


def settled_name(name: str, day: str | None) -> str:
    """Where a file that waits belongs; other names stay as they are."""
    found = place_of(name)
    if found is None or not found.waits or day is None:
        return name
    return f"{folder_of(found.table, found.run, day)}/{found.file}"


def first_row_ns(store: LakeStore, files: Iterable[str]) -> int | None:
    """The earliest row of these files by the wall clock, ns since 1970."""
    walls = []
    for name in files:
        with contextlib.suppress(FileNotFoundError), store.open(name) as file:
            wall = first_wall_ns(file)
            walls += [] if wall is None else [wall]
    return min(walls, default=None)
