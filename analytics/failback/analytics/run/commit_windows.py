"""The commits that speak about the answer an assignment started from: from when to when. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from failback.analytics.run.history import Assignment, GroupQueue, History

CommitWindows = Mapping[GroupQueue, Sequence[tuple[int, int, int]]]
"""Per queue: (assignment number, from, to), ns after run zero; ``from`` is outside."""

OWNER_END_NS: Final = 5_000_000_000
"""So much of the time of the owner before: its pulls tell the master many times a second."""
_SAMPLE_SLACK_NS: Final = 1_000_000_000
_LONG_AGO: Final = -(1 << 62)


def resume_windows(history: History) -> CommitWindows:
    """Since the last look into the answering table: commits that may explain the start."""
    found: dict[GroupQueue, list[tuple[int, int, int]]] = defaultdict(list)
    for number, a in _answered(history):
        polls = history.polls.get((a.src_addr or "", "code43"), ())
        before = [t for t, binc in polls if t <= a.t and binc == a.src_binc]
        lo = before[-1] - _SAMPLE_SLACK_NS if before else _LONG_AGO
        found[a.key].append((number, lo, a.t))
    return dict(found)


def owner_windows(history: History) -> CommitWindows:
    """Since shortly before the last owner gave the queue up: what a master must know of."""
    ends: dict[GroupQueue, list[int]] = defaultdict(list)
    for a in history.assignments:
        if a.end_t is not None:
            ends[a.key].append(a.end_t)
    found: dict[GroupQueue, list[tuple[int, int, int]]] = defaultdict(list)
    for number, a in _answered(history):
        before = [t for t in ends.get(a.key, ()) if t <= a.t]
        if before and a.src_bid == 0:
            found[a.key].append((number, max(before) - OWNER_END_NS, a.t))
    return dict(found)


def _answered(history: History) -> list[tuple[int, Assignment]]:
    return [
        (number, a)
        for number, a in enumerate(history.assignments)
        if a.src in ("STORE", "NO_ENTRY")
    ]
