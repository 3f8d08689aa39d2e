"""A run and its processes as documents, from the numbers in memory. Pure."""

from __future__ import annotations

from typing import Any

from failback.analytics.lake.catalogue import ProcState, RunState


def run_document(state: RunState) -> dict[str, Any]:
    """A run, its processes summed up."""
    procs = list(state.procs.values())
    return {
        "run": state.run,
        "segments": state.segments,
        "bytes": state.bytes,
        "procs": len(procs),
        "closed": state.closed,
        "evidence_changed": state.changed > 0,
        "backlog_bytes": sum(each.backlog_bytes for each in procs),
        "deliveries": sum(each.deliveries for each in procs),
        "missing": sum(each.missing for each in procs),
        "quarantined": state.changed,
        "heard_ms": max((each.heard_ms for each in procs), default=0),
    }


def procs_document(state: RunState, cursor: int, limit: int) -> dict[str, Any]:
    """At most ``limit`` processes with numbers above ``cursor``, and the next cursor."""
    numbers = sorted(number for number in list(state.procs) if number > cursor)
    return {
        "run": state.run,
        "procs": [_process(number, state.procs[number]) for number in numbers[:limit]],
        "next": numbers[limit - 1] if len(numbers) > limit else None,
    }


def _process(number: int, state: ProcState) -> dict[str, Any]:
    return {
        "proc": state.proc,
        "proc_no": number,
        "host": state.host,
        "role": state.role,
        "segments": state.segments,
        "bytes": state.bytes,
        "deliveries": state.deliveries,
        "records": state.records,
        "last_seq": state.last_seq,
        "missing": state.missing,
        "backlog_bytes": state.backlog_bytes,
        "quarantined": state.quarantined,
        "heard_ms": state.heard_ms,
    }
