"""``queues[]``: depth ranges, windows and offsets of every queue of every group. Pure."""

from __future__ import annotations

from typing import Final

from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import Row
from failback.analytics.run.history import GroupQueue

MAX_QUEUES: Final = 2_000


def queue_figures(figures: Figures) -> tuple[list[Row], bool]:
    """``queues[]``, and whether some were left out."""
    found: dict[GroupQueue, Row] = {}
    names = ("grp", "broker", "topic", "qid", "epoch", "lo", "hi", "depth", "figure")
    table = figures.depths(families.COPY)
    for grp, broker, topic, qid, epoch, lo, hi, depth, figure in zip(
        *(table.column(name).to_pylist() for name in names), strict=True
    ):
        key = GroupQueue(grp, broker, topic, qid)
        row = found.setdefault(key, _empty_queue(key))
        row["epochs"].add(epoch)
        row["delivered"] += figure * (hi - lo)
        row["distinct"] += hi - lo if figure else 0
        if depth > 1 and figure:
            row["depth_ranges"].append({"lo": lo, "hi": hi, "depth": depth, "epoch": epoch})
    for each in figures.values(families.COPY_TIMES):
        key = GroupQueue.of(each)
        row = found.setdefault(key, _empty_queue(key))
        row["epochs"].add(each["epoch"])
        row["delivered"] += each["figure"] * each["value"]
        row["distinct"] += each["value"] if each["figure"] else 0
    for each in figures.values(families.COPY_RANGES_LEFT_OUT):
        found[GroupQueue.of(each)]["depth_ranges_left_out"] = each["value"]
    for key, count in figures.dups_of_queues.items():
        found[key]["dup"] = count
    windows = figures.analysis.windows
    for queue, left_out in windows.left_out.items():
        found[queue]["windows_left_out"] = left_out
    for window in windows.kept:
        found[window.key]["windows"].append(
            {
                "lo": window.lo,
                "hi": window.hi,
                "size": window.size,
                "cause": window.cause,
                "from_proc": window.from_proc,
                "to_proc": window.to_proc,
                "t_ns": window.t,
                "fid": window.fid,
            }
        )
    for key, row in found.items():
        row["epochs"] = len(row["epochs"])
        row |= _offsets_now(figures, key)
    kept = sorted(found, key=lambda key: (-found[key]["dup"], key))[:MAX_QUEUES]
    return [found[key] for key in sorted(kept)], len(kept) < len(found)


def _empty_queue(key: GroupQueue) -> Row:
    return {
        **key.place,
        "epochs": set(),
        "delivered": 0,
        "distinct": 0,
        "dup": 0,
        "depth_ranges": [],
        "windows": [],
    }


def _offsets_now(figures: Figures, key: GroupQueue) -> Row:
    """What the brokers' tables hold at the end, and an offset that loses and repeats nothing."""
    history = figures.analysis.history
    master, slave, at = None, None, 0
    for (source, bid), found in history.copies_of(key).items():
        if source == "code43" and found:
            at = max(at, found[-1].t)
            if bid == 0:
                master = found[-1].off
            else:
                slave = found[-1].off if slave is None else max(slave, found[-1].off)
    taken = max((off for _, off in figures.analysis.progress.taken.get(key, ())), default=None)
    known = [value for value in (master, slave, taken) if value is not None]
    end = history.end_of(key.queue, at)
    if end is not None and known:  # no message is beyond it
        known = [value for value in known if value <= end] or [end]
    return {
        "master_offset": master,
        "slave_offset": slave,
        "safe_offset": max(known, default=None),
    }
