"""Whether the offsets that consumption resumed from have a source: ``resume_points``. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from failback.analytics.analysis.arrays.columns import NULL_NUMBER
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import Row
from failback.analytics.run.history import Assignment, OffsetSample

MAX_UNEXPLAINED: Final = 100
MAX_ROWS: Final = 8
NEXT_SAMPLE_NS: Final = 2_000_000_000
SURE_PULLS: Final = 5
"""A pull leaves when the one before it was answered, so all but the last of its kind arrived."""
REPLACES_FILE: Final = "replace-offset-file"
"""The fault after which a broker loads another file than it wrote."""


def resume_figures(figures: Figures) -> Row:
    """``resume_points``: does every start offset that a broker gave have a source?"""
    counts: dict[str, int] = defaultdict(int)
    unexplained = []
    for number, a in enumerate(figures.analysis.history.assignments):
        if a.src not in ("STORE", "NO_ENTRY") or a.start_off < 0:
            continue
        by, legal, _ = explain(figures, number, a)
        kind = "unexplained" if by is None else "unknown" if by == "unknown" else "explained"
        counts[kind] += 1
        if kind == "unexplained":
            unexplained.append(
                {
                    **a.key.place,
                    "t_ns": a.t,
                    "start": a.start_off,
                    "src_bid": a.src_bid,
                    "src_binc": a.src_binc,
                    "legal": sorted(legal)[:20],
                }
            )
    return {
        "checked": sum(counts.values()),
        "explained": counts["explained"],
        "unknown": counts["unknown"],
        "unexplained": unexplained[:MAX_UNEXPLAINED],
        "unexplained_count": counts["unexplained"],
    }


class Explained(NamedTuple):
    """What made an answer legal, all that would have been, and the rows that say so."""

    by: str | None
    """``commit``, ``file``, ``sync``, ``reset``, ``no_entry``; ``unknown`` when that
    is open; ``None`` when nothing known gives it."""
    legal: set[int]
    rows: tuple[str, ...] = ()


def explain(figures: Figures, number: int, a: Assignment) -> Explained:
    """What made the answer that an assignment started from legal.

    Legal are the values around the answer in the answering incarnation's own table, everything
    committed to it since the last look into that table, and resets. The table as it was first seen
    is the file it loaded; a slave's table changes by sync. What a master's table shows explains
    nothing once that very process received another offset (:func:`_higher_commits`). That it had no
    entry explains nothing once it showed one or its own file had one.
    """
    if a.src_bid is None or a.src_binc is None:
        return Explained("no_entry" if a.src == "NO_ENTRY" else "unknown", set())
    history = figures.analysis.history
    samples = [
        sample
        for sample in history.samples.get((a.key, "code43", a.src_bid), ())
        if sample.binc == a.src_binc and (a.src_addr is None or sample.addr == a.src_addr)
    ]
    more = _higher_commits(figures, number, a)
    if a.src == "NO_ENTRY":
        had = more or _shown(figures, a, samples) or _written(figures, a)
        return Explained(None, had) if had else Explained("no_entry", {0})
    committed = [
        commit
        for commit in figures.resume_commits.get(number, ())
        if commit.bid == a.src_bid and commit.binc in (a.src_binc, NULL_NUMBER)
    ]
    before = [sample for sample in samples if sample.t <= a.t]
    after = [sample for sample in samples if sample.t > a.t]
    resets = [reset for reset in history.resets.get(a.key, ()) if reset.t <= a.t]
    looked = [] if more else [*before[-1:], *after[:1]]
    changed = "sync" if a.src_bid > 0 else "commit"
    loaded = samples and a.start_off == samples[0].off and a.src_bid == 0
    legal: set[int] = set(more)
    for by, found in (
        ("commit", committed),
        ("reset", resets),
        ("file" if loaded else changed, looked),
    ):
        legal |= {each.off for each in found}
        rows = tuple(each.row for each in found if each.off == a.start_off)
        if rows:
            return Explained(by, legal, rows[:MAX_ROWS])
    if more:
        return Explained(None, legal)
    if not before or not after or after[0].t - a.t > NEXT_SAMPLE_NS:
        return Explained("unknown", legal)
    if a.src_bid > 0 and min(legal) <= a.start_off <= max(legal):
        return Explained("unknown", legal)  # a sync between two looks may have carried it
    return Explained(None, legal)


def _higher_commits(figures: Figures, number: int, a: Assignment) -> set[int]:
    """Commits to the answering master, where all of them lies above what it answered.

    From shortly before the owner of the queue gave it up, to the answer. One commit may be lost on
    its way; so many carried by pulls may not: each pull but the last was answered.
    """
    commits = [each for each in figures.owner_commits.get(number, ()) if each.binc == a.src_binc]
    answered = a.start_off if a.src == "STORE" else -1
    pulled = {each.off for each in commits if each.pull}
    if len(pulled) < SURE_PULLS or min(each.off for each in commits) <= answered:
        return set()
    return pulled


def _shown(figures: Figures, a: Assignment, samples: list[OffsetSample]) -> set[int]:
    """The entry that the last look before an answer without one showed, and the first after it."""
    polls = [
        t
        for t, binc in figures.analysis.history.polls.get((a.src_addr or "", "code43"), ())
        if binc == a.src_binc
    ]
    around = {*[t for t in polls if t <= a.t][-1:], *[t for t in polls if t > a.t][:1]}
    entries = {sample.t: sample.off for sample in samples if sample.t in around}
    # An entry is removed with its group or topic only: then it is not there afterwards.
    return set(entries.values()) if len(entries) == len(around) == 2 else set()


def _written(figures: Figures, a: Assignment) -> set[int]:
    """The entry in both files of a master that was killed, where nothing but itself wrote them."""
    history = figures.analysis.history
    life = next(
        (
            life
            for life in history.incarnations.get(a.src_addr or "", ())
            if life.boot_ms == a.src_binc
        ),
        None,
    )
    if life is None or a.src_bid != 0 or a.src_addr is None:
        return set()
    found = set()
    for source in ("file", "bak"):
        looks = [
            t
            for t, binc in history.polls.get((a.src_addr, source), ())
            if t < life.first_seen and binc != a.src_binc
        ]
        entries = [
            sample.off
            for sample in history.samples.get((a.key, source, 0), ())
            if looks and sample.t == looks[-1] and sample.addr == a.src_addr
        ]
        if not entries or any(
            step.addr == a.src_addr and REPLACES_FILE in (step.detail or "")
            for step in history.faults
        ):
            return set()
        found.add(entries[-1])
    lost_log = life.boot_ms in history.events_of(a.key.queue).boot_ms
    return set() if lost_log else found
