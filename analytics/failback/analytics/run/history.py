"""What the small tables of a run say: broker incarnations, assignments, faults, samples.

A :class:`History` is read once, in the process that makes the report, and serves both engines.
Of tables that grow with the run's length it has what ``run.small_tables`` keeps. The engines
read the large tables: deliver, produce, pull, commit, scan. All times in it are ns after run zero.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from failback.analytics.run.align import Clocks
from failback.analytics.run.epochs import Queue, QueueEvents
from failback.analytics.run.run_folder import RunFolder

DOWN_KINDS: Final = frozenset({"KILL", "GONE", "TERM"})
NO_EVENTS: Final = QueueEvents()
Row = dict[str, Any]

UNKNOWN: Final = "UNKNOWN"
"""Stands for a name that this version does not know."""
_UNKNOWN_TIME: Final = -(1 << 62)


class GroupQueue(NamedTuple):
    """A queue as one group sees it. BROADCASTING: the group is ``group@client_id``."""

    grp: str
    broker: str
    ptopic: str
    qid: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The queue of a row of a result table."""
        return cls(row["grp"], row["broker"], row["topic"], row["qid"])

    @property
    def queue(self) -> Queue:
        return Queue(self.broker, self.ptopic, self.qid)

    @property
    def place(self) -> Row:
        """The queue as rows of a report have it."""
        return {"group": self.grp, "broker": self.broker, "topic": self.ptopic, "qid": self.qid}

    @property
    def text(self) -> str:
        """``orders demo-0/3``."""
        return f"{self.ptopic} {self.broker}/{self.qid}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One queue in one client's hands, from ``t`` to ``end_t`` (``None``: to the end)."""

    key: GroupQueue
    inc: int
    pqe: int
    t: int
    start_off: int
    src: str
    src_addr: str | None
    src_bid: int | None
    src_binc: int | None
    client_id: str | None
    end_t: int | None
    end_reason: str | None
    partial_view: bool = False

    @property
    def holder(self) -> tuple[GroupQueue, int, int]:
        """What a delivery names its assignment by."""
        return (self.key, self.inc, self.pqe)


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One row of ``fault``: a step of the proof that something happened."""

    fid: str
    kind: str
    pair: str | None
    broker: str | None
    bid: int | None
    addr: str | None
    intended: int | None
    issued: int | None
    issued_end: int | None
    observed: int | None
    honest: bool | None
    detail: str | None
    boot_ms: int | None
    proc_ref: str | None

    @property
    def t(self) -> int:
        """The best instant known: seen by a witness, else when the injecting call returned."""
        for value in (self.observed, self.issued_end, self.issued, self.intended):
            if value is not None:
                return value
        return _UNKNOWN_TIME

    @property
    def details(self) -> Mapping[str, Any]:
        """``detail`` as it was written; empty where it cannot be read."""
        try:
            found = json.loads(self.detail or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a broker process at one address."""

    broker: str
    bid: int
    boot_ms: int
    first_seen: int
    until: int | None
    """From here on an answer is no longer its own: it was seen to be gone, or the next began."""


class OffsetSample(NamedTuple):
    """What one broker held for one queue of one group at one instant."""

    t: int
    off: int
    binc: int | None
    addr: str
    row: str


class Reset(NamedTuple):
    """An operator's or tool's reset of one queue."""

    t: int
    off: int
    row: str


class RouteChange(NamedTuple):
    """One second in which a name server showed another route, or a client took one over."""

    second: int
    entry: str | None
    """``+broker-a/0`` where that broker came to the route, ``-broker-a/0`` where it went; ``None``:
    a client took the route."""
    proc_no: int
    """The client's process; -1 for what a name server showed."""


Series = tuple[GroupQueue, str, int]
"""A copy of an offset: queue, source, broker id."""
Held = tuple[NDArray[np.int64], NDArray[np.int64]]
"""When a copy was looked at, ascending, and which offset it had."""
Samples = dict[Series, list[OffsetSample]]
Polls = dict[tuple[str, str], list[tuple[int, int | None]]]


def row_id(table: str, proc_no: int, seq: int) -> str:
    """How reports name a row of the lake."""
    return f"{table}/{proc_no}/{seq}"


class Looks(Protocol):
    """All samples of offsets, for what cannot be said of those that are kept."""

    def held_at(self, instants: NDArray[np.int64]) -> Mapping[Series, Held]:
        """Of every series the last look at or before each instant, as far as there is one."""

    def curves(
        self, queues: Collection[GroupQueue], near: Sequence[tuple[int, int]]
    ) -> Mapping[Series, Held]:
        """All looks into some queues' offsets; long curves thinned out but for ``near`` spans."""


def group_name(folder: RunFolder, grp: str, client_id: str | None) -> str:
    """The name that figures use: per client where every client gets every message."""
    return f"{grp}@{client_id}" if grp in folder.broadcasting else grp


@dataclass(slots=True)
class History:
    """Everything but the large tables."""

    folder: RunFolder
    clocks: Clocks
    faults: list[FaultStep]
    incarnations: dict[str, list[Incarnation]]
    assignments: list[Assignment]
    samples: Samples
    """Per (queue, source, broker id), ascending in time: those around assignments and lives of
    brokers, the highest ones in between, and every fall."""
    polls: Polls
    """Per (address, source): when it was polled, and which incarnation answered; around the same
    instants."""
    longest_pause: int | None
    """The longest time in ns without a look into the offset table of a broker that was up."""
    queue_samples: list[Row]
    """Ends of queues: those around lives of brokers, and the furthest ones in between."""
    routes: list[RouteChange]
    resets: dict[GroupQueue, list[Reset]]
    looks: Looks
    events: dict[Queue, QueueEvents] = field(default_factory=dict)
    binc_unknown: int = 0
    unknown_names: Counter[str] = field(default_factory=Counter)
    """Rows whose ``table.column`` says something that this version does not know."""
    _ends: dict[Queue, tuple[int, int]] = field(init=False, default_factory=dict)
    """When each queue was looked at last, and the furthest end that was seen."""
    _copies: dict[GroupQueue, dict[tuple[str, int], list[OffsetSample]]] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for (key, source, bid), found in self.samples.items():
            self._copies.setdefault(key, {})[source, bid] = found
        for row in self.queue_samples:
            queue = Queue(row["broker"], row["ptopic"], row["qid"])
            last, end = self._ends.get(queue, (row["t"], row["max"]))
            self._ends[queue] = (max(last, row["t"]), max(end, row["max"]))

    @property
    def last_ns(self) -> int:
        """The latest instant that these rows know of, ns after run zero; 0 if there is none."""
        holdings = (t for a in self.assignments for t in (a.t, a.end_t) if t is not None)
        looks: Iterator[int] = (row["t"] for row in self.queue_samples)
        steps = (step.t for step in self.faults)
        return max(chain((0,), holdings, looks, steps))

    def copies_of(self, key: GroupQueue) -> Mapping[tuple[str, int], Sequence[OffsetSample]]:
        """The samples of a queue's offset, by (source, broker id)."""
        return self._copies.get(key, {})

    def end_of(self, queue: Queue, t: int) -> int | None:
        """The furthest end of a queue, if it was looked at since ``t``: no offset of then is
        beyond it that has a message."""
        last, end = self._ends.get(queue, (_UNKNOWN_TIME, 0))
        return end if last >= t else None

    def events_of(self, queue: Queue) -> QueueEvents:
        return self.events.get(queue, NO_EVENTS)

    def group_name(self, grp: str, client_id: str | None) -> str:
        """The name that figures use: per client where every client gets every message."""
        return group_name(self.folder, grp, client_id)

    def incarnation_at(self, addr: str | None, t: int) -> int | None:
        """``bootTimestamp`` of the process at ``addr``; ``None`` between two lives."""
        lives = self.incarnations.get(addr or "")
        if not lives:
            return None
        at = bisect.bisect_right([life.first_seen for life in lives], t) - 1
        life = lives[max(at, 0)]  # before anybody looked, it was the first one known
        return None if life.until is not None and t >= life.until else life.boot_ms

    def boundaries(self) -> dict[GroupQueue, list[int]]:
        """Per queue the instants that progress and commits are summed up between."""
        found: dict[GroupQueue, set[int]] = defaultdict(set)
        for assignment in self.assignments:
            found[assignment.key].add(assignment.t)
            if assignment.end_reason == "RESET" and assignment.end_t is not None:
                found[assignment.key].add(assignment.end_t)
        for key, resets in self.resets.items():
            found[key].update(reset.t for reset in resets)
        return {key: sorted(times) for key, times in found.items()}

    def fault_at(self, t: int) -> str | None:
        """The fault whose latest step is the latest at or before ``t``."""
        found = [step for step in self.faults if step.t <= t]
        return max(found, key=lambda step: step.t).fid if found else None
