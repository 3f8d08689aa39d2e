"""A run and its processes as documents, from the numbers in memory. Pure."""

from __future__ import annotations

from pydantic import BaseModel

from failback.analytics.lake.catalogue import ProcState, RunState


class RunDocument(BaseModel):
    """One run in a few numbers."""

    run: str
    segments: int
    bytes: int
    procs: int
    closed: bool
    evidence_changed: bool
    backlog_bytes: int
    deliveries: int
    missing: int
    quarantined: int
    heard_ms: int

    @classmethod
    def of(cls, state: RunState) -> RunDocument | None:
        """The run with its processes summed up; ``None`` if there is nothing of it."""
        if not state.segments:
            return None
        procs = list(state.procs.values())
        return cls(
            run=state.run,
            segments=state.segments,
            bytes=state.bytes,
            procs=len(procs),
            closed=state.closed,
            evidence_changed=state.changed > 0,
            backlog_bytes=sum(each.backlog_bytes for each in procs),
            deliveries=sum(each.deliveries for each in procs),
            missing=sum(each.missing for each in procs),
            quarantined=state.changed,
            heard_ms=max((each.heard_ms for each in procs), default=0),
        )


class ProcessState(BaseModel):
    """One process in a few numbers. ``missing``: records up to ``last_seq`` that are not stored,
    or not yet; ``quarantined``: segments that came twice with other content; ``heard_ms``: Unix
    time when it was last heard of."""

    proc: str
    proc_no: int
    host: str
    role: str
    segments: int
    bytes: int
    deliveries: int
    records: int
    last_seq: int
    missing: int
    backlog_bytes: int
    quarantined: int
    heard_ms: int

    @classmethod
    def of(cls, number: int, state: ProcState) -> ProcessState:
        names = cls.model_fields.keys() - {"proc_no"}
        return cls(proc_no=number, **{name: getattr(state, name) for name in names})


class ProcessPage(BaseModel):
    """Processes of a run by number; ``next`` is the cursor of the following page."""

    run: str
    procs: list[ProcessState]
    next: int | None

    @classmethod
    def of(cls, state: RunState, cursor: int, limit: int) -> ProcessPage | None:
        """At most ``limit`` processes with numbers above ``cursor``; ``None`` if it has nothing."""
        if not state.segments:
            return None
        numbers = sorted(number for number in list(state.procs) if number > cursor)
        shown = [ProcessState.of(number, state.procs[number]) for number in numbers[:limit]]
        following = numbers[limit - 1] if len(numbers) > limit else None
        return cls(run=state.run, procs=shown, next=following)


class RunPage(BaseModel):
    """Runs by name; ``next`` is the cursor of the following page."""

    runs: list[RunDocument]
    next: str | None
