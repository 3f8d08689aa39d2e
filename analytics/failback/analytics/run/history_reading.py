"""Reads the small tables of a run into a :class:`History`.

Finds truncation events, and when processes ended: by wait statuses, and by what witnesses saw.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.lake.lake import Lake
from failback.analytics.run.align import Clocks, clocks_of
from failback.analytics.run.epochs import FURTHEST_NS, Queue, QueueEvents, Start, find_events
from failback.analytics.run.history import (
    DOWN_KINDS,
    UNKNOWN,
    Assignment,
    FaultStep,
    GroupQueue,
    History,
    Incarnation,
    Reset,
    Row,
    group_name,
    row_id,
)
from failback.analytics.run.run_folder import RunFolder
from failback.analytics.run.small_tables.incarnations import (
    LIFE_COLUMNS,
    IncarnationsSeen,
    longest_pause,
)
from failback.analytics.run.small_tables.occurrences import (
    MEMBER_COLUMNS,
    RESET_KIND,
    ROUTE_COLUMNS,
    MembersSeen,
    RouteChanges,
    Seen,
    may_hold_resets,
    members_of,
    routes_of,
)
from failback.analytics.run.small_tables.offset_looks import OffsetLooks
from failback.analytics.run.small_tables.reductions import Read, in_this_process, reduced
from failback.analytics.run.small_tables.sample_instants import SampleInstants
from failback.analytics.run.small_tables.samples import (
    OFFSET_COLUMNS,
    QUEUE_COLUMNS,
    OffsetSamples,
    QueueSamples,
    polls_of,
    samples_of,
)
from failback.client.consumelog.schema import ASSIGN_SOURCES, END_REASONS

_ENDED_KINDS: Final = frozenset({"CLIENT_KILL", "CLIENT_TERM"})
"""Steps that a harness writes once the client's process is gone."""
_QUEUE: Final = ("broker", "ptopic", "qid")
_RESET_COLUMNS: Final = ("host", "proc_no", "seq", "grp", "client_id", *_QUEUE, "off", "kind", "t")


def read_history(folder: RunFolder, lake: Lake, read: Read | None = None) -> History:
    """Read the small tables; truncation events are added by :func:`add_events`.

    Args:
        folder: The run's documents.
        lake: Its tables.
        read: Reads the tables that grow with the run's length; this process by default.
    """
    read = read or in_this_process(lake)
    clocks = clocks_of(lake.records("clock"), folder.zero_mono_ns)
    faults = sorted(
        (_fault_step(row, clocks) for row in lake.records("fault")), key=lambda step: step.t
    )
    lives = pa.concat_tables(
        [
            reduced(
                read, "broker_offset_sample", (*LIFE_COLUMNS, "source"), IncarnationsSeen(clocks)
            ),
            reduced(read, "broker_queue_sample", LIFE_COLUMNS, IncarnationsSeen(clocks)),
        ]
    )
    incarnations = _incarnations(faults, lives.to_pylist())
    assigned = _assigned(folder, lake, clocks)
    asked = SampleInstants.of(assigned, incarnations, faults)
    offsets = reduced(read, "broker_offset_sample", OFFSET_COLUMNS, OffsetSamples(clocks, asked))
    queues = reduced(read, "broker_queue_sample", QUEUE_COLUMNS, QueueSamples(clocks, asked))
    samples = samples_of(offsets)
    routes = reduced(read, "route", ROUTE_COLUMNS, RouteChanges(clocks))
    history = History(
        folder=folder,
        clocks=clocks,
        faults=faults,
        incarnations=incarnations,
        assignments=[],
        samples=samples,
        polls=polls_of(offsets),
        longest_pause=longest_pause(lives),
        queue_samples=queues.to_pylist(),
        routes=routes_of(routes),
        resets={},
        looks=OffsetLooks(read, clocks, samples),
    )
    history.resets = _resets(history, lake)
    members = reduced(read, "rebalance", MEMBER_COLUMNS, MembersSeen(clocks, asked))
    history.assignments = _assignments(history, lake, assigned, members_of(members))
    return history


def add_events(
    history: History, known: Mapping[tuple[Queue, int], int]
) -> dict[Queue, QueueEvents]:
    """Set the truncation events from what was ``known`` before each start (see :func:`starts`).

    A queue only grows while its master lives: of samples of one instant the smallest is the first.
    """
    began = starts(history)
    first_max: dict[tuple[Queue, int], int] = {}
    for row in sorted(history.queue_samples, key=lambda row: (row["t"], row["max"])):
        if row["bid"] == 0 and row["binc"] is not None:
            queue = Queue(row["broker"], row["ptopic"], row["qid"])
            first_max.setdefault((queue, row["binc"]), row["max"])
    highest = dict(known)
    for row in history.queue_samples:
        if row["bid"] != 0:
            continue
        queue = Queue(row["broker"], row["ptopic"], row["qid"])
        for start in began:
            if (
                start.broker == queue.broker
                and row["t"] < start.t_ns
                and row["binc"] != start.boot_ms
            ):
                at = (queue, start.boot_ms)
                highest[at] = max(highest.get(at, 0), row["max"])
    history.events = find_events(began, first_max, highest)
    return history.events


def starts(history: History) -> list[Start]:
    """Incarnations of masters that began inside the run: where a log may have become shorter."""
    found = []
    for lives in history.incarnations.values():
        found += [
            Start(life.broker, life.boot_ms, life.first_seen) for life in lives[1:] if life.bid == 0
        ]
    return sorted(found, key=lambda start: start.boot_ms)


def _aligned(rows: list[dict[str, Any]], clocks: Clocks, *times: str) -> list[dict[str, Any]]:
    for row in rows:
        shift = clocks.shift_of(row["host"])
        for name in times:
            if row[name] is not None:
                row[name] += shift
    return rows


def _fault_step(row: Mapping[str, Any], clocks: Clocks) -> FaultStep:
    shift = clocks.shift_of(row["host"])
    moved = {
        name: None if row[name] is None else row[name] + shift
        for name in ("intended", "issued", "issued_end", "observed")
    }
    kept: Row = {name: row[name] for name in FaultStep.__slots__}
    return FaultStep(**{**kept, **moved})


def _incarnations(
    faults: Sequence[FaultStep], looks: Iterable[Mapping[str, Any]]
) -> dict[str, list[Incarnation]]:
    """Incarnations per address, from ACCEPT or the first look to where a witness saw it end."""
    seen: dict[tuple[str, int], tuple[int, int, str, int]] = {}

    def note(addr: str, boot_ms: int, t: int, broker: str, bid: int) -> None:
        first, last, *_ = seen.get((addr, boot_ms), (t, t))
        seen[addr, boot_ms] = (min(first, t), max(last, t), broker, bid)

    for row in looks:
        if row["binc"] is not None:
            for t in (row["first"], row["last"]):
                note(row["addr"], row["binc"], t, row["broker"], row["bid"])
    for step in faults:
        if step.addr and step.boot_ms is not None and step.kind == "ACCEPT":
            note(step.addr, step.boot_ms, step.t, step.broker or "", step.bid or 0)
    lives: dict[str, list[Incarnation]] = defaultdict(list)
    for (addr, boot_ms), (first, _, broker, bid) in sorted(seen.items(), key=lambda item: item[1]):
        lives[addr].append(Incarnation(broker, bid, boot_ms, first, None))
    return {addr: _with_ends(addr, found, seen, faults) for addr, found in lives.items()}


def _with_ends(
    addr: str,
    lives: list[Incarnation],
    seen: Mapping[tuple[str, int], tuple[int, int, str, int]],
    faults: Sequence[FaultStep],
) -> list[Incarnation]:
    ended = []
    for at, life in enumerate(lives):
        following = lives[at + 1].first_seen if at + 1 < len(lives) else None
        gone = [
            step.t
            for step in faults
            if step.kind in DOWN_KINDS
            and step.addr == addr
            and step.t >= life.first_seen
            and (following is None or step.t < following)
        ]
        until = max(gone) if gone else None
        if until is None and following is not None:
            until = seen[addr, life.boot_ms][1] + 1  # no witness saw it end: its last sample
        ended.append(replace(life, until=until))
    return ended


def _resets(history: History, lake: Lake) -> dict[GroupQueue, list[Reset]]:
    found: dict[GroupQueue, list[Reset]] = defaultdict(list)
    for chunk in lake.chunks("commit", _RESET_COLUMNS, wanted=may_hold_resets):
        is_reset = pc.equal(chunk.column("kind").cast(pa.utf8()), RESET_KIND)
        for row in chunk.filter(is_reset).to_pylist():
            grp = history.group_name(row["grp"], row["client_id"])
            key = GroupQueue(grp, row["broker"], row["ptopic"], row["qid"])
            t = row["t"] + history.clocks.shift_of(row["host"])
            name = row_id("commit", row["proc_no"], row["seq"])
            found[key].append(Reset(t, row["off"], name))
    return {key: sorted(resets) for key, resets in found.items()}


def _assigned(folder: RunFolder, lake: Lake, clocks: Clocks) -> list[tuple[GroupQueue, Row]]:
    """Rows of ``assign``, aligned, each with its queue."""
    return [
        (
            GroupQueue(
                group_name(folder, row["grp"], row["client_id"]),
                *(row[name] for name in _QUEUE),
            ),
            row,
        )
        for row in _aligned(lake.records("assign"), clocks, "t", "end_t")
    ]


def _assignments(
    history: History, lake: Lake, assigned: Sequence[tuple[GroupQueue, Row]], seen: Seen
) -> list[Assignment]:
    ends = {
        (row["proc_no"], row["pqe"]): row
        for row in _aligned(lake.records("assign_end"), history.clocks, "end_t")
    }
    numbers = _process_numbers(history, (row for _, row in assigned))
    exits = _process_ends(history.folder.exits(), history.faults, numbers)
    found: dict[tuple[GroupQueue, int, int], Assignment] = {}
    for key, row in assigned:
        if abs(row["t"]) > FURTHEST_NS:  # a clock was wrong: when it was taken is unknown
            history.unknown_names["assign.t"] += 1
            continue
        end = ends.get((row["proc_no"], row["pqe"]))
        if row["end_t"] is None and end is not None:
            row["end_t"], row["end_reason"] = end["end_t"], end["end_reason"]
        if row["end_t"] is None and row["proc_no"] in exits:
            row["end_t"], row["end_reason"] = max(exits[row["proc_no"]], row["t"]), "CRASH"
        for name, known in (("src", ASSIGN_SOURCES), ("end_reason", END_REASONS)):
            if row[name] is not None and row[name] not in known:
                row[name] = UNKNOWN
                history.unknown_names[f"assign.{name}"] += 1
        assignment = _assignment(history, key, row)
        found.setdefault(assignment.holder, assignment)
    ordered = sorted(found.values(), key=lambda a: (a.key, a.t, a.inc, a.pqe))
    return _marked(ordered, exits, seen)


def _process_ends(
    exits: Mapping[int, int], faults: Iterable[FaultStep], numbers: Mapping[str, Sequence[int]]
) -> dict[int, int]:
    """When each ended process ended, in ns after run zero, by process number.

    Either source gives the end: the wait status in ``closed.json``, which a harness that died left
    empty, or a fault step that a witness observed. A step without a witness proves no end. Where
    they differ the earliest holds: a process does not live on after it was seen to be gone.

    Args:
        exits: Wait statuses, by process number.
        faults: All steps, aligned.
        numbers: Process numbers by the process's id in hex.
    """
    found: dict[int, list[int]] = defaultdict(list)
    for proc_no, t in exits.items():
        found[proc_no].append(t)
    for step in faults:
        if step.kind in _ENDED_KINDS and step.observed is not None:
            for proc_no in _named(step, numbers):
                found[proc_no].append(step.observed)
    return {proc_no: min(times) for proc_no, times in found.items()}


def _named(step: FaultStep, numbers: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """The processes that a step is of: by its reference, else by what its detail says."""
    detail = step.details
    for name in (step.proc_ref, detail.get("proc_ref"), detail.get("proc")):
        known = numbers.get(_hex_id(name)) if isinstance(name, str) else None
        if known:
            return known
    return tuple(_number(detail.get("proc_no")))


def _number(value: Any) -> Iterator[int]:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        yield value


def _hex_id(text: str) -> str:
    """A process's id, however it is spelt."""
    return text.strip().lower().removeprefix("0x").replace("-", "")


def _process_numbers(history: History, rows: Iterable[Row]) -> dict[str, list[int]]:
    """Process numbers by the process's id in hex: of the rows, and as ``run.json`` lists them."""
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        found[bytes(row["proc"]).hex()].add(row["proc_no"])
    for listed in history.folder.run.procs or ():
        if listed.proc and listed.proc_no is not None:
            found[_hex_id(listed.proc)].add(listed.proc_no)
    return {proc: sorted(numbers) for proc, numbers in found.items()}


def _assignment(history: History, key: GroupQueue, row: Mapping[str, Any]) -> Assignment:
    binc = row["src_binc"]
    if binc is None and row["src_addr"] is not None:
        binc = history.incarnation_at(row["src_addr"], row["t"])
        history.binc_unknown += binc is None
    src = row["src"]
    if src == "STORE" and row["start_off"] <= 0 and _had_no_entry(history, row, binc):
        src = "NO_ENTRY"
    names = ("inc", "pqe", "t", "start_off", "src_addr", "src_bid", "client_id", "end_t",
             "end_reason")  # fmt: skip
    return Assignment(key, src=src, src_binc=binc, **{name: row[name] for name in names})


def _had_no_entry(history: History, row: Mapping[str, Any], binc: int | None) -> bool:
    """Whether the last look into the answering table, before the answer, found no entry."""
    polls = [
        t
        for t, found in history.polls.get((row["src_addr"], "code43"), ())
        if t <= row["t"] and found == binc
    ]
    if not polls or row["src_bid"] is None:
        return False
    key = GroupQueue(row["grp"], row["broker"], row["ptopic"], row["qid"])
    samples = history.samples.get((key, "code43", row["src_bid"]), ())
    return not any(s.t == polls[-1] and s.addr == row["src_addr"] for s in samples)


def _marked(
    assignments: list[Assignment], exits: Mapping[int, int], seen: Seen
) -> list[Assignment]:
    """Mark what was taken on a partial view: fewer members seen than were alive."""
    lives = _member_lives(assignments, exits)
    marked = []
    for taken in assignments:
        runs = seen.get((taken.key.grp, taken.inc), ())
        at = bisect.bisect_right(runs, (taken.t, 1 << 30)) - 1
        alive = {
            client
            for client, first, end in lives.get(taken.key.grp, ())
            if first <= taken.t and (end is None or end > taken.t)
        }
        marked.append(replace(taken, partial_view=at >= 0 and runs[at][1] < len(alive)))
    return marked


def _member_lives(
    assignments: Iterable[Assignment], exits: Mapping[int, int]
) -> dict[str, list[tuple[str, int, int | None]]]:
    """Per group the clients with their first assignment and the end of their last, if they left."""
    mine: dict[tuple[str, str, int], list[Assignment]] = defaultdict(list)
    for assignment in assignments:
        if assignment.client_id is not None:
            mine[assignment.key.grp, assignment.client_id, assignment.inc].append(assignment)
    lives: dict[str, list[tuple[str, int, int | None]]] = defaultdict(list)
    for (group, client, inc), taken in mine.items():
        last = max(taken, key=lambda a: a.t)
        gone = last.end_t if last.end_reason in ("SHUTDOWN", "UNSUBSCRIBE", "CRASH") else None
        lives[group].append((client, min(a.t for a in taken), gone or exits.get(inc)))
    return lives
