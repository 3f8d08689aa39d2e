"""Makes runs of any size with known answers, and races the engines on them.

    python -m failback.analytics.jobs.bench generate --rows 5000000 --out DIR
    python -m failback.analytics.jobs.bench run --run DIR --engines local,spark,duckdb

``generate`` writes a whole run folder, file by file in constant memory, and ``truth.json``: per
group and queue the duplicates by cause, known by construction. Equal arguments give equal bytes.
``run`` alternates the engines, takes the least CPU time of each, checks every answer against the
truth and prints ratios; exit code 1 on a wrong answer or a missed bar.

The story of every queue: offsets ``[0, f)`` are handled by one owner, who then stops. Commits had
told the master ``c0`` and, during an outage, the slave ``c1 >= c0``. A new owner starts at ``s``,
given by the returned master, and goes on to the end. So of ``[s, f)`` what lies below ``c0`` is
ROLLBACK_RESTART, below ``c1`` ROLLBACK_SLAVE_ONLY_PROGRESS, and the rest the tail of the stop.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from failback.client.consumelog.lake_files import write_parquet
from failback.client.consumelog.schema import arrow_schema

Ints = NDArray[np.int64]

MS: Final = 1_000_000
ZERO_WALL_NS: Final = 1_700_000_000_000 * MS
WALL_MS: Final = ZERO_WALL_NS // MS
FILE_ROWS: Final = 1 << 20
HANDLER_NS: Final = 2 * MS
STEP_NS: Final = 10 * MS
SHAPES: Final = ("windows", "scattered", "tail")
BARS: Final = {"local-a/duckdb": 0.5}
_TOPIC: Final = "orders"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to generate."""

    rows: int = 1_000_000
    queues: int = 8
    groups: int = 1
    members: int = 2
    dup_share: float = 0.05
    dup_shape: str = "windows"
    jumble: int = 32
    truncations: int = 0
    rate_skew: str = "none"
    foreign_share: float = 0.0
    seed: int = 1

    @property
    def run(self) -> str:
        text = json.dumps([getattr(self, name) for name in self.__slots__])
        return f"bench-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True, slots=True)
class QueueStory:
    """The offsets at which things happen in one queue of one group."""

    number: int
    frontier: int
    start: int
    told_master: int
    told_slave: int
    end: int
    resent: Ints
    """Messages of which a second copy lies behind the end, because their send timed out."""
    cut: int | None
    """Where the master's log was cut; messages behind it are new ones."""

    @property
    def broker(self) -> str:
        return f"broker-{self.number // 8}"

    @property
    def causes(self) -> dict[str, int]:
        """Duplicates by cause, as far as the messages have a LAB_ID."""
        if self.cut is not None:
            return {}  # the offsets come again, but other messages behind them
        restart = max(0, min(self.told_master, self.frontier) - self.start)
        slave = max(0, min(self.told_slave, self.frontier) - max(self.told_master, self.start))
        tail = self.frontier - self.start - restart - slave
        found = {
            "ROLLBACK_RESTART": restart,
            "ROLLBACK_SLAVE_ONLY_PROGRESS": slave,
            "TAIL_SHUTDOWN": tail,
            "SEND_TIMEOUT_DUP": int(self.resent.size),
        }
        return {cause: count for cause, count in found.items() if count}


def stories(plan: Plan) -> list[QueueStory]:
    """The story of each queue; all groups live the same one."""
    weights = np.ones(plan.queues)
    if plan.rate_skew.startswith("zipf:"):
        weights = 1 / np.arange(1, plan.queues + 1) ** float(plan.rate_skew[5:])
    per_group = plan.rows // plan.groups
    counts = np.maximum(10, (per_group * weights / weights.sum()).astype(np.int64))
    found = []
    for number, count in enumerate(counts.tolist()):
        rng = np.random.default_rng([plan.seed, number])
        dups = int(count * plan.dup_share)
        messages = count - dups
        frontier = messages * 2 // 3
        if number < plan.truncations:
            lost = min(frontier // 10 + 1, frontier)
            cut = frontier - lost
            found.append(
                QueueStory(
                    number, frontier, cut, frontier, frontier, messages - lost, _NOTHING, cut
                )
            )
        elif plan.dup_shape == "scattered":
            resent = np.sort(rng.choice(messages, dups, replace=False))
            found.append(
                QueueStory(number, frontier, frontier, frontier, frontier, messages, resent, None)
            )
        else:
            start = max(0, frontier - dups)
            width = frontier - start
            told = (
                (start, start)
                if plan.dup_shape == "tail"
                else (start + width // 3, start + width * 2 // 3)
            )
            found.append(QueueStory(number, frontier, start, *told, messages, _NOTHING, None))
    return found


_NOTHING: Final = np.empty(0, np.int64)


def generate(plan: Plan, out: Path) -> dict[str, Any]:
    """Write a closed run folder and return its truth (also in ``truth.json``)."""
    if plan.dup_shape not in SHAPES:
        raise ValueError(f"dup_shape must be one of {', '.join(SHAPES)}, not {plan.dup_shape!r}")
    out.mkdir(parents=True, exist_ok=True)
    told = stories(plan)
    writer = _Writer(out / "lake", plan.run)
    last = max(_end_ns(story) for story in told)
    for story in told:
        for lseq in _messages(story):
            writer.add("produce", 1, _produce(plan, story, lseq))
        for copies in _scan(plan, story):
            writer.add("scan", 2, copies)
        for group in range(plan.groups):
            for proc, chunk in _deliveries(plan, story, group):
                writer.add("deliver", proc, chunk)
    _small_tables(plan, told, writer)
    truth = truth_of(plan, told)
    for name, document in (
        ("run.json", _run_document(plan)),
        ("closed.json", _closed_document(writer, last)),
        ("truth.json", truth),
    ):
        (out / name).write_text(json.dumps(document, indent=1) + "\n")
    return truth


def truth_of(plan: Plan, told: Sequence[QueueStory]) -> dict[str, Any]:
    """Duplicates by cause, per group and queue."""
    causes: Counter[str] = Counter()
    queues = {}
    for story in told:
        mine = story.causes
        # Sends of foreign messages are not known, so nothing can be said about their copies.
        unknown = int(_foreign(plan, story, story.resent).sum())
        if unknown:
            mine["SEND_TIMEOUT_DUP"] -= unknown
        causes.update(mine)
        queues[str(story.number)] = {"dup": sum(story.causes.values()), "causes": mine}
    group = {
        "delivered": sum(map(_delivered, told)),
        "dup": sum(sum(story.causes.values()) for story in told),
        "repeated_offsets": sum(max(0, min(s.frontier, _last(s)) - s.start) for s in told),
        "causes": dict(sorted(causes.items())),
        "queues": queues,
    }
    return {"run": plan.run, "groups": {f"g{number}": group for number in range(plan.groups)}}


def _last(story: QueueStory) -> int:
    """End of the offsets of the queue's last life."""
    return story.end + int(story.resent.size)


def _delivered(story: QueueStory) -> int:
    return story.frontier + _last(story) - story.start


def _end_ns(story: QueueStory) -> int:
    return (_delivered(story) + 100) * STEP_NS


class _Writer:
    """Writes lake files with the shipper's metadata; ``seq`` counts per process."""

    def __init__(self, lake: Path, run: str) -> None:
        self._lake = lake
        self._run = run
        self.seq: Counter[int] = Counter()
        self._index: Counter[tuple[str, int]] = Counter()

    def add(self, table: str, proc: int, columns: Mapping[str, Any]) -> None:
        count = len(next(iter(columns.values())))
        if not count:
            return
        schema = arrow_schema(table)
        first = self.seq[proc] + 1
        self.seq[proc] += count
        proc_id = hashlib.blake2b(f"{self._run}/{proc}".encode(), digest_size=16).digest()
        common = {
            "run": _repeat(self._run, count),
            "proc": pa.array([proc_id] * count, pa.binary(16)),
            "proc_no": np.full(count, proc, np.int32),
            "seq": np.arange(first, first + count),
            "wall_ns": np.full(count, ZERO_WALL_NS),
            "mono_ns": np.zeros(count, np.int64),
            "host": _repeat("h", count),
        }
        given = {**common, **columns}
        arrays = [
            pa.nulls(count, f.type) if f.name not in given else _cast(given[f.name], f.type)
            for f in schema
        ]
        index = self._index[table, proc]
        self._index[table, proc] += 1
        segment = {
            "run": self._run, "proc": proc_id.hex(), "proc_no": proc, "role": "bench", "host": "h",
            "index": index, "seq_lo": first, "seq_hi": first + count - 1, "rows": count,
            "records": count, "torn": 0,
        }  # fmt: skip
        meta = {**(schema.metadata or {}), b"failback.segment": json.dumps(segment).encode()}
        path = self._lake / f"table={table}" / f"run={self._run}"
        whole = pa.table(arrays, schema=schema.with_metadata(meta))
        write_parquet(whole, path / f"part-{proc:05d}-{index:08d}.parquet")


def _repeat(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _cast(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(array.type):
        array = array.cast(pa.utf8()).dictionary_encode()
    return array.cast(kind) if array.type != kind else array


def _messages(story: QueueStory) -> Iterator[Ints]:
    total = story.end + (story.frontier - story.cut if story.cut is not None else 0)
    for lo in range(0, total, FILE_ROWS):
        yield np.arange(lo, min(lo + FILE_ROWS, total))


def _foreign(plan: Plan, story: QueueStory, lseq: Ints) -> NDArray[np.bool_]:
    """A seeded choice of messages without LAB_ID, the same wherever the message turns up."""
    if not plan.foreign_share:
        return np.zeros(lseq.size, bool)
    mixed = (lseq * 0x9E3779B1 + story.number * 0x85EBCA77 + plan.seed) & 0xFFFFFFFF
    return mixed < plan.foreign_share * (1 << 32)


def _identity(plan: Plan, story: QueueStory, lseq: Ints) -> dict[str, Any]:
    foreign = _foreign(plan, story, lseq)
    return {
        "lane": pa.array(np.full(lseq.size, story.number), mask=foreign),
        "lseq": pa.array(lseq, mask=foreign),
        "ukey": _ukeys(story.number, lseq),
    }


def _ukeys(number: int, lseq: Ints) -> pa.Array:
    text = pc.utf8_lpad(pa.array(lseq).cast(pa.utf8()), width=24, padding="0")
    return pc.binary_join_element_wise(f"7F00{number:04d}", text, "")


def _omids(number: int, phy: Ints) -> pa.Array:
    raw = np.zeros((phy.size, 16), np.uint8)
    raw[:, 3] = number % 256
    raw[:, 8:] = phy.astype(">i8").view(np.uint8).reshape(-1, 8)
    offsets = pa.array(np.arange(0, 16 * phy.size + 1, 16, dtype=np.int32))
    buffers = [None, offsets.buffers()[1], pa.py_buffer(raw.tobytes())]
    return pa.Array.from_buffers(pa.binary(), phy.size, buffers)


def _produce(plan: Plan, story: QueueStory, lseq: Ints) -> dict[str, Any]:
    late = np.isin(lseq, story.resent)
    res = pa.array(np.where(late, "TIMEOUT", "OK"))
    foreign = _foreign(plan, story, lseq)
    t0 = lseq * STEP_NS
    return {
        "lane": pa.array(np.full(lseq.size, story.number), mask=foreign),
        "lseq": pa.array(lseq, mask=foreign),
        "att": np.ones(lseq.size, np.int32),
        "ukey": _ukeys(story.number, lseq),
        "topic": _repeat(_TOPIC, lseq.size),
        "broker": _repeat(story.broker, lseq.size),
        "qid": np.full(lseq.size, story.number, np.int32),
        "bid": np.zeros(lseq.size, np.int32),
        "due": t0,
        "t0": t0,
        "t1": t0 + MS,
        "res": res,
    }


def _scan(plan: Plan, story: QueueStory) -> Iterator[dict[str, Any]]:
    total = story.end + story.resent.size
    for lo in range(0, total, FILE_ROWS):
        qoff = np.arange(lo, min(lo + FILE_ROWS, total))
        lseq, phy, store_ms = _copies(story, qoff, second_life=story.cut is not None)
        foreign = _foreign(plan, story, lseq)
        yield {
            "broker": _repeat(story.broker, qoff.size),
            "bid": np.zeros(qoff.size, np.int32),
            "ptopic": _repeat(_TOPIC, qoff.size),
            "qid": np.full(qoff.size, story.number, np.int32),
            "qoff": qoff,
            "omid": _omids(story.number, phy),
            "lane": pa.array(np.full(qoff.size, story.number), mask=foreign),
            "lseq": pa.array(lseq, mask=foreign),
            "rt": np.zeros(qoff.size, np.int32),
            "store_ms": store_ms,
        }


def _copies(story: QueueStory, qoff: Ints, *, second_life: bool) -> tuple[Ints, Ints, Ints]:
    """Message, physical offset and store time behind queue offsets."""
    lseq, phy = qoff.copy(), qoff * 256
    store_ms = WALL_MS + qoff * STEP_NS // MS
    again = qoff >= story.end
    if again.any():
        lseq[again] = story.resent[qoff[again] - story.end]
    if second_life and story.cut is not None:
        reused = qoff >= story.cut
        lseq[reused] += story.frontier - story.cut
        phy[reused] += 1 << 40
        store_ms[reused] += _boot_ms(story) - WALL_MS
    return lseq, phy, store_ms


def _boot_ms(story: QueueStory) -> int:
    return WALL_MS + (story.frontier + 20) * STEP_NS // MS


def _deliveries(plan: Plan, story: QueueStory, group: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Two owners one after the other; within ``jumble`` messages the order is shuffled."""
    second_end = story.end + story.resent.size
    for owner, (lo, hi, begin) in enumerate(
        ((0, story.frontier, 0), (story.start, second_end, story.frontier + 50))
    ):
        proc = _proc(plan, story, group, owner)
        for at in range(lo, hi, FILE_ROWS):
            qoff = np.arange(at, min(at + FILE_ROWS, hi))
            rng = np.random.default_rng([plan.seed, group, story.number, owner, at])
            slots = np.arange(qoff.size) // max(1, plan.jumble)
            place = np.lexsort((rng.random(qoff.size), slots))
            when = np.empty(qoff.size, np.int64)
            when[place] = np.arange(qoff.size)
            bt = (begin + (at - lo) + when) * STEP_NS
            lseq, phy, store_ms = _copies(story, qoff, second_life=bool(owner))
            first = (group * plan.queues + story.number) << 32 | owner << 31
            yield (
                proc,
                {
                    "did": (proc << 40) + first + qoff,
                    "call_id": qoff,
                    "grp": _repeat(f"g{group}", qoff.size),
                    "client_id": _repeat(f"c{proc}", qoff.size),
                    "inc": np.full(qoff.size, proc, np.int32),
                    "pqe": np.full(qoff.size, _pqe(story, owner), np.int32),
                    "broker": _repeat(story.broker, qoff.size),
                    "ptopic": _repeat(_TOPIC, qoff.size),
                    "qid": np.full(qoff.size, story.number, np.int32),
                    "qoff": qoff,
                    "phy": phy,
                    "omid": _omids(story.number, phy),
                    **_identity(plan, story, lseq),
                    "ltopic": _repeat(_TOPIC, qoff.size),
                    "rt": np.zeros(qoff.size, np.int32),
                    "born_ms": store_ms,
                    "store_ms": store_ms,
                    "crc": np.zeros(qoff.size, np.int64),
                    "bt": bt,
                    "et": bt + HANDLER_NS,
                    "status": _repeat("SUCCESS", qoff.size),
                    "applied": np.ones(qoff.size, bool),
                },
            )


def _proc(plan: Plan, story: QueueStory, group: int, owner: int) -> int:
    return 10 + group * 2 * plan.members + owner * plan.members + story.number % plan.members


def _pqe(story: QueueStory, owner: int) -> int:
    return 2 * story.number + owner


def _small_tables(plan: Plan, told: Sequence[QueueStory], writer: _Writer) -> None:
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for story in told:
        stop = (story.frontier + 10) * STEP_NS
        again = (story.frontier + 40) * STEP_NS
        for group in range(plan.groups):
            place = {
                "grp": f"g{group}",
                "broker": story.broker,
                "ptopic": _TOPIC,
                "qid": story.number,
            }
            for owner, (t, start, binc, end) in enumerate(
                ((0, 0, 1, stop), (again, story.start, 2, None))
            ):
                proc = _proc(plan, story, group, owner)
                rows.setdefault(("assign", proc), []).append(
                    {**place, "inc": proc, "pqe": _pqe(story, owner), "t": t, "start_off": start,
                     "src": "STORE", "src_bid": 0, "src_binc": binc, "client_id": f"c{proc}",
                     "end_t": end, "end_reason": "SHUTDOWN" if end else None}
                )  # fmt: skip
            proc = _proc(plan, story, group, 0)
            for t, off, bid in ((stop - 3, story.told_master, 0), (stop - 2, story.told_slave, 1)):
                rows.setdefault(("commit", proc), []).append(
                    {**place, "inc": proc, "off": off, "kind": "TIMER", "bid": bid, "binc": 1,
                     "t": t, "sent": True, "client_id": f"c{proc}"}
                )  # fmt: skip
        if story.cut is not None:
            for t, boot, highest in (
                (stop, WALL_MS - 1000, story.frontier),
                (stop + 1, _boot_ms(story), story.cut),
            ):
                rows.setdefault(("broker_queue_sample", 3), []).append(
                    {"addr": f"{story.broker}:10911", "broker": story.broker, "bid": 0,
                     "binc": boot, "ptopic": _TOPIC, "qid": story.number, "min": 0,
                     "max": highest, "t": t}
                )  # fmt: skip
    for (table, proc), found in rows.items():
        writer.add(table, proc, {name: [row.get(name) for row in found] for name in found[0]})


def _run_document(plan: Plan) -> dict[str, Any]:
    return {
        "schema": "failback.run/1", "run": plan.run, "experiment": "bench", "scenario": "bench",
        "arm": plan.dup_shape, "repetition": 0, "seed": str(plan.seed), "rule_set": "4.9.8",
        "engine": "failback", "time_scale": 1.0, "log_mode": "full",
        "zero": {"wall_ns": ZERO_WALL_NS, "mono_ns": 0}, "warmup_end_ns": None,
        "topics": [{"name": _TOPIC, "queues": plan.queues, "ordered": False}],
        "groups": [
            {"name": f"g{group}", "topic": _TOPIC, "members": plan.members, "model": "push",
             "messageModel": "CLUSTERING"}
            for group in range(plan.groups)
        ],
    }  # fmt: skip


def _closed_document(writer: _Writer, last: int) -> dict[str, Any]:
    return {
        "schema": "failback.closed/1", "drained": True, "scan": True,
        "procs": {str(proc): seq for proc, seq in sorted(writer.seq.items())},
        "exits": {}, "gaps": [], "clock": {"steps": 0, "hosts": []},
        "phases": {"end_ns": last},
    }  # fmt: skip


# --- the race ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lap:
    """One engine over one run."""

    engine: str
    wall_seconds: float
    cpu_seconds: float
    right: bool


def run_local(folder: Path) -> Mapping[str, Any]:
    """Stage A and B with the local engine: delivered, dup and causes per group."""
    from failback.analytics.engines.local import LocalEngine

    return _answers(folder, lambda lake: LocalEngine(lake))


def run_spark(folder: Path) -> Mapping[str, Any]:
    from failback.analytics.engines import spark

    with spark.session() as session:
        return _answers(folder, lambda lake: spark.SparkEngine(lake, session))


def _answers(folder: Path, make: Callable[[Any], Any]) -> Mapping[str, Any]:
    from failback.analytics.analysis import analyse
    from failback.analytics.lake import open_lake
    from failback.analytics.run_folder import read_run_folder

    run = read_run_folder(folder)
    lake = open_lake(run.lake, run.run_id)
    analysis = analyse(run, lake, make(lake))
    delivered = analysis.stage_a.values["delivered"].to_pylist()
    found: dict[str, Any] = {
        row["grp"]: {"delivered": row["value"], "dup": 0, "causes": Counter()} for row in delivered
    }
    dups = analysis.repeats.filter(pc.equal(analysis.repeats.column("cls"), "DUP"))
    columns = (dups.column(name).to_pylist() for name in ("grp", "cause"))
    for grp, cause in zip(*columns, strict=True):
        found[grp]["dup"] += 1
        if cause is not None:
            found[grp]["causes"][cause] += 1
    return {g: {**row, "causes": dict(sorted(row["causes"].items()))} for g, row in found.items()}


def run_local_a(folder: Path) -> Mapping[str, Any]:
    """The intervals of stage A: how often each offset was handled, reading included."""
    from failback.analytics import partials
    from failback.analytics.engines.local import join_depths
    from failback.analytics.lake import open_lake
    from failback.analytics.run_folder import read_run_folder

    run = read_run_folder(folder)
    lake = open_lake(run.lake, run.run_id, ("deliver",))
    found = []
    for chunk in lake.chunks("deliver", _COPY_COLUMNS):
        rows = partials.Rows(chunk)
        names = {"grp": "grp", "broker": "broker", "topic": "ptopic"}
        key = partials.Key(**{name: rows.codes(column) for name, column in names.items()})
        out = partials.Partials()
        everything = np.ones(rows.count, bool)
        out.intervals("copy", key.and_(n1=rows["qid"]), rows["qoff"], everything)
        found.append(out.table())
    copies = join_depths(found)[0]["copy"]
    span = pc.subtract(copies.column("hi"), copies.column("lo"))
    again = pc.multiply(pc.subtract(copies.column("depth"), 1), span)
    dups: Counter[str] = Counter()
    for grp, count in zip(copies.column("grp").to_pylist(), again.to_pylist(), strict=True):
        dups[grp] += count
    return {grp: {"repeated_offsets": count} for grp, count in dups.items()}


def run_duckdb(folder: Path) -> Mapping[str, Any]:
    """The opponent: the same count with one GROUP BY over five keys."""
    import duckdb

    files = f"{folder}/lake/table=deliver/run=*/*.parquet"
    with duckdb.connect(":memory:") as db:
        rows = db.execute(
            f"""SELECT grp, sum(n - 1) AS repeated
                FROM (SELECT {", ".join(_COPY_COLUMNS)}, count(*) AS n
                      FROM read_parquet('{files}', hive_partitioning = false) GROUP BY ALL)
                GROUP BY grp"""
        ).fetchall()
    return {grp: {"repeated_offsets": int(repeated)} for grp, repeated in rows}


_COPY_COLUMNS: Final = ("grp", "broker", "ptopic", "qid", "qoff")


ENGINES: Final[dict[str, Callable[[Path], Mapping[str, Any]]]] = {
    "local": run_local,
    "local-a": run_local_a,
    "spark": run_spark,
    "duckdb": run_duckdb,
}


def lap(engine: str, folder: Path, truth: Mapping[str, Any]) -> Lap:
    """Run one engine and compare its answer with the truth."""
    wall, cpu = time.monotonic(), _cpu_seconds()
    found = ENGINES[engine](folder)
    return Lap(engine, time.monotonic() - wall, _cpu_seconds() - cpu, _is_right(found, truth))


def _is_right(found: Mapping[str, Any], truth: Mapping[str, Any]) -> bool:
    return set(found) == set(truth["groups"]) and all(
        all(truth["groups"][group][name] == value for name, value in row.items())
        for group, row in found.items()
    )


def _cpu_seconds() -> float:
    """CPU time of this process and of all its descendants, living ones included."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) + time.process_time()
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(int(value) for value in fields[11:15]) / ticks
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return total + sum(used[pid] for pid in mine - {os.getpid()})


def race(folder: Path, engines: Sequence[str], rounds: int) -> dict[str, Any]:
    """Alternate the engines; the least CPU time of each counts."""
    truth = json.loads((folder / "truth.json").read_text())
    laps = [lap(engine, folder, truth) for _ in range(rounds) for engine in engines]
    best = {e: min(each.cpu_seconds for each in laps if each.engine == e) for e in engines}
    wall = {e: min(each.wall_seconds for each in laps if each.engine == e) for e in engines}
    ratios = {
        f"{a}/duckdb": round(best[a] / best["duckdb"], 3)
        for a in engines
        if a != "duckdb" and "duckdb" in engines
    }
    return {
        "run": truth["run"],
        "cpu_seconds": {engine: round(value, 2) for engine, value in best.items()},
        "wall_seconds": {engine: round(value, 2) for engine, value in wall.items()},
        "ratios": ratios,
        "wrong": sorted({each.engine for each in laps if not each.right}),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m failback.analytics.jobs.bench")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("generate", help="write a run with known answers")
    defaults = Plan()
    for name in Plan.__slots__:
        value = getattr(defaults, name)
        make.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    make.add_argument("--out", type=Path, required=True)
    again = commands.add_parser("run", help="race the engines on a generated run")
    again.add_argument("--run", type=Path, required=True)
    again.add_argument("--engines", default="local,local-a,duckdb")
    again.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    if options.command == "generate":
        plan = Plan(**{name: getattr(options, name) for name in Plan.__slots__})
        print(json.dumps(generate(plan, options.out)["groups"]["g0"]["causes"]))
        return 0
    found = race(options.run, options.engines.split(","), options.rounds)
    print(json.dumps(found, indent=1))
    missed = [name for name, bar in BARS.items() if found["ratios"].get(name, 0) > bar]
    for name in missed:
        print(
            f"missed: {name} is {found['ratios'][name]}, the bar is {BARS[name]}", file=sys.stderr
        )
    return 1 if found["wrong"] or missed else 0


if __name__ == "__main__":
    sys.exit(main())
