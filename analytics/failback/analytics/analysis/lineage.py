"""The history of one consumer offset: its value in each copy over time, and where it went down.

An offset lives in a chain: client memory, commit, the master's table, its file, the slave's table,
and the answer that the next owner of the queue starts from. :func:`lineage` puts what the run
recorded of one queue into that chain, up to an instant, and names the step at which it fell back.
Every step carries the row it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.counting.partials.commits import TAKEN_RESULTS
from failback.analytics.lake.lake import Lake
from failback.analytics.run.history import DOWN_KINDS, GroupQueue, History, row_id
from failback.client.admin.queue_offsets import ANSWER, MASTER_FILE, MASTER_TABLE, SLAVE_TABLE, Span

Row = Mapping[str, Any]

COMMIT: Final = "commit"
RESET: Final = "reset"
MASTER_BACKUP: Final = "master file, backup"
BROKER: Final = "broker"
PLACES: Final = (COMMIT, MASTER_TABLE, MASTER_FILE, SLAVE_TABLE, ANSWER)
"""Where the offset can be seen; a place without a step is named as not recorded."""

_BROKER_KINDS: Final = DOWN_KINDS | {"ACCEPT"}


@dataclass(frozen=True, slots=True)
class Step:
    """One value at one place. Times are ns after run zero."""

    t: int
    place: str
    offset: int | None
    fell: int
    """Messages that this step is below the one that it came from; 0 where it did not fall."""
    broker_id: int | None
    incarnation: int | None
    what: str
    row: str
    """``table/process number/seq`` of the row that says so."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The steps up to an instant, oldest first."""

    queue: GroupQueue
    t: int
    steps: tuple[Step, ...]
    fell_at: Step | None
    """The answer that fell back furthest, else the copy that did."""
    safe_offset: int | None
    """The highest offset that a table held or a broker took: going on there loses nothing that
    was not finished, and repeats least."""
    unseen: tuple[str, ...]
    """Places of the chain that the run recorded nothing of."""
    outside: tuple[str, ...] = ()
    """Offsets beyond every end that the queue had, in words; the furthest first."""


def lineage(history: History, lake: Lake, queue: GroupQueue, t: int) -> Lineage:
    """What became of the offset of ``queue`` until ``t``, ns after run zero."""
    found = [
        *_commits(_rows(history, lake, "commit", queue, "t", t)),
        *_samples(_rows(history, lake, "broker_offset_sample", queue, "t", t)),
        *_lives(history, queue, t),
    ]
    found.sort(key=lambda step: (step.t, step.row))
    steps = _with_answers(found, _answers(history, lake, queue, t))
    known = [s for s in _since_reset(steps) if s.offset is not None and s.place != ANSWER]
    fallen = [step for step in steps if step.fell]
    answers = [step for step in fallen if step.place == ANSWER]
    return Lineage(
        queue=queue,
        t=t,
        steps=tuple(steps),
        fell_at=max(answers or fallen, key=lambda step: (step.fell, step.t), default=None),
        safe_offset=_safe(history, queue, known),
        unseen=tuple(place for place in PLACES if not any(s.place == place for s in steps)),
        outside=_outside(history, queue, steps),
    )


def _safe(history: History, queue: GroupQueue, known: Sequence[Step]) -> int | None:
    """The furthest that the queue had; where none is within it, its end."""
    ends = [(step.offset or 0, history.end_of(queue.queue, step.t)) for step in known]
    within = [offset for offset, end in ends if end is None or offset <= end]
    return max(within or (end for _, end in ends if end is not None), default=None)


def _outside(history: History, queue: GroupQueue, steps: Sequence[Step]) -> tuple[str, ...]:
    found = {
        (step.offset, Span(0, end).outside(step.offset))
        for step in steps
        if step.offset is not None and (end := history.end_of(queue.queue, step.t)) is not None
    }
    return tuple(said for _, said in sorted(found, reverse=True) if said)


def known_queues(history: History) -> set[GroupQueue]:
    """Every queue that the run knows, as a group sees it."""
    return {a.key for a in history.assignments} | {key for key, *_ in history.samples}


def queues_named(history: History, group: str, topic: str, qid: int) -> list[GroupQueue]:
    """Queues of any broker that the run knows by this name; a client's own where broadcast."""
    return sorted(
        key
        for key in known_queues(history)
        if group in (key.grp, key.grp.rsplit("@", 1)[0]) and (key.ptopic, key.qid) == (topic, qid)
    )


def _rows(
    history: History, lake: Lake, table: str, queue: GroupQueue, time: str, until: int
) -> list[dict[str, Any]]:
    """Rows of the queue up to an instant, aligned, oldest first."""
    found = []
    for chunk in lake.chunks(table):
        of_queue = pc.and_(
            pc.equal(chunk.column("qid"), queue.qid),
            pc.and_(
                pc.equal(chunk.column("broker").cast(pa.utf8()), queue.broker),
                pc.equal(chunk.column("ptopic").cast(pa.utf8()), queue.ptopic),
            ),
        )
        for row in chunk.filter(of_queue).to_pylist():
            row[time] += history.clocks.shift_of(row["host"])
            group = history.group_name(row["grp"], row.get("client_id"))
            if group == queue.grp and row[time] <= until:
                found.append(row)
    return sorted(found, key=lambda row: (row[time], row["proc_no"], row["seq"]))


def _id(table: str, row: Row) -> str:
    return row_id(table, row["proc_no"], row["seq"])


def _who(bid: int | None, binc: int | None) -> str:
    if bid is None:
        return "a broker"
    name = "the master" if bid == 0 else f"slave {bid}"
    return name if binc is None else f"{name}, started {datetime.fromtimestamp(binc // 1000)}"


def _commits(rows: Iterable[Row]) -> list[Step]:
    """Commits as the clients saw them; those that changed nothing since the last are left out."""
    steps = []
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        client = row["client_id"] or f"process {row['proc_no']}"
        state = (row["off"], row["bid"], row["binc"], row["sent"], row["result"])
        if last.get((row["proc_no"], row["kind"])) == state:
            continue
        last[row["proc_no"], row["kind"]] = state
        tool = row["kind"] == "ADMIN_RESET"
        taken = row["sent"] and row["result"] in (None, *TAKEN_RESULTS)
        broker = _who(row["bid"], row["binc"])
        what = (
            f"a tool set {row['off']} on {broker}"
            if tool
            else f"{client} had {row['off']} in memory and told {broker}"
            if taken
            else f"{client} had {row['off']} in memory; it did not reach {broker}"
        )
        steps.append(
            Step(row["t"], RESET if tool else COMMIT, row["off"] if taken else None, 0,
                 row["bid"], row["binc"], what, _id("commit", row))
        )  # fmt: skip
    return steps


def _samples(rows: Iterable[Row]) -> list[Step]:
    """Changes of what each broker held, in memory and in its file."""
    steps = []
    last: dict[tuple[Any, ...], tuple[int, int | None]] = {}
    for row in rows:
        place = _place_of(row["source"], row["bid"])
        at = (row["addr"], row["source"])
        before, life = last.get(at, (None, None))
        binc = row["binc"] if row["binc"] is not None else life
        last[at] = (row["off"], binc)
        if place is None or before == row["off"]:
            continue
        fell = max(0, (before or 0) - row["off"])
        what = f"{_who(row['bid'], row['binc'])} held {row['off']}"
        if fell:
            cause = "it had started again" if binc != life else "it was overwritten"
            what = f"{what}, after {before}: {cause}"
        steps.append(Step(row["t"], place, row["off"], fell, row["bid"], row["binc"], what,
                          _id("broker_offset_sample", row)))  # fmt: skip
    return steps


def _place_of(source: str, bid: int) -> str | None:
    if source == "code43":
        return MASTER_TABLE if bid == 0 else SLAVE_TABLE
    if bid == 0:
        return {"file": MASTER_FILE, "bak": MASTER_BACKUP}.get(source)
    return None


def _lives(history: History, queue: GroupQueue, t: int) -> list[Step]:
    """When brokers of this name went and came."""
    words = {"ACCEPT": "accepts requests again", "TERM": "was asked to stop", "GONE": "was gone",
             "KILL": "was killed"}  # fmt: skip
    return [
        Step(
            step.t,
            BROKER,
            None,
            0,
            step.bid,
            step.boot_ms,
            f"{_who(step.bid, step.boot_ms if step.kind == 'ACCEPT' else None)} {words[step.kind]}",
            f"fault/{step.fid}/{step.kind}",
        )
        for step in history.faults
        if step.kind in _BROKER_KINDS and step.broker == queue.broker and step.t <= t
    ]


def _answers(history: History, lake: Lake, queue: GroupQueue, t: int) -> list[tuple[Any, str]]:
    rows = {(row["inc"], row["pqe"]): _id("assign", row) for row in lake.records("assign")}
    return [
        (a, rows.get((a.inc, a.pqe), "assign"))
        for a in history.assignments
        if a.key == queue and a.t <= t
    ]


def _with_answers(steps: Sequence[Step], answers: Sequence[tuple[Any, str]]) -> list[Step]:
    """Each answer after what was known before it, with how far it lies below that, and why."""
    found = list(steps)
    for a, row in answers:
        before = [
            step
            for step in steps
            if step.place in (COMMIT, RESET) and step.offset is not None and step.t <= a.t
        ]
        after_reset = _since_reset(before)
        best = max((step.offset or 0 for step in after_reset), default=None)
        fell = 0 if best is None or a.start_off < 0 else max(0, best - a.start_off)
        client = a.client_id or f"process {a.inc}"
        what = f"{client} took the queue and starts at {a.start_off}"
        what = f"{what}, told by {_who(a.src_bid, a.src_binc)}" if a.src == "STORE" else what
        if fell:
            what = f"{what}, {fell} below what was committed: {_why(a, after_reset)}"
        found.append(Step(a.t, ANSWER, a.start_off, fell, a.src_bid, a.src_binc, what, row))
    return sorted(found, key=lambda step: (step.t, step.place == ANSWER, step.row))


def _since_reset(steps: Sequence[Step]) -> Sequence[Step]:
    """What came with and after the last reset: going back was what the reset was for."""
    last = max((at for at, step in enumerate(steps) if step.place == RESET), default=0)
    return steps[last:]


def _why(a: Any, commits: Sequence[Step]) -> str:
    """The rule of the causes, in words: which broker had received more than the answer."""
    if a.src == "NO_ENTRY":
        return "the broker that answered had no entry"
    above = [step for step in commits if (step.offset or 0) > a.start_off]
    if a.src_bid is None:
        return "who answered is not known"
    if any((s.broker_id, s.incarnation) == (a.src_bid, a.src_binc) for s in above):
        return "this very process had been told more, and was told less later"
    if any(step.broker_id == a.src_bid for step in above):
        return "it started again from a file that is older than the last commits"
    if a.src_bid == 0:
        return "only the slave had been told, while the master was down"
    return "a slave answered that had not yet copied the master's table"
