"""The eight claims of docs/claims.md, and the figures of a run that answer each of them."""

from __future__ import annotations

import itertools
import os
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from failback.analytics.lake.lake import open_lake

Figures: TypeAlias = dict[str, Any]
OfArms: TypeAlias = Mapping[str, Figures]
Rows: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True)
class Claim:
    """What articles say, why, and what of it a run shows."""

    number: int
    experiment: str
    says: str
    articles: str
    argument: str
    holds: Callable[[OfArms], bool | None]
    """Whether the figures of all arms bear it out; ``None`` where they say nothing."""
    wrong: str
    """Which step of the argument is wrong where it does not hold, and why."""
    note: str = ""


def figures_of(experiment: str, run: Path, report: Mapping[str, Any]) -> Figures:
    """Return the figures of one arm, by what they are called on the page."""
    find = _FIGURES.get(experiment)
    return find(_Run(run, report)) if find else {}


class _Run:
    """Rows and times of one run."""

    def __init__(self, folder: Path, report: Mapping[str, Any]) -> None:
        self.report = report
        self._lake = open_lake(folder / "lake", report["run"])

    def rows(self, table: str) -> Rows:
        return self._lake.records(table)

    def at(self, kind: str) -> int | None:
        """When a step of a fault was seen first, on the monotonic clock."""
        times = [row["observed"] for row in self.rows("fault") if row["kind"] == kind]
        return min((each for each in times if each), default=None)

    def proofs(self, step: str) -> list[int]:
        """What a step of the proof says of each fault that has it."""
        proofs = [fault["proof"] for fault in self.report["faults"]]
        return [each[step] for each in proofs if isinstance(each.get(step), int)]

    def pulls(self, group: str, since: int | None, until: int | None) -> Rows:
        """Pulls of a group that were begun in a span and came to an answer of a broker."""
        return [
            row
            for row in self.rows("pull")
            if row["grp"] == group
            and not row["ptopic"].startswith("%")
            and row["code"] is not None
            and (since is None or row["t0"] >= since)
            and (until is None or row["t0"] < until)
        ]


def _share(pulls: Rows) -> str:
    count = Counter(row["bid"] for row in pulls)
    return f"{count[0]}/{sum(count.values()) - count[0]}"


def _one_side(run: _Run) -> Figures:
    causes: Counter[str] = Counter()
    for group in run.report["groups"]:
        causes.update(group["causes"])
    return {name: count for name, count in sorted(causes.items()) if count}


def _overwritten(run: _Run) -> Figures:
    accepted, zero = run.at("ACCEPT"), run.at("KILL")
    drops = [row for row in run.report["offset_drops"] if row["bid"] != 0]
    synced = run.at("SLAVE_SYNC")
    if accepted is None or zero is None:
        return {}
    found: Figures = {"queues lowered at the slave": len({row["qid"] for row in drops})}
    if drops:
        found["messages"] = sum(row["from"] - row["to"] for row in drops)
    if synced is not None:
        found["slave has the master's table, s after its return"] = _seconds(synced - accepted)
    return found


def _commits(run: _Run) -> Figures:
    """Growth of the tables while no timer commits: by the broker that was pulled from."""
    gone, accepted = run.at("KILL"), run.at("ACCEPT")
    kinds = Counter(row["kind"] for row in run.rows("commit") if row["sent"])
    bits = Counter(row["bid"] for row in run.rows("pull") if row["commit_bit"])
    samples = [row for row in run.rows("broker_offset_sample") if row["source"] == "code43"]
    samples = [row for row in samples if not row["ptopic"].startswith("%")]
    return {
        "commits by timer": kinds["TIMER"],
        "pulls with a commit to master/slave": f"{bits[0]}/{bits.total() - bits[0]}",
        "master's table moved on by": growth(samples, 0, None, gone),
        "slave's table moved on in the outage by": growth(samples, 1, gone, accepted),
    }


def growth(samples: Rows, bid: int, since: int | None, until: int | None) -> int:
    """Return by how much the offsets of a broker moved on in a span, over all queues."""
    lowest: dict[int, int] = {}
    highest: dict[int, int] = {}
    for row in samples:
        inside = (since is None or row["t"] >= since) and (until is None or row["t"] < until)
        if row["bid"] == bid and inside and row["qid"] >= 0:
            lowest[row["qid"]] = min(lowest.get(row["qid"], row["off"]), row["off"])
            highest[row["qid"]] = max(highest.get(row["qid"], row["off"]), row["off"])
    return sum(highest[qid] - lowest[qid] for qid in lowest)


def _served_by_slave(run: _Run) -> Figures:
    pulls = run.pulls("billing", run.at("KILL"), run.at("ACCEPT"))
    slave = [row for row in pulls if row["bid"] != 0]
    codes = Counter(row["code"] for row in slave)
    return {
        "pulls of the slave in the outage": len(slave),
        "messages from it": sum(row["n"] or 0 for row in slave),
        "answers by code": ", ".join(f"{code}: {count}" for code, count in codes.most_common(4)),
    }


def _hot_loop(run: _Run) -> Figures:
    """Pulls that the slave answered with nothing, while it was behind the consumer."""
    gone, accepted = run.at("KILL"), run.at("ACCEPT")
    empty = [
        row for row in run.pulls("billing", gone, accepted) if row["bid"] != 0 and not row["n"]
    ]
    busiest = Counter((row["qid"], row["t0"] // 10**9) for row in empty)
    return {
        "empty pulls of the slave": len(empty),
        "most of one queue in a second": max(busiest.values(), default=0),
        "messages it lacked": max(run.proofs("LAG"), default=0),
    }


def _by_broker(run: _Run) -> Figures:
    gone, back = run.at("KILL"), run.at("REGISTERED")
    if gone is None or back is None:
        return {}
    found: Figures = {}
    for group in ("billing", "kept"):
        before = run.pulls(group, None, gone)
        during = run.pulls(group, gone, back)
        after = run.pulls(group, back, None)
        found[f"{group}: pulls of master/slave before, in and after the outage"] = (
            f"{_share(before)}, {_share(during)}, {_share(after)}"
        )
        found[f"{group} after"] = _mostly(after)
    return found


def _mostly(pulls: Rows) -> str:
    count = Counter(row["bid"] for row in pulls)
    return "master" if count[0] > count.total() / 2 else "slave"


def _distance(run: _Run) -> Figures:
    """Where the suggestion of an answer turns: bytes between the log's end and what was read."""
    deliveries = run.rows("deliver")
    place = {row["qoff"]: row["phy"] for row in deliveries if row["qid"] == 0}
    pulls = sorted(run.pulls("billing", None, None), key=lambda row: row["t0"])
    behind: dict[bool, list[int]] = {True: [], False: []}
    for row in pulls:
        ends = place.get((row["max"] or 0) - 1)
        read = place.get(row["last_off"])
        if ends is not None and read is not None:
            behind[row["suggested"] != 0].append(ends - read)
    mib = 1 << 20
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found: Figures = {
        "1 % of memory, MiB": round(memory / 100 / mib, 1),
        "pulls of master/slave": _share(pulls),
    }
    if behind[True]:
        found["slave suggested from MiB"] = round(min(behind[True]) / mib, 1)
        found["to"] = round(max(behind[True]) / mib, 1)
    if behind[False]:
        found["master suggested up to MiB"] = round(max(behind[False]) / mib, 1)
    return found


def _file(run: _Run) -> Figures:
    samples = [row for row in run.rows("broker_offset_sample") if row["source"] == "file"]
    times = sorted({row["file_mtime_ns"] for row in samples if row["bid"] == 0})
    gone = run.at("KILL")
    gaps = [_seconds(b - a) for a, b in itertools.pairwise(times)]
    found: Figures = {"lost by the kill, messages": run.report["totals"]["dup"]}
    if gaps and gone is not None:
        found["s between two writes, median"] = statistics.median(gaps)
    return found


def _latency(run: _Run) -> Figures:
    """From the broker's storing of a message to the handler's call, ms."""
    found = sorted(
        (row["bt"] + row["wall_ns"] - row["mono_ns"]) / 1e6 - row["store_ms"]
        for row in run.rows("deliver")
        if row["bt"] >= (run.at("NONE") or 0)
    )
    if not found:
        return {}
    return {
        "median ms": round(statistics.median(found), 1),
        "99 % ms": round(found[int(len(found) * 0.99)], 1),
        "longest ms": round(found[-1], 1),
        "messages": len(found),
    }


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 1)


_FIGURES: Final[Mapping[str, Callable[[_Run], Figures]]] = {
    "claim-1-one-side-restarts": _one_side,
    "claim-2-slave-overwrites": _overwritten,
    "claim-3-pull-commits": _commits,
    "claim-4-slave-refuses-reads": _served_by_slave,
    "claim-5-back-to-the-master": _by_broker,
    "claim-6-memory-share": _distance,
    "claim-7-file-survives": _file,
    "claim-8-held-pull": _latency,
    "lag-slave": _hot_loop,
    "alibaba-395-slave-behind": _hot_loop,
    "issue-2181-4215-overflow": _hot_loop,
}

CLAIMS: Final = (
    Claim(
        1,
        "claim-1-one-side-restarts",
        "If only one of master and consumer restarts, nothing is re-consumed",
        "A, E",
        "The consumer keeps its progress in memory and reports it to the returned master.",
        lambda arms: all(arms[arm]["again"] == 0 for arm in ("stay", "handover", "scale-up")),
        "it holds for a member that runs through and keeps its queues (arm stay). Progress is the "
        "group's and not a member's: a member that takes a queue asks the master, which has its "
        "old file until somebody reports to it. Where the old member has ended nobody does.",
        "[Versions](versions.md) has arms stay and handover of `failback demo` on six kinds of "
        "brokers: 0, and more than a third of the messages.",
    ),
    Claim(
        2,
        "claim-2-slave-overwrites",
        "A slave overwrites its offsets with its master's at each synchronisation, without looking",
        "A, B",
        "syncConsumerOffset puts the whole table.",
        lambda arms: arms["base"]["queues lowered at the slave"] > 0,
        "the slave kept offsets above its master's.",
    ),
    Claim(
        3,
        "claim-3-pull-commits",
        "A pull to the master carries the commit, one to a slave does not",
        "A, E",
        "storeOffsetEnable wants suspension, the commit flag, and a broker that is no slave.",
        lambda arms: (
            arms["base"]["master's table moved on by"] > 0
            and arms["base"]["slave's table moved on in the outage by"] == 0
        ),
        "the broker's role is not asked there any more: a slave stores what a pull carries.",
        "The client's timer was set to a quarter of an hour, so only pulls can have moved a table. "
        "The client takes the flag off a pull that goes to a slave, so the broker's rule is not "
        "even asked there.",
    ),
    Claim(
        4,
        "claim-4-slave-refuses-reads",
        "With slaveReadEnable=false the slave serves no reads, not even when the master is down",
        "E",
        "Summary 1 and 2.1.",
        lambda arms: arms["base"]["messages from it"] == 0,
        "PullMessageProcessor sets PULL_RETRY_IMMEDIATELY for such a slave before it looks at what "
        "was read, and the result of the read then overwrites that code: messages are returned.",
    ),
    Claim(
        5,
        "claim-5-back-to-the-master",
        "With default group settings the next pull goes to the master; brokerId 1 keeps it away",
        "E",
        "The answer of a pull suggests the broker of the next.",
        lambda arms: (
            arms["base"]["billing after"] == "master" and arms["base"]["kept after"] == "slave"
        ),
        "the suggestion of the last answer decides, and it is not what the article takes it for.",
        "Group billing has the default, group kept has brokerId 1.",
    ),
    Claim(
        6,
        "claim-6-memory-share",
        "Above a share of physical memory behind, the master suggests the slave",
        "E",
        "maxOffsetPy - maxPhyOffsetPulling > memory x accessMessageInMemoryMaxRatio.",
        lambda arms: (
            arms["one-percent"]["slave suggested from MiB"]
            > arms["one-percent"].get("master suggested up to MiB", 0) - 1
        ),
        "answers of one distance suggested both brokers.",
        "The ratio was 1 and not 40, so that a backlog of 400 MiB crosses it. Distances are those "
        "of the last message of an answer of either broker.",
    ),
    Claim(
        7,
        "claim-7-file-survives",
        "Offsets are written every 5 s; the master's file is what survives",
        "C",
        "A scheduled persist, first after 10 s.",
        lambda arms: 4 <= arms["base"]["s between two writes, median"] <= 6,
        "the file is written at another pace.",
        "The consumer ended in order right before the kill, so what the kill lost is what was "
        "re-consumed.",
    ),
    Claim(
        8,
        "claim-8-held-pull",
        "A pull that finds nothing is held, and wakes on arrival",
        "C, D",
        "PullRequestHoldService and NotifyMessageArriving.",
        lambda arms: arms["long-polling"]["median ms"] < 100 < arms["short-polling"]["median ms"],
        "both arms have the same latency.",
        "Without long polling a broker looks once a second. The looks of every 5 s with it do not "
        "show: an arrival comes first.",
    ),
)
