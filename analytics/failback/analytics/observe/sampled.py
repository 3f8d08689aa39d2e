"""Rows of the lake from looks: samples of offsets and of queues, and absences of masters. Pure.

Near an event every look becomes rows, elsewhere one look in half a minute. An offset becomes a row
where it differs from the look before, or where its broker was restarted. Each look into a table is
a row too, with queue -1, as in recorded runs. An outage is a fault of two steps, each with the
interval in which it happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from failback.analytics.observe.events import Event, Outage
from failback.analytics.observe.looks import ANSWERED, BrokerLook, Look, Offsets, Place, Spans
from failback.analytics.trace.tables import fitted, reader_columns
from failback.protocol.route import split_offset_key

OFFSETS: Final = "broker_offset_sample"
QUEUES: Final = "broker_queue_sample"
FAULTS: Final = "fault"
OBSERVER: Final = "observer"
ROWS_OF_A_FILE: Final = 100_000
SELDOM_SECONDS: Final = 30.0
"""Between looks that become rows, away from events."""
NEAR_SECONDS: Final = 60.0
"""Before and after an event every look becomes rows."""
_NS: Final = 1_000_000_000
_TABLE: Final = {"source": "code43", "file_mtime_ns": None}
_LOOK: Final = {"grp": "", "ptopic": "", "qid": -1}
_NO_STEP: Final = dict.fromkeys(("proc_ref", "signum", "intended", "honest", "detail"))

Row = dict[str, Any]


class Life(NamedTuple):
    """A process of a broker: when it answered first, its address, and when it began."""

    since: float
    addr: str
    boot_ms: int


class _Queue(NamedTuple):
    """The names of a queue in a row; no group where the row is about the queue alone."""

    ptopic: str
    qid: int
    grp: str | None = None

    def columns(self) -> Row:
        named = {"ptopic": self.ptopic, "qid": self.qid}
        return named if self.grp is None else {**named, "grp": self.grp}


class _Known(NamedTuple):
    """Offsets or queues of a process at the last look."""

    table: str
    common: Row
    values: Mapping[_Queue, Row]


class Sampler:
    """Makes rows of looks that come in their order, many at a time."""

    def __init__(self, run: str, zero_wall_ns: int, is_wanted: Callable[[str], bool]) -> None:
        """``is_wanted`` chooses keys of offset tables, ``topic@group``."""
        self._run = run
        self._zero = zero_wall_ns
        self._is_wanted = is_wanted
        self._known: dict[tuple[str, Place], _Known] = {}
        self._incomplete: dict[Place, list[Row]] = {}
        self.lives: dict[Place, list[Life]] = defaultdict(list)
        """By place the processes that answered there, the oldest first."""
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._made: dict[str, int] = defaultdict(int)

    def tables(self, looks: Iterable[Look]) -> Iterator[tuple[str, int, pa.Table]]:
        """Yield a table's name, the number of the file and its rows."""
        files: dict[str, int] = defaultdict(int)
        for look in looks:
            for broker in look.brokers:
                if broker.state == ANSWERED:
                    self._sample(broker)
            for name in [name for name, rows in self._rows.items() if len(rows) >= ROWS_OF_A_FILE]:
                yield name, files[name], self._table(name)
                files[name] += 1
        for known in self._known.values():
            self._close(known)
        for name in [name for name, rows in self._rows.items() if rows]:
            yield name, files[name], self._table(name)

    def _sample(self, broker: BrokerLook) -> None:
        place, boot = broker.place, broker.boot_ms
        self._note_life(broker)
        known_rows = {name: len(self._rows[name]) for name in (OFFSETS, QUEUES)}
        common = {
            "addr": broker.addr,
            "broker": place.broker,
            "bid": place.broker_id,
            "binc": boot,
            "t": round(broker.until * _NS),
        }
        if broker.offsets is not None:
            offsets = _offset_values(broker.offsets, self._is_wanted)
            self._sample_changes(OFFSETS, place, offsets, {**common, **_TABLE})
            entries = sum(map(len, broker.offsets.values()))
            self._rows[OFFSETS].append({**common, **_TABLE, **_LOOK, "off": entries})
        if broker.spans is not None:
            self._sample_changes(QUEUES, place, _span_values(broker.spans), common)
        if boot is None:
            for name, count in known_rows.items():
                self._incomplete[place] += self._rows[name][count:]

    def _note_life(self, broker: BrokerLook) -> None:
        """Complete the rows of a young process, which has no figures in its first second."""
        incomplete, lives = self._incomplete.setdefault(broker.place, []), self.lives[broker.place]
        if broker.boot_ms is None:
            return
        if not lives or lives[-1].boot_ms != broker.boot_ms:
            since = incomplete[0]["t"] / _NS if incomplete else broker.until
            lives.append(Life(since, broker.addr, broker.boot_ms))
        known = (self._known.get((name, broker.place)) for name in (OFFSETS, QUEUES))
        held = [each.common for each in known if each is not None and each.common["binc"] is None]
        for row in (*incomplete, *held):
            row["binc"] = broker.boot_ms
        incomplete.clear()

    def _sample_changes(
        self, table: str, place: Place, values: dict[_Queue, Row], common: Row
    ) -> None:
        """Make rows of values that changed, or that another process has."""
        known = self._known.get((table, place))
        if known is not None and known.common["binc"] != common["binc"]:
            self._close(known)
            known = None
        before = known.values if known is not None else {}
        now = {**before, **values} if table == QUEUES else values
        self._known[table, place] = _Known(table, common, now)
        self._rows[table] += [
            {**common, **queue.columns(), **value}
            for queue, value in values.items()
            if before.get(queue) != value
        ]

    def _close(self, known: _Known) -> None:
        """Make rows of all values of a process at its last look: until then they held."""
        self._rows[known.table] += [
            {**known.common, **queue.columns(), **value} for queue, value in known.values.items()
        ]

    def _table(self, name: str) -> pa.Table:
        rows = self._rows.pop(name)
        after = self._made[name]
        self._made[name] += len(rows)
        return table_of(name, self._run, rows, self._zero, after=after)


def _offset_values(offsets: Offsets, is_wanted: Callable[[str], bool]) -> dict[_Queue, Row]:
    found: dict[_Queue, Row] = {}
    for key, queues in offsets.items():
        if is_wanted(key):
            topic, group = split_offset_key(key)
            found |= {_Queue(topic, qid, group): {"off": offset} for qid, offset in queues.items()}
    return found


def _span_values(spans: Spans) -> dict[_Queue, Row]:
    return {
        _Queue(topic, qid): {"min": first, "max": end}
        for topic, queues in spans.items()
        for qid, (first, end) in queues.items()
    }


def looks_for_rows(looks: Iterable[Look], events: Sequence[Event]) -> Iterator[Look]:
    """Yield all looks near events, some of the others, and the last one."""
    near = [(each.since - NEAR_SECONDS, each.until + NEAR_SECONDS) for each in events]
    taken_at, left = -SELDOM_SECONDS, None
    for look in looks:
        is_near = any(first <= look.ended <= last for first, last in near)
        left = look
        if is_near or look.ended - taken_at >= SELDOM_SECONDS:
            taken_at, left = look.ended, None
            yield look
    if left is not None:
        yield left


def table_of(name: str, run: str, rows: list[Row], zero_wall_ns: int, after: int = 0) -> pa.Table:
    """Return rows with their own columns, ``t`` among them, as a table of the lake."""
    columns: Row = reader_columns(run, len(rows), OBSERVER, after)
    times = [row["t"] for row in rows]
    columns["mono_ns"] = times
    columns["wall_ns"] = [zero_wall_ns + t for t in times]
    columns |= {key: [row[key] for row in rows] for key in rows[0]}
    return fitted(name, columns)


def fault_table(
    run: str, outages: Iterable[Outage], lives: Mapping[Place, Sequence[Life]], zero_wall_ns: int
) -> pa.Table:
    """Return the outages as faults: a step GONE, and a step ACCEPT where the master is back."""
    rows: list[Row] = []
    for number, outage in enumerate(outages, 1):
        place = Place(outage.pair, 0)
        steps = [("GONE", outage.gone)] + ([("ACCEPT", outage.back)] if outage.back else [])
        for kind, (since, until) in steps:
            life = _life_at(lives.get(place, ()), until if kind == "ACCEPT" else since)
            seen = round(until * _NS)
            rows.append(
                {
                    **_NO_STEP,
                    "fid": f"away-{number}",
                    "kind": kind,
                    "pair": place.broker,
                    "broker": place.broker,
                    "bid": 0,
                    "role": "master",
                    "addr": life and life.addr,
                    "boot_ms": life and life.boot_ms,
                    "issued": round(since * _NS),
                    "issued_end": seen,
                    "observed": seen,
                    "observer": OBSERVER,
                    "t": seen,
                }
            )
    return table_of(FAULTS, run, rows, zero_wall_ns)


def _life_at(lives: Sequence[Life], second: float) -> Life | None:
    """Return the process that had answered last by then."""
    latest = second + 0.001  # rows have whole nanoseconds
    return next((life for life in reversed(lives) if life.since <= latest), None)
