"""What a canary's own log says of each return: exact counts, and how long messages stopped.

Its members log every delivery. So a message that one of its groups received again is counted, not
inferred. Times are seconds after run zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.lake.lake import Lake
from failback.analytics.observe.canary.ledger import Ledger, Names

Row = dict[str, Any]
CANARY: Final = "E5"
_AFTERWARDS_SECONDS: Final = 60.0
"""A standstill that begins within this after a master answered again is of its return."""
_ANSWERED: Final = ("FOUND", "NO_NEW_MSG")
_COPY: Final = ("broker", "ptopic", "qid", "qoff", "omid")


class Delivery(NamedTuple):
    """One delivery of a message to a group."""

    at: float
    queue: int
    copy: tuple[object, ...]
    """Which stored record it was."""


def again(deliveries: Iterable[Delivery], since: float, until: float) -> dict[int, int]:
    """Return by queue how many messages of a span had been delivered before. Pure.

    Each message counts once, however often it was delivered again.
    """
    seen: set[tuple[object, ...]] = set()
    found: dict[tuple[object, ...], int] = {}
    for each in sorted(deliveries, key=lambda each: each.at):
        if each.copy in seen and since <= each.at < until:
            found[each.copy] = each.queue
        seen.add(each.copy)
    return Counter(found.values())


def standstill(times: Iterable[float], since: float, until: float) -> float | None:
    """Return the longest gap between ``times`` that overlaps a span. Pure.

    ``None`` where there is no time before the span, or none after its longest gap.
    """
    ordered = sorted(times)
    gaps = [
        later - earlier for earlier, later in pairwise(ordered) if later > since and earlier < until
    ]
    if not ordered or ordered[0] > since or ordered[-1] < since or not gaps:
        return None
    return max(gaps)


def sharpen(observation: Row, lake: Lake, ledger: Ledger) -> None:
    """Put the canary's figures into ``observation`` (of ``report.json``).

    Each return gets ``recovery``; the canary's groups get exact counts. A return after the end of
    its log stays as it is.
    """
    returns: Sequence[Row] = observation["returns"]
    log = _Log(lake)
    for number, row in enumerate(returns):
        for pair in ledger.numbers:
            if pair.rpartition("/")[2] == row["broker"] and log.ended >= row["back_until"]:
                _sharpen(row, returns[number + 1 :], log, ledger.at(pair))


def _sharpen(row: Row, later: Iterable[Row], log: _Log, names: Names) -> None:
    next_gone = [each["gone_from"] for each in later if each["broker"] == row["broker"]]
    until = min(next_gone, default=float("inf"))
    for group in row["groups"]:
        if group["group"] in names.groups and group["topic"] in names.topics:
            got = log.deliveries(group["group"], group["topic"])
            counts = again(got, row["gone_from"], until)
            _made_exact(group, counts)
    span = row["gone_from"], min(row["back_until"] + _AFTERWARDS_SECONDS, until)
    row["recovery"] = {
        "produce_s": _rounded(standstill(log.sends(names.topic), *span)),
        "consume_s": _rounded(standstill(log.pulls(names.stays, names.topic), *span)),
    }


def _made_exact(group: Row, counts: Mapping[int, int]) -> None:
    for queue in group["queues"]:
        queue["lo"] = queue["hi"] = counts.get(queue["qid"], 0)
    group["lo"] = group["hi"] = sum(counts.values())
    group["exact"] = True
    group["basis"] = [*group["basis"], CANARY]
    if not counts:
        group["causes"] = []


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


class _Log:
    """The rows of a canary's members in a lake.

    Attributes:
        ended: The time of its last row.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        offsets: dict[int, list[int]] = {}
        beats: dict[int, int] = {}
        columns = ("proc_no", "mono_ns", "source", "offset_ns")
        for row in lake.read("clock", columns).to_pylist():
            if row["source"] == "CLOCK_MONOTONIC":
                offsets.setdefault(row["proc_no"], []).append(row["offset_ns"])
                beats[row["proc_no"]] = max(row["mono_ns"], beats.get(row["proc_no"], 0))
        self._offsets = {proc: median(found) for proc, found in offsets.items()}
        self.ended = max(
            (self._seconds(proc, beat) for proc, beat in beats.items()), default=float("-inf")
        )

    def deliveries(self, group: str, topic: str) -> Iterator[Delivery]:
        for row in self._rows("deliver", ("proc_no", "bt", *_COPY), grp=group, ptopic=topic):
            copy = tuple(row[name] for name in _COPY)
            yield Delivery(self._seconds(row["proc_no"], row["bt"]), row["qid"], copy)

    def sends(self, topic: str) -> Iterator[float]:
        """Yield when sends were acknowledged."""
        for row in self._rows("produce", ("proc_no", "t1", "res"), topic=topic):
            if row["res"].startswith("OK"):
                yield self._seconds(row["proc_no"], row["t1"])

    def pulls(self, group: str, topic: str) -> Iterator[float]:
        """Yield when pulls were answered."""
        for row in self._rows("pull", ("proc_no", "t1", "res"), grp=group, ptopic=topic):
            if row["res"] in _ANSWERED:
                yield self._seconds(row["proc_no"], row["t1"])

    def _rows(self, table: str, columns: Sequence[str], **wanted: str) -> Iterator[Row]:
        """Yield the rows whose columns have the texts that are wanted."""
        for chunk in self._lake.chunks(table, list(dict.fromkeys((*columns, *wanted)))):
            for name, text in wanted.items():
                chunk = chunk.filter(pc.equal(chunk.column(name).cast(pa.utf8()), text))
            yield from chunk.select(columns).to_pylist()

    def _seconds(self, proc: int, mono_ns: int) -> float:
        return (mono_ns + self._offsets.get(proc, 0)) / 1e9
