"""What a run of another engine says beside its counts: one equation, its reasons, its outages.

Of each assignment after the first of a queue: what is re-consumed is the last processed offset plus
one, minus the offset that the assignment saw as the group's. For Kafka that is the committed
offset. For Redis it is how many entries the group had acknowledged: those up to its last delivered
one, without the pending ones. Entries of which the promoted master has no copy are left out.

The reason is what the client itself saw: how its last commit was answered, and why it gave the
queue up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import IntervalSet, Ints
from failback.analytics.analysis.causes.attribution import PROVED
from failback.analytics.analysis.causes.coverage import Progress
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.results import Foreign, Resumed
from failback.analytics.lake.lake import Lake
from failback.analytics.run.documents import REDIS
from failback.analytics.run.history import Assignment, GroupQueue, History

LANE_QUEUE_BITS: Final = 16
"""The low bits of a lane are the queue that its one producer fills in order."""
_EVER: Final = 1 << 62
_REASONS: Final[Mapping[str | None, str | None]] = {
    "MEMBERSHIP_LOST": "MEMBERSHIP_LOST",
    "SHUTDOWN": "COMMIT_NEVER_TAKEN",
    "REBALANCE": "COMMIT_STALLED",
}
"""Why an offset was behind whose commit was not taken, by why the queue was given up before."""


def foreign_of(
    history: History, progress: Progress, depths: Mapping[str, pa.Table], lake: Lake
) -> Foreign | None:
    """What is known beside the counts of a run of another engine; ``None`` of RocketMQ's."""
    run = history.folder.run
    if not run.is_foreign:
        return None
    by_queue: dict[GroupQueue, list[tuple[int, Assignment]]] = defaultdict(list)
    for number, each in enumerate(history.assignments):
        by_queue[each.key].append((number, each))
    stored = _stored(depths)
    acked = _acked(history, lake) if run.engine == REDIS else {}
    resumed: list[Resumed] = []
    proved: list[dict[str, object]] = []
    for key, mine in by_queue.items():
        found = _resumed(key, mine, progress, stored.get(key.qid, IntervalSet()), run.engine)
        resumed += found
        proved += _proved(key, mine, found, progress, acked.get(key))
    outages = [step.t for step in history.faults if step.kind in ("KILL", "GONE")]
    since = min(outages, default=None)
    return Foreign(
        resumed=resumed,
        proved=pa.Table.from_pylist(proved, PROVED),
        send_gap=_send_gap(history, lake, since),
        receive_gaps=_receive_gaps(history, lake, since),
    )


def _resumed(
    key: GroupQueue,
    mine: Sequence[tuple[int, Assignment]],
    progress: Progress,
    stored: IntervalSet,
    engine: str | None,
) -> list[Resumed]:
    """The assignments of a queue that had something before them."""
    owed: list[int] = []
    consumed: list[int] = []
    for _, each in mine:
        done = _processed(progress, key, None, each.t)
        consumed.append(done)
        owed.append(max(0, done - each.start_off))
    found = []
    for place, (number, each) in enumerate(mine):
        if not consumed[place]:
            continue
        following = mine[place + 1][1] if place + 1 < len(mine) else None
        if engine == REDIS:
            expected = owed[place] - _gone(stored, each.start_off, consumed[place])
            if following is not None and following.src_bid == each.src_bid:
                expected -= owed[place + 1]  # still pending when the next one looked
        else:
            reached = _processed(progress, key, each.t, following.t if following else None)
            expected = min(consumed[place], reached) - each.start_off
        found.append(Resumed(number, key, consumed[place], each.start_off, max(0, expected)))
    return found


def _processed(progress: Progress, key: GroupQueue, after: int | None, until: int | None) -> int:
    """The highest finished offset plus one between two assignments; 0 where there is none."""
    first = -1 if after is None else progress.bucket(key, after)
    last = 1 << 40 if until is None else progress.bucket(key, until)
    found = [end for bucket, _, end in progress.finished.get(key, ()) if first < bucket <= last]
    return max(found, default=0)


def _gone(stored: IntervalSet, lo: int, hi: int) -> int:
    """How many offsets of [lo, hi) no copy was found of."""
    if hi <= lo:
        return 0
    wanted = IntervalSet.of(np.array([lo], np.int64), np.array([hi], np.int64))
    return len(wanted - stored)


def _stored(depths: Mapping[str, pa.Table]) -> dict[int, IntervalSet]:
    """By queue what was found after the run; a queue's one lane counts its offsets."""
    table = families.STORED.of(depths)
    found: dict[int, IntervalSet] = {}
    for row in table.to_pylist():
        qid = row["lane"] & ((1 << LANE_QUEUE_BITS) - 1)
        one = IntervalSet.of(np.array([row["lo"]], np.int64), np.array([row["hi"]], np.int64))
        found[qid] = found.get(qid, IntervalSet()) | one
    return found


def _proved(
    key: GroupQueue,
    mine: Sequence[tuple[int, Assignment]],
    resumed: Sequence[Resumed],
    progress: Progress,
    acked: IntervalSet | None,
) -> list[dict[str, object]]:
    """Rows of ``attribution.PROVED``: first that nothing is known, then what each one proves."""
    rows: list[dict[str, object]] = []

    def add(since: int, until: int, lo: int, hi: int, cause: str | None) -> None:
        if lo < hi:
            place = {"grp": key.grp, "broker": key.broker, "ptopic": key.ptopic, "qid": key.qid}
            times = {"since": since, "until": until}
            rows.append({"layer": len(rows), **place, **times, "lo": lo, "hi": hi, "cause": cause})

    add(-_EVER, _EVER, -_EVER, _EVER, None)
    places = {number: place for place, (number, _) in enumerate(mine)}
    for each in resumed:
        place = places[each.number]
        until = mine[place + 1][1].t if place + 1 < len(mine) else _EVER
        assignment, before = mine[place][1], mine[place - 1][1]
        since = assignment.t
        if acked is not None:
            add(since, until, 0, each.consumed, "ACK_NOT_TAKEN")
            for lo, hi in acked:
                add(since, until, lo, min(hi, each.consumed), "GROUP_WENT_BACK")
            continue
        taken = _taken(progress, key, assignment.t)
        add(since, until, each.start, each.consumed, _REASONS.get(before.end_reason))
        gone = "OFFSETS_GONE" if assignment.src == "NO_ENTRY" else "OFFSET_WENT_BACK"
        add(since, until, each.start, min(taken, each.consumed), gone)
    return rows


def _taken(progress: Progress, key: GroupQueue, until: int) -> int:
    """The highest offset whose commit was answered with success before an assignment."""
    last = progress.bucket(key, until)
    return max((off for bucket, off in progress.taken.get(key, ()) if bucket <= last), default=0)


def _acked(history: History, lake: Lake) -> dict[GroupQueue, IntervalSet]:
    """Entries whose first acknowledgement was taken, by queue.

    One that is repeated after a failure belongs to an entry that was pending until then.
    """
    first: dict[GroupQueue, dict[int, tuple[int, bool]]] = defaultdict(dict)
    names = ("grp", "client_id", "broker", "ptopic", "qid", "off", "t", "result")
    for chunk in lake.chunks("commit", names):
        for row in chunk.to_pylist():
            grp = history.group_name(row["grp"], row["client_id"])
            entries = first[GroupQueue(grp, row["broker"], row["ptopic"], row["qid"])]
            seen = (row["t"], row["result"] == "OK")
            entries[row["off"] - 1] = min(entries.get(row["off"] - 1, seen), seen)
    return {
        key: IntervalSet.of(_sorted(ok), _sorted(ok) + 1)
        for key, entries in first.items()
        for ok in [[entry for entry, (_, taken) in entries.items() if taken]]
    }


def _sorted(values: Sequence[int]) -> Ints:
    return np.sort(np.array(values, np.int64))


def _send_gap(history: History, lake: Lake, since: int | None) -> int | None:
    """The longest time between two acknowledged sends of a queue that ends after the kill."""
    if since is None:
        return None
    ends: dict[int, list[Ints]] = defaultdict(list)
    for chunk in lake.chunks("produce", ("host", "qid", "t1", "res")):
        good = chunk.filter(pc.equal(chunk.column("res").cast(pa.utf8()), "OK"))
        shift = _shift(history, good)
        for qid in pc.unique(good.column("qid")).to_pylist():
            mine = good.filter(pc.equal(good.column("qid"), qid))
            ends[qid].append(mine.column("t1").to_numpy() + shift)
    gaps = [_longest(np.concatenate(times), since) for times in ends.values()]
    return max(gaps, default=None)


def _receive_gaps(history: History, lake: Lake, since: int | None) -> dict[str, int]:
    """Of groups whose one member ran through: the longest time without a delivery."""
    if since is None:
        return {}
    members: dict[str, set[int]] = defaultdict(set)
    for each in history.assignments:
        members[each.key.grp].add(each.inc)
    begins: dict[str, list[Ints]] = defaultdict(list)
    for chunk in lake.chunks("deliver", ("host", "grp", "bt")):
        shift = _shift(history, chunk)
        groups = chunk.column("grp").cast(pa.utf8())
        for name in pc.unique(groups).to_pylist():
            if len(members[name]) == 1:
                mine = chunk.filter(pc.equal(groups, name))
                begins[name].append(mine.column("bt").to_numpy() + shift)
    return {name: _longest(np.concatenate(times), since) for name, times in begins.items()}


def _shift(history: History, rows: pa.Table) -> int:
    """All clients of such a run are on one host."""
    hosts = pc.unique(rows.column("host").cast(pa.utf8())).to_pylist()
    return history.clocks.shift_of(hosts[0]) if hosts else 0


def _longest(times: Ints, since: int) -> int:
    times = np.sort(times)
    after = times[1:] > since
    return int(np.diff(times)[after].max(initial=0))
