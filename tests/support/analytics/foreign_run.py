"""A run of Kafka and one of Redis as literal rows: each reason once, in a group of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.support.analytics.run_builder import RunBuilder

KAFKA_CAUSES = {
    "stay": {},
    "lost": {"MEMBERSHIP_LOST": 4},
    "stopped": {"COMMIT_NEVER_TAKEN": 6},
    "stalled": {"COMMIT_STALLED": 3},
    "gone": {"OFFSETS_GONE": 7, "COMMIT_NEVER_TAKEN": 3},
    "back": {"OFFSETS_GONE": 5, "MEMBERSHIP_LOST": 2},
}
REDIS_CAUSES = {"stay": {"ACK_NOT_TAKEN": 3, "GROUP_WENT_BACK": 3}}
_LAST = 10
"""Each group has handled so many messages when its queue is taken again."""


def kafka_run() -> RunBuilder:
    """Six groups on one partition of 20 messages; the broker is killed at 500 ms."""
    builder = _run("kafka", KAFKA_CAUSES)
    ends = {"lost": "MEMBERSHIP_LOST", "stopped": "SHUTDOWN", "stalled": "REBALANCE",
            "gone": "SHUTDOWN", "back": "MEMBERSHIP_LOST"}  # fmt: skip
    taken = {"lost": 6, "stopped": 4, "stalled": 7, "gone": 7, "back": 8}
    seen = {"lost": 6, "stopped": 4, "stalled": 7, "gone": 0, "back": 3}
    for number, name in enumerate(KAFKA_CAUSES, 1):
        if name == "stay":
            _held(builder, name, number, 1, 0, 20, at=10)
            continue
        _held(builder, name, number, 1, 0, _LAST, at=10, end=(900, ends[name]))
        _commit(builder, name, number, 300, taken[name], "OK")
        _commit(builder, name, number, 890, _LAST, "COORDINATOR_LOAD_IN_PROGRESS")
        start, src = seen[name], "NO_ENTRY" if name == "gone" else "STORE"
        _held(builder, name, number + 10, 2, start, 20, at=1_000, src=src)
    return builder


def redis_run() -> RunBuilder:
    """A group on one stream; entries 12 to 14 of 15 are gone with the killed master.

    The promoted replica had delivered 7 entries, of which 1 and 4 were pending: their
    acknowledgements failed. Entries 7 to 9 had been acknowledged to the killed one. That of entry
    11 failed after the member had looked at the replica; it looked once more before it claimed.
    """
    builder = _run("redis", REDIS_CAUSES, stored=12)
    _held(builder, "stay", 1, 1, 0, 10, at=10, server=1, end=(900, "REBALANCE"))
    for entry in range(10):
        _commit(builder, "stay", 1, 400 + entry, entry + 1, "OK" if entry not in (1, 4) else "Busy")
    _held(builder, "stay", 1, 2, 7, 12, at=1_000, server=4, start=7 - 2)
    for place, entry in enumerate((1, 4)):
        _deliver(builder, "stay", 1, 2, entry, 2_000 + place)
    _commit(builder, "stay", 1, 1_045, 12, "ConnectionError")
    builder.assign(3_000, 12 - 1, proc=1, pqe=3, at=None, grp="stay", broker="redis", src_bid=4)
    _deliver(builder, "stay", 1, 3, 11, 3_001)
    return builder


def again_by_brute_force(builder: RunBuilder) -> Counter[str]:
    """By group how many deliveries are of a message that it had been given before."""
    seen: set[tuple[Any, ...]] = set()
    again: Counter[str] = Counter()
    for row in sorted(builder.rows["deliver"], key=lambda row: row["bt"]):
        message = (row["grp"], row["lane"], row["lseq"])
        again[row["grp"]] += message in seen
        seen.add(message)
    return again


def _run(engine: str, groups: dict[str, Any], stored: int = 20) -> RunBuilder:
    builder = RunBuilder(f"{engine}-case")
    builder.run |= {"engine": engine, "rule_set": f"{engine} 1", "arm": "defaults"}
    builder.run["versions"] = {engine: "1"}
    builder.run["groups"] = [
        {**builder.run["groups"][0], "name": name, "topic": "T"} for name in groups
    ]
    builder.run["faults"] = [{"id": "f1", "fault": "kill"}]
    for kind, t in (("KILL", 500), ("GONE", 500), ("ACCEPT", 800), ("HEALED", 810)):
        builder.fault(kind, t, broker=engine)
    for lseq in range(stored):
        builder.produce(lseq, 1 + lseq, 2 + lseq, broker=engine, lane=0)
        builder.scan(lseq, broker=engine, lane=0)
    return builder


def _held(
    builder: RunBuilder, group: str, proc: int, pqe: int, first: int, end_offset: int, *,
    at: float, src: str = "STORE", end: tuple[float, str] | None = None,
    server: int | None = None, start: int | None = None,
) -> None:  # fmt: skip
    """A holding of the queue that delivers ``[first, end_offset)``, 10 ms each."""
    builder.assign(
        at, first if start is None else start, proc=proc, pqe=pqe, at=None, src=src, end=end,
        grp=group, broker=builder.run["engine"], src_bid=server,
    )  # fmt: skip
    for place, offset in enumerate(range(first, end_offset)):
        _deliver(builder, group, proc, pqe, offset, at + 1 + 10 * place)


def _deliver(builder: RunBuilder, group: str, proc: int, pqe: int, offset: int, bt: float) -> None:
    builder.deliver(
        offset, bt, bt + 0.5, proc=proc, pqe=pqe, grp=group, broker=builder.run["engine"], lane=0
    )


def _commit(builder: RunBuilder, group: str, proc: int, t: float, off: int, result: str) -> None:
    builder.commit(
        t, off, proc=proc, at=(None, None), grp=group, broker=builder.run["engine"],
        kind="USER_SYNC", result=result,
    )  # fmt: skip
