"""Where a run's documents and rows are: in one run folder, or apart.

A run folder has both. A lake that a collector filled may hold the rows alone. ``run.json`` and
``closed.json`` then come from a folder, else from the lake under ``_runs/run=<id>/``, else they are
made from the rows. A report from the last knows no plan and no drain, and says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow.compute as pc

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.lake.catalogue import CHANGED, CLOSED
from failback.analytics.lake.lake import Lake, open_lake
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.run.definitions import Wanted
from failback.analytics.run.documents import (
    CLOSED_SCHEMA,
    NOT_CLOSED,
    RUN_SCHEMA,
    WORKLOAD,
    Closed,
    Group,
    Run,
    Zero,
    closed_of,
    run_of,
)
from failback.analytics.run.folder_reading import read_run_folder, segments_contradicted
from failback.analytics.run.run_folder import Evidence, RunFolder
from failback.client.consumelog.upload.layout import document_name, mark_name
from failback.common.files import parsed
from failback.common.text import why
from failback.protocol.message import RETRY_PREFIX

_Document = TypeVar("_Document")


@dataclass(frozen=True, slots=True)
class RunSource:
    """One run to report on."""

    folder: RunFolder
    lake: Lake

    def counted_as(self, wanted: Wanted) -> RunSource:
        """The same run by other definitions. Raises ``ReportInputError``."""
        definitions = wanted.of_run(self.folder.zero_wall_ns, time.time_ns())
        return replace(self, folder=replace(self.folder, definitions=definitions))


def source_at(run_dir: Path | str) -> RunSource:
    """The run of a run folder, documents and rows."""
    folder = read_run_folder(Path(run_dir))
    return RunSource(folder, open_lake(folder.lake, folder.run_id))


def source_in_lake(
    lake: Path | str, run: str | None = None, documents: Path | None = None
) -> RunSource:
    """A run whose rows are in a lake.

    Args:
        lake: A folder or a URI.
        run: The run's id; that of ``documents`` by default.
        documents: A run folder with ``run.json``; its own lake is not looked at.

    Raises:
        ReportInputError: There are no rows of the run, or its documents cannot be read.
    """
    store = open_store(lake)
    given = read_run_folder(documents) if documents is not None else None
    named = run or (given.run_id if given else None)
    if named is None:
        raise ReportInputError(f"{store}: name a run of it: --run ID")
    if given is not None and given.run_id != named:
        raise ReportInputError(f"is of run {given.run_id}, not {named}", documents)
    store.check()
    found = open_lake(store, named)
    if not any(found.parts.values()) and not found.unreadable:
        raise ReportInputError(f"{store} has no rows of run {named}")
    return RunSource(given or documents_in(store, found), found)


def stored_documents(store: LakeStore, run: str) -> tuple[Run | None, Closed]:
    """``run.json`` and ``closed.json`` of a run of a lake, without a look at its rows.

    Returns:
        ``None`` where the lake has no ``run.json``; ``NOT_CLOSED`` of a run that is open.

    Raises:
        ReportInputError: One of them cannot be read.
    """
    closed = stored_closed(store, run) or _closed_from_mark(store, run)
    return stored_run(store, run), closed


def documents_in(store: LakeStore, lake: Lake) -> RunFolder:
    """The documents of a run, from the store or else from its rows."""
    run, closed = stored_documents(store, lake.run)
    contradicted = segments_contradicted(_lines(store, mark_name(lake.run, CHANGED)))
    evidence = Evidence(changed=contradicted)
    return RunFolder(Path(f"report-{lake.run}"), run or _run_from_rows(lake), closed, evidence)


def stored_run(store: LakeStore, run: str) -> Run | None:
    """``run.json`` of a run of a lake, ``None`` without one. Raises ``ReportInputError``."""
    return _stored(store, document_name(run, "run.json"), run_of)


def stored_closed(store: LakeStore, run: str) -> Closed | None:
    """``closed.json`` of a run of a lake, ``None`` without one. Raises ``ReportInputError``."""
    return _stored(store, document_name(run, "closed.json"), closed_of)


def _stored(
    store: LakeStore, where: str, parse: Callable[[bytes, str], _Document]
) -> _Document | None:
    try:
        content = store.read(where)
    except FileNotFoundError:
        return None
    except StoreUnusable:
        raise
    except OSError as error:
        raise ReportInputError(why(error), f"{store}/{where}") from error
    return parse(content, f"{store}/{where}")


def _lines(store: LakeStore, name: str) -> Iterator[bytes]:
    try:
        yield from store.read(name).splitlines()
    except FileNotFoundError:
        return


def _closed_from_mark(store: LakeStore, run: str) -> Closed:
    """How far each process got, as the request that closed the run said."""
    for line in _lines(store, mark_name(run, CLOSED)):
        where = f"{store}/{mark_name(run, CLOSED)}"
        try:
            procs = parsed(line)["procs"]
        except (ValueError, KeyError, TypeError) as error:
            raise ReportInputError(f"its first line cannot be read: {why(error)}", where) from error
        document = {"schema": CLOSED_SCHEMA, "procs": procs}
        return closed_of(json.dumps(document).encode(), where)
    return NOT_CLOSED


def of_rows(lake: Lake, path: Path) -> RunSource:
    """A run of which there is nothing but rows: it has no plan, and was not closed."""
    return RunSource(RunFolder(path, _run_from_rows(lake), NOT_CLOSED, Evidence()), lake)


def _run_from_rows(lake: Lake) -> Run:
    """Zero is the first row of the run by the wall clock; groups are those that were assigned."""
    first: tuple[int, int] | None = None
    for table in lake.parts:
        for chunk in lake.chunks(table, ("wall_ns", "mono_ns")):
            at = pc.index(chunk.column("wall_ns"), pc.min(chunk.column("wall_ns"))).as_py()
            here = (chunk.column("wall_ns")[at].as_py(), chunk.column("mono_ns")[at].as_py())
            first = here if first is None else min(first, here)
    wall, mono = first or (0, 0)
    members: dict[tuple[str, str], set[int]] = {}
    for row in lake.records("assign"):
        members.setdefault((row["grp"], row["ptopic"]), set()).add(row["inc"])
    groups = [
        Group(group, topic, len(procs))
        for (group, topic), procs in sorted(members.items())
        if not topic.startswith(RETRY_PREFIX)
    ]
    return Run(RUN_SCHEMA, lake.run, Zero(wall, mono), source=WORKLOAD, groups=groups)
