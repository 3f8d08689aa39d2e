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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.causes.attribution import PROVED
from failback.analytics.analysis.causes.coverage import Progress
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.results import Foreign, Resumed
from failback.analytics.lake.lake import Lake
from failback.analytics.run.documents import REDIS
from failback.analytics.run.history import Assignment, GroupQueue, History, Row

LANE_QUEUE_BITS: Final = 16
"""The low bits of a lane are the queue that its one producer fills in order."""
_EVER: Final = 1 << 62
_REASONS: Final[Mapping[str | None, str]] = {
    "MEMBERSHIP_LOST": "MEMBERSHIP_LOST",
    "SHUTDOWN": "COMMIT_NEVER_TAKEN",
    "REBALANCE": "COMMIT_STALLED",
}
"""Why an offset was behind whose commit was not taken, by why the queue was given up before."""
_Numbered = Sequence[tuple[int, Assignment]]
_QUEUE: Final = ("broker", "ptopic", "qid")
_TAKEN: Final = ("OK", "NOT_PENDING")


class _Stream(NamedTuple):
    """Of Redis, one stream as one group sees it: what was found after the run; of each entry when
    its first acknowledgement was answered, and whether it was taken; when there was one entry more
    or less whose last acknowledgement failed."""

    stored: IntervalSet
    first: dict[int, tuple[int, bool]]
    failed: list[tuple[int, int]]


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
    streams = _streams(history, depths, lake) if run.engine == REDIS else {}
    resumed: list[Resumed] = []
    proved: list[Row] = []
    for key, mine in by_queue.items():
        found = list(_resumed(key, mine, progress, streams.get(key)))
        resumed += found
        proved += _proved(key, mine, found, progress, streams.get(key))
    killed = [step.t for step in history.faults if step.kind == "KILL"]
    sends: dict[int, list[int]] = defaultdict(list)
    handled: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(lake, "produce", "qid", "t1", "res") if killed else ():
        if row["res"] == "OK":
            sends[row["qid"]].append(row["t1"])
    for row in _rows(lake, "deliver", "grp", "inc", "bt") if killed else ():
        handled[row["grp"]][row["inc"]].append(row["bt"])
    since = history.folder.zero_mono_ns + min(killed, default=0)
    alone = {group: members for group, members in handled.items() if len(members) == 1}
    return Foreign(
        resumed=resumed,
        proved=pa.Table.from_pylist(proved, PROVED),
        send_gap=max((_longest(times, since) for times in sends.values()), default=None),
        receive_gaps={
            group: _longest(times, since) for group in alone for times in alone[group].values()
        },
    )


def _resumed(
    key: GroupQueue, mine: _Numbered, progress: Progress, stream: _Stream | None
) -> Iterator[Resumed]:
    """The assignments of a queue that had something before them."""
    consumed = [_processed(progress, key, None, each.t) for _, each in mine]
    owed = [max(0, done - each.start_off) for done, (_, each) in zip(consumed, mine, strict=True)]
    for place, (number, each) in enumerate(mine):
        following = mine[place + 1][1] if place + 1 < len(mine) else None
        done = consumed[place]
        if not done:
            continue
        if stream is not None:
            expected = owed[place] - len(_span(each.start_off, done) - stream.stored)
            if following is None or following.src_bid == each.src_bid:  # the same node looks on
                until = following.t if following else _EVER
                expected += sum(change for t, change in stream.failed if each.t <= t < until)
                expected -= owed[place + 1] if following else 0
        else:
            reached = _processed(progress, key, each.t, following.t if following else None)
            expected = min(done, reached) - each.start_off
        yield Resumed(number, key, done, each.start_off, max(0, expected))


def _processed(progress: Progress, key: GroupQueue, after: int | None, until: int | None) -> int:
    """The highest finished offset plus one between two assignments; 0 where there is none."""
    first = -1 if after is None else progress.bucket(key, after)
    last = _EVER if until is None else progress.bucket(key, until)
    found = [end for bucket, _, end in progress.finished.get(key, ()) if first < bucket <= last]
    return max(found, default=0)


def _span(lo: int, hi: int) -> IntervalSet:
    return IntervalSet.of(np.array([lo], np.int64), np.array([max(lo, hi)], np.int64))


def _proved(
    key: GroupQueue,
    mine: _Numbered,
    resumed: Iterable[Resumed],
    progress: Progress,
    stream: _Stream | None,
) -> list[Row]:
    """Rows of ``attribution.PROVED``: first that nothing is known, then what each one proves."""
    rows: list[Row] = []

    def add(since: int, until: int, lo: int, hi: int, cause: str | None) -> None:
        if lo < hi:
            place = {"grp": key.grp, "broker": key.broker, "ptopic": key.ptopic, "qid": key.qid}
            times = {"since": since, "until": until}
            rows.append({"layer": len(rows), **place, **times, "lo": lo, "hi": hi, "cause": cause})

    add(-_EVER, _EVER, -_EVER, _EVER, None)
    places = {number: place for place, (number, _) in enumerate(mine)}
    for each in resumed:
        place = places[each.number]
        now, before = mine[place][1], mine[place - 1][1]
        times = (now.t, mine[place + 1][1].t if place + 1 < len(mine) else _EVER)
        if stream is not None:
            taken = [entry for entry, (_, is_taken) in sorted(stream.first.items()) if is_taken]
            entries = np.array(taken, np.int64)
            add(*times, 0, each.consumed, "ACK_NOT_TAKEN")
            for lo, hi in IntervalSet.of(entries, entries + 1):
                add(*times, lo, min(hi, each.consumed), "GROUP_WENT_BACK")
            continue
        add(*times, each.start, each.consumed, _REASONS.get(before.end_reason))
        last = progress.bucket(key, now.t)
        taken = [off for bucket, off in progress.taken.get(key, ()) if bucket <= last]
        add(*times, each.start, min(max(taken, default=0), each.consumed), "OFFSETS_GONE")
    return rows


def _streams(
    history: History, depths: Mapping[str, pa.Table], lake: Lake
) -> dict[GroupQueue, _Stream]:
    """Of Redis. A queue's one lane counts its offsets; a later acknowledgement is a ``TIMER``."""
    stored: dict[int, IntervalSet] = defaultdict(IntervalSet)
    for row in families.STORED.of(depths).to_pylist():
        stored[row["lane"] & ((1 << LANE_QUEUE_BITS) - 1)] |= _span(row["lo"], row["hi"])
    found: dict[GroupQueue, _Stream] = {}
    for row in _rows(lake, "commit", "grp", *_QUEUE, "off", "t", "kind", "result"):
        key = GroupQueue(*(row[name] for name in ("grp", *_QUEUE)))
        mine = found.setdefault(key, _Stream(stored[key.qid], {}, []))
        taken, t = row["result"] in _TAKEN, row["t"] - history.folder.zero_mono_ns
        if row["kind"] != "TIMER":
            entry, seen = row["off"] - 1, (t, row["result"] == "OK")
            mine.first[entry] = min(mine.first.get(entry, seen), seen)
        if taken == (row["kind"] == "TIMER"):
            mine.failed.append((t, -1 if taken else 1))
    return found


def _rows(lake: Lake, table: str, *columns: str) -> Iterator[Row]:
    for chunk in lake.chunks(table, columns):
        yield from chunk.to_pylist()


def _longest(times: Iterable[int], since: int) -> int:
    """The longest time between two instants, of those that end after another one; ns."""
    return max((b - a for a, b in pairwise(sorted(times)) if b > since), default=0)
