"""Phase 9: end the workload, seal the logs, count, and close the run folder.

The folder is closed only by code that ran to its end: ``closed.json`` and then ``manifest.json``
are written last. A run that lacks them is not evidence of anything.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from failback.chaos.failpoints import crash_point
from failback.chaos.faults.undo import undo_open
from failback.chaos.run.run_document import snapshot, write_run_json
from failback.chaos.run_folder.run_folder import CLOSED_SCHEMA, RunFolder
from failback.chaos.session import RECORDER_PROC_NO, Session
from failback.chaos.workload.process import CONSUMER, WorkloadProcess
from failback.client.consumelog.reader import missing_ranges
from failback.client.consumelog.schema import TABLES
from failback.client.consumelog.upload.sealing import Shipper, segment_metadata
from failback.common.files import has_rows, place_in

logger = logging.getLogger(__name__)

SEAL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Sealed:
    """What the lake holds after the last seal."""

    rows: dict[str, int]
    """Rows by table."""
    files: dict[str, int]
    """Rows by path below the run folder."""
    last_seq: dict[int, int]
    gaps: list[dict[str, int]]
    held: list[str]


def close_run(session: Session) -> None:
    """Undo what is left, stop everything, seal, and write closed.json."""
    session.in_rollback = True
    session.progress("closing the run")
    left = _undo_left(session, session.experiment.spec.heal_deadline_seconds)
    if session.supervisor is not None:
        session.supervisor.refresh()
        session.supervisor.stop_all()
        if left:  # a fault of members ends with them
            left = _undo_left(session, 0)
    snapshot(session, "end")
    recorder = session.recorder
    if recorder is not None:
        for note in recorder.notes():
            logger.warning("%s", note)
        _check_names(session)
        recorder.close()
    if session.supervisor is not None:
        session.supervisor.close()
    session.phases.end = time.monotonic_ns()
    expected = _expected_last_seq(session)
    sealed = seal(session.folder, session.run, expected)
    crash_point("sealed")
    write_run_json(session)
    session.folder.write_json("closed.json", closed_document(session, sealed, left))
    crash_point("closed-written")
    for gap in sealed.gaps:
        if recorder is not None:
            lost = f"records {gap['from_seq']} to {gap['to_seq']}"
            recorder.add_gap(f"process {gap['proc_no']}: {lost} are missing")
    for name in sealed.held:
        if recorder is not None:
            recorder.add_gap(f"{name} is still being written")
    session.closed = True


def _undo_left(session: Session, seconds: float) -> list[str]:
    """Undo what faults left; return a sentence for each that is still open."""
    if not session.ledger.open_entries(faults_only=True):
        return []
    found = undo_open(
        session.ledger, session.target, seconds=seconds, tell=session.progress, faults_only=True
    )
    return list(found["still_open"])


def _check_names(session: Session) -> None:
    """Bodies that did not arrive as they were sent are a finding, not a gap."""
    for process in session.supervisor.processes if session.supervisor else ():
        bad = int(process.stats.get("bad_bodies", 0))
        if bad:
            logger.error("%s received %d messages with a wrong CRC", process.name, bad)


def seal(folder: RunFolder, run: str, expected: Mapping[int, int]) -> Sealed:
    """Seal every hot log into the lake and add up what is there.

    Args:
        expected: Last ``seq`` of the processes that reported it, by process number.
    """
    deadline = time.monotonic() + SEAL_SECONDS
    place_in(folder.path, folder.lake)
    report = Shipper(folder.hot, folder.lake).seal_all(final=True)
    while report.held and time.monotonic() < deadline:
        time.sleep(0.2)
        report = Shipper(folder.hot, folder.lake).seal_all(final=True)
    rows: dict[str, int] = dict.fromkeys(TABLES, 0)
    files: dict[str, int] = {}
    ranges: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    records: dict[int, int] = defaultdict(int)
    for segment in segment_metadata(folder.lake, run):
        number, index = int(segment["proc_no"]), int(segment["index"])
        rows[segment["table"]] += int(segment["rows"])
        files[f"lake/{segment['path']}"] = int(segment["rows"])
        records[number] += int(segment["records"])
        low, high = ranges[number].get(index, (segment["seq_lo"], segment["seq_hi"]))
        ranges[number][index] = (min(low, segment["seq_lo"]), max(high, segment["seq_hi"]))
    last = {
        number: max(max((high for _, high in each.values()), default=0), expected.get(number) or 0)
        for number, each in ranges.items()
    }
    for number, seq in expected.items():
        last.setdefault(number, seq)
    gaps = [
        {"proc_no": number, "from_seq": first, "to_seq": end}
        for number in sorted(last)
        for first, end in missing_ranges(last[number], records[number], ranges[number].values())
    ]
    return Sealed(
        {table: count for table, count in rows.items() if count},
        files,
        last,
        gaps,
        [path.name for path in (*report.held, *report.bad)],
    )


def _expected_last_seq(session: Session) -> dict[int, int]:
    expected: dict[int, int] = {}
    if session.recorder is not None:
        expected[RECORDER_PROC_NO] = session.recorder.log.last_seq
    for process in session.supervisor.processes if session.supervisor else ():
        if process.last_seq is not None:
            expected[process.proc_no] = process.last_seq
    return expected


def closed_document(session: Session, sealed: Sealed, left: list[str]) -> dict[str, Any]:
    """The contents of closed.json, schema failback.closed/1. Times are ns after run zero."""
    recorder, results = session.recorder, session.results
    processes = session.supervisor.processes if session.supervisor else []
    return {
        "schema": CLOSED_SCHEMA,
        "drained": bool(results.drained),
        "scan": bool(results.scanned),
        "counts": sealed.rows,
        "procs": {str(number): seq for number, seq in sorted(sealed.last_seq.items())},
        "exits": {str(each.proc_no): _exit(session, each) for each in processes if each.exit},
        "gaps": sealed.gaps,
        "recorder_gaps": recorder.gaps() if recorder else ["the recorder was not opened"],
        "clock": {
            "steps": recorder.clock_steps if recorder else 0,
            "hosts": [
                {"host": recorder.log.host if recorder else "", "offset_ns": 0, "error_ns": 0}
            ],
        },
        "phases": {
            f"{name}_ns": session.after_zero(at) for name, at in asdict(session.phases).items()
        },
        "steady": results.steady,
        "steady_why": results.steady_why,
        "recovered": results.recovered,
        "recovered_why": results.recovered_why,
        "drain_open": results.drain_open,
        "aborted": results.aborted,
        "not_healed": left,
        "sampling_seconds": recorder.sampling_load if recorder else {},
    }


def _exit(session: Session, process: WorkloadProcess) -> dict[str, Any]:
    ended = process.exit
    assert ended is not None
    how = {"signal": ended.signal} if ended.signal is not None else {"code": ended.code}
    return {**how, "t_ns": session.after_zero(ended.stamp.mono_ns), "role": process.role}


def delivered_by_group(session: Session) -> dict[str, int]:
    """Deliveries that the members counted, by group."""
    if session.supervisor is None:
        return {}
    groups = {each.group for each in session.supervisor.processes if each.role == CONSUMER}
    return {group: session.supervisor.delivered(group) for group in groups}


def lake_rows(folder: Path) -> dict[str, int]:
    """Row counts of the lake's files by path below the run folder, for the manifest."""
    import pyarrow.parquet as pq

    return {
        path.relative_to(folder).as_posix(): pq.read_metadata(path).num_rows
        for path in sorted((folder / "lake").rglob("*.parquet"))
        if has_rows(path.name)
    }
