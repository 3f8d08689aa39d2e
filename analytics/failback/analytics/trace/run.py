"""Writes what a trace says as a run folder, the same as every other run has.

``run.json`` carries ``source: trace``; ``closed.json`` names under ``recorder_gaps`` everything
that could not be read or joined, and counts it under ``trace``. Writing again after more was read
replaces the rows; a writer that is killed leaves a folder without manifest, to be written again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.run.documents import CLOSED_SCHEMA, TRACE
from failback.analytics.run.run_folder import unplanned_run
from failback.analytics.trace import deliveries, tables
from failback.analytics.trace.deliveries import ClientClock, Counts
from failback.analytics.trace.pages import DAMAGED, Pages, Place
from failback.analytics.trace.placing import place
from failback.client.consumelog.upload.lake_files import lake_rows, write_parquet
from failback.client.consumelog.upload.layout import day_of, lake_path
from failback.common.files import place_in
from failback.common.replacing import replace_file
from failback.protocol.names import instance_of, is_meant, without_instance

MANIFEST_SCHEMA: Final = "failback.manifest/1"
_CLOSED: Final = {
    "schema": CLOSED_SCHEMA,
    "drained": False,
    "scan": False,
    "counts": {},
    "procs": {},
    "exits": {},
    "gaps": [],
}
"""What a trace does not know, in the order of ``closed.json``."""
MAX_NAMED: Final = 20
"""Unreadable records that ``closed.json`` names one by one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of a trace a run is about."""

    run: str
    groups: tuple[str, ...] = ()
    """Only these consumer groups; none named: all."""
    broadcasting: tuple[str, ...] = ()
    """Groups in which every member gets every message; a trace doesn't say so."""
    scanned: bool = True
    """Whether the traced topics were read for positions."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a trace gives of the lake's tables, and what the joining came across."""

    by_table: Mapping[str, pa.Table]
    """Rows by table. Times are wall clocks, ns since 1970."""
    processes: tables.Processes
    clocks: Sequence[ClientClock]
    records: int
    damaged: pa.Table
    groups: tuple[str, ...]
    counts: Counts


@dataclass(frozen=True, slots=True)
class Written:
    """What a run folder was made of."""

    run_dir: Path
    records: int
    damaged: int
    deliveries: int
    sends: int
    groups: tuple[str, ...]
    counts: Counts
    gaps: tuple[str, ...]


def write_run(
    run_dir: Path,
    pages: Pages,
    wanted: Wanted,
    *,
    brokers: Mapping[str, str],
    problems: Sequence[str] = (),
) -> Written:
    """Make the run folder from everything that lies in ``pages``.

    Args:
        brokers: Broker names by address.
        problems: What could not be read this time, in words.
    """
    made = rows_of(pages, wanted, brokers)
    deliver, produce, counts = made.by_table["deliver"], made.by_table["produce"], made.counts
    gaps = _gaps(pages, made.damaged, counts, problems, scanned=wanted.scanned)
    gaps += [
        f'group "{named}" has no delivery in the trace: is its name right?'
        for named in wanted.groups
        if not any(is_meant(each, (named,)) for each in made.groups)
    ]
    for name in ("manifest.json", "closed.json"):
        (run_dir / name).unlink(missing_ok=True)
    shutil.rmtree(run_dir / "lake", ignore_errors=True)
    first, last = _ends(deliver, produce, made.clocks)
    write_tables(run_dir, wanted.run, made.by_table, first)
    _write(run_dir / "run.json", _run_document(wanted, deliver, made.processes, first))
    closed = {
        "scan": wanted.scanned and not problems,
        "counts": {name: table.num_rows for name, table in made.by_table.items()},
        "recorder_gaps": gaps,
        "clock": {"steps": counts.clock_steps, "hosts": [asdict(clock) for clock in made.clocks]},
        "phases": {"end_ns": last - first},
        "trace": {"records": made.records, "damaged": made.damaged.num_rows, **asdict(counts)},
    }
    _write(run_dir / "closed.json", _CLOSED | closed)
    _write_manifest(run_dir)
    return Written(
        run_dir,
        made.records,
        made.damaged.num_rows,
        deliver.num_rows,
        produce.num_rows,
        made.groups,
        counts,
        tuple(gaps),
    )


def rows_of(pages: Pages, wanted: Wanted, brokers: Mapping[str, str]) -> Rows:
    """Rows of everything that lies in ``pages``; ``brokers`` as for :func:`write_run`."""
    named = tuple(map(without_instance, wanted.groups))
    records = _of_groups(pages.read("records"), named)
    copies = pages.read("copies")
    placed = place(deliveries.handlings_of(records), copies)
    sends = deliveries.sends_of(records)
    processes = tables.Processes.of(
        [*_names(placed.handlings.process), *_names(_sender_processes(sends))]
    )
    deliver = _meant(tables.deliver_table(wanted.run, placed, processes), wanted.groups)
    clocks = deliveries.client_clocks(records)
    return Rows(
        by_table={
            "deliver": deliver,
            "produce": tables.produce_table(
                wanted.run, sends, copies, processes, brokers, len(placed.handlings)
            ),
            "scan": tables.scan_table(wanted.run, copies),
            "clock": tables.clock_table(wanted.run, clocks),
        },
        processes=processes,
        clocks=clocks,
        records=records.num_rows,
        damaged=records.filter(pc.equal(records.column("kind"), DAMAGED)),
        groups=tuple(sorted(set(_names(deliver.column("grp").cast(pa.utf8()))))),
        counts=placed.handlings.counts,
    )


def write_tables(run_dir: Path, run: str, rows: Mapping[str, pa.Table], wall_ns: int) -> None:
    """Write rows into the lake of a run folder, a file of each table that has some.

    ``wall_ns`` says the day of the run, ns since 1970.
    """
    day = day_of(wall_ns) or day_of(0)
    for name, table in rows.items():
        if table.num_rows:
            path = place_in(run_dir, run_dir / "lake" / lake_path(name, run, 0, 0, day))
            write_parquet(lake_rows(table, name), path)


def traced_groups(records: pa.Table) -> list[str]:
    """Consumer groups that a trace names."""
    subs = records.filter(pc.starts_with(records.column("kind"), "Sub"))
    return sorted(name for name in pc.unique(subs.column("group")).to_pylist() if name)


def traced_topics(records: pa.Table) -> list[str]:
    """Topics that traced producers sent to."""
    found = pc.unique(records.column("traced_topic")).to_pylist()
    return sorted(name for name in found if name and not name.startswith("%"))


def _of_groups(records: pa.Table, groups: tuple[str, ...]) -> pa.Table:
    """Leave out other groups' handlings. An end without a group goes with its begin's request."""
    if not groups:
        return records
    others = records.filter(
        pc.and_(
            pc.starts_with(records.column("kind"), "Sub"),
            pc.invert(pc.is_in(records.column("group"), pa.array(groups))),
        )
    )
    named = others.filter(others.column("group").is_valid())
    foreign = pc.is_in(records.column("request_id"), pc.unique(named.column("request_id")))
    return records.filter(pc.invert(pc.fill_null(foreign, False)))


def _meant(deliver: pa.Table, groups: tuple[str, ...]) -> pa.Table:
    """Leave out groups of the same name in another instance than the one that was named."""
    if not any(map(instance_of, groups)):
        return deliver
    grp = deliver.column("grp").cast(pa.utf8())
    meant = [name for name in _names(grp) if is_meant(name, groups)]
    return deliver.filter(pc.is_in(grp, pa.array(meant, pa.utf8())))


def _sender_processes(sends: pa.Table) -> pa.Array:
    first_id = pc.list_element(pc.split_pattern(sends.column("message_id"), ","), 0)
    host = sends.column("host").combine_chunks()
    return deliveries.processes_of(host, first_id.combine_chunks())[0]


def _names(column: pa.Array) -> list[str]:
    return [name for name in pc.unique(column).to_pylist() if name is not None]


def _ends(deliver: pa.Table, produce: pa.Table, clocks: Sequence[ClientClock]) -> tuple[int, int]:
    """First and last instant on the brokers' clock, ns."""
    shift = {clock.host: clock.offset_ns for clock in clocks}
    times: list[int] = []
    for table, begin, end in ((deliver, "bt", "et"), (produce, "t0", "t1")):
        for host in _names(table.column("host").combine_chunks().dictionary_decode()):
            mine = table.filter(pc.equal(table.column("host").cast(pa.utf8()), host))
            moved = shift.get(host, 0)
            bounds = (pc.min(mine.column(begin)).as_py(), pc.max(mine.column(begin)).as_py(),
                      pc.max(mine.column(end)).as_py())  # fmt: skip
            times += [value + moved for value in bounds if value is not None]
    return (min(times), max(times)) if times else (0, 0)


def _run_document(
    wanted: Wanted, deliver: pa.Table, processes: tables.Processes, zero_ns: int
) -> dict[str, Any]:
    number = processes.number
    members = _members(deliver)
    pairs = deliver.select(["grp", "ltopic"]).group_by(["grp", "ltopic"]).aggregate([])
    models = ("CLUSTERING", "BROADCASTING")
    seen = set(zip(*(pairs.column(name).to_pylist() for name in ("grp", "ltopic")), strict=True))
    groups = [
        {
            "name": group,
            "topic": topic,
            "members": members[group],
            "model": "push",
            "orderly": False,
            "messageModel": models[is_meant(group, wanted.broadcasting)],
        }
        for group, topic in sorted(seen)
        if topic != tables.UNKNOWN or all(other != group or t == topic for other, t in seen)
    ]
    topics = sorted({topic for _, topic in seen if topic != tables.UNKNOWN})
    procs = [
        {
            "proc_no": number[name],
            "proc": processes.key(name).hex(),
            "role": role,
            "host": name.rpartition("/")[0],
            "group": group,
            "client_id": client_id,
        }
        for name, (role, group, client_id) in sorted(processes.roles.items())
    ]
    return unplanned_run(
        wanted.run,
        TRACE,
        wall_ns=zero_ns,
        mono_ns=zero_ns,
        topics=[{"name": topic, "queues": None, "ordered": False} for topic in topics],
        groups=groups,
        procs=procs,
    )


def _members(deliver: pa.Table) -> Counter[str]:
    pairs = deliver.select(["grp", "proc_no"]).group_by(["grp", "proc_no"]).aggregate([])
    return Counter(pairs.column("grp").to_pylist())


def _gaps(
    pages: Pages, damaged: pa.Table, counts: Counts, problems: Sequence[str], *, scanned: bool
) -> list[str]:
    """Everything that is missing or not known, in words."""
    found = [*problems]
    for table in ("records", "copies"):
        found += [
            f"offsets {first} to {end - 1} of {where} had expired before they were read"
            for where, first, end in pages.holes(table)
        ]
    rows = damaged.slice(0, MAX_NAMED).to_pylist()
    for row in rows:
        where = Place(row["broker"], row["topic"], row["qid"])
        found.append(f"record {row['number']} of {where} offset {row['qoff']} {row['problem']}")
    if damaged.num_rows > MAX_NAMED:
        found.append(f"{damaged.num_rows - MAX_NAMED} more records can't be read")
    lines = (
        (counts.missing_begin, "handlings have no SubBefore and were told by their SubAfter"),
        (counts.undated, "handlings have no SubBefore, and their SubAfter no time: left out"),
        (
            counts.without_group,
            "handlings have no SubBefore, and their SubAfter no group: left out",
        ),
        (counts.unknown_retries, "handlings have no SubBefore that says which attempt: left out"),
        (counts.unplaced if scanned else 0, "handlings are of messages that lie in no topic read"),
    )
    return found + [f"{number} {words}" for number, words in lines if number]


def _write(path: Path, document: Mapping[str, Any]) -> None:
    replace_file(path, json.dumps(document, indent=1).encode() + b"\n")


def _write_manifest(run_dir: Path) -> None:
    """List and hash every file but the manifest and the report."""
    files = {}
    for path in sorted(run_dir.rglob("*")):
        name = path.relative_to(run_dir).as_posix()
        if path.is_file() and name != "manifest.json" and not name.startswith("report/"):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[name] = {"bytes": path.stat().st_size, "sha256": digest}
    lines = "".join(f"{files[name]['sha256']}  {name}\n" for name in sorted(files))
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "files": files,
        "run_sha256": hashlib.sha256(lines.encode()).hexdigest(),
    }
    _write(run_dir / "manifest.json", manifest)
