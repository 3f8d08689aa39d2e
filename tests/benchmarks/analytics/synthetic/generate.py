"""Writes a generated run: documents, small tables, and the large ones block by block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.analytics.synthetic.plan import Plan
from tests.benchmarks.analytics.synthetic.rows import (
    MS,
    PAUSE_STEPS,
    REMOTE_OFFSET_NS,
    SAMPLER,
    SCANNER,
    SENDER,
    STEP_NS,
    TOPIC,
    WALL_MS,
    boot_ms,
    deliveries,
    owner_proc,
    pqe_of,
    remote_procs,
    scanned,
    sends,
)
from tests.benchmarks.analytics.synthetic.story import END_REASONS, Story, stories, truth_of
from tests.benchmarks.analytics.synthetic.writer import ZERO_WALL_NS, Writer

OTHER_HOST: Final = "h2"
STOPS: Final = 10
"""Steps after its last message until an owner gives its queue up."""
TAKES: Final = PAUSE_STEPS - 10
"""Steps after the first owner's last message until the second has the queue."""
FIRST, RETURNED, SLAVE = (0, 1), (0, 2), (1, 1)
"""(broker id, incarnation)."""

SmallRow = tuple[str, int, dict[str, Any]]


def generate(plan: Plan, out: Path) -> dict[str, Any]:
    """Write a closed run folder and return its truth (also in ``truth.json``).

    Args:
        plan: What to write.
        out: The run folder; made if it is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    told = stories(plan)
    writer = Writer(out / "lake", plan.run, dict.fromkeys(remote_procs(plan), OTHER_HOST))
    for story in told:
        for rows in sends(plan, story):
            writer.add("produce", SENDER, rows)
        for rows in scanned(plan, story):
            writer.add("scan", SCANNER, rows)
        for group in range(plan.groups):
            for proc, rows in deliveries(plan, story, group):
                writer.add("deliver", proc, rows)
    _write_small(plan, told, writer)
    writer.close()
    truth = truth_of(plan, told)
    last = max((story.delivered + 2 * PAUSE_STEPS) * STEP_NS for story in told)
    for name, document in (
        ("run.json", _run_document(plan)),
        ("closed.json", _closed_document(writer, last)),
        ("truth.json", truth),
    ):
        (out / name).write_text(json.dumps(document, indent=1) + "\n")
    return truth


def _write_small(plan: Plan, told: list[Story], writer: Writer) -> None:
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for table, proc, row in _small_rows(plan, told):
        rows.setdefault((table, proc), []).append(row)
    for (table, proc), found in rows.items():
        writer.add(table, proc, {name: [row.get(name) for row in found] for name in found[0]})


def _small_rows(plan: Plan, told: list[Story]) -> Iterator[SmallRow]:
    remote = remote_procs(plan)
    for story in told:
        for group in range(plan.groups):
            place = {
                "grp": f"g{group}",
                "broker": story.broker,
                "ptopic": TOPIC,
                "qid": story.number,
            }
            first, second = (owner_proc(plan, story, group, owner) for owner in (0, 1))
            yield from _ownership(story, place, first, second, second in remote)
            for age, (off, told_to) in zip((3, 2), _commits(story), strict=False):
                bid, binc = told_to
                yield "commit", first, {
                    **place, "inc": first, "off": off, "kind": "TIMER", "bid": bid, "binc": binc,
                    "t": _stop(story) - age, "sent": True, "client_id": f"c{first}",
                }  # fmt: skip
        if story.cut is not None:
            yield from _looks(story, story.cut)
    if remote:
        error = plan.clock_error_ms * MS
        for proc, offset, doubt in ((SAMPLER, 0, 0), (min(remote), REMOTE_OFFSET_NS, error)):
            yield "clock", proc, {
                "boot_id": f"boot-{proc}", "source": "CLOCK_MONOTONIC", "offset_ns": offset,
                "error_ns": doubt,
            }  # fmt: skip


def _stop(story: Story) -> int:
    return (story.frontier + STOPS) * STEP_NS


def _ownership(
    story: Story, place: dict[str, Any], first: int, second: int, remote: bool
) -> Iterator[SmallRow]:
    takes = (story.frontier + TAKES) * STEP_NS
    ends = takes + STEP_NS if story.kind == "overlap" else _stop(story)
    yield "assign", first, {
        **place, "inc": first, "pqe": pqe_of(story, 0), "t": 0, "start_off": 0, "src": "STORE",
        "src_bid": 0, "src_binc": 1, "client_id": f"c{first}", "end_t": ends,
        "end_reason": END_REASONS[story.kind],
    }  # fmt: skip
    bid, binc = _answers(story)
    yield "assign", second, {
        **place, "inc": second, "pqe": pqe_of(story, 1),
        "t": takes - (REMOTE_OFFSET_NS if remote else 0), "start_off": story.start,
        "src": "STORE", "src_bid": bid, "src_binc": binc, "client_id": f"c{second}",
        "end_t": None, "end_reason": None,
    }  # fmt: skip


def _answers(story: Story) -> tuple[int, int]:
    """Who gave the second owner its start."""
    if story.kind in ("restart", "truncation"):
        return RETURNED
    return SLAVE if story.kind == "stale" else FIRST


def _commits(story: Story) -> tuple[tuple[int, tuple[int, int]], ...]:
    """What the first owner told whom, oldest first."""
    return {
        "restart": ((story.low, FIRST), (story.high, SLAVE)),
        "overwritten": ((story.high, FIRST), (story.start, FIRST)),
        "stale": ((story.high, FIRST),),
        "reset": ((story.high, FIRST),),
        "truncation": ((story.frontier, FIRST), (story.frontier, SLAVE)),
    }.get(story.kind, ((story.start, FIRST),))


def _looks(story: Story, cut: int) -> Iterator[SmallRow]:
    """What the sampler saw of a queue before and after its log was cut."""
    for t, boot, highest in (
        (_stop(story), WALL_MS - 1000, story.frontier),
        (_stop(story) + 1, boot_ms(story), cut),
    ):
        yield "broker_queue_sample", SAMPLER, {
            "addr": f"{story.broker}:10911", "broker": story.broker, "bid": 0, "binc": boot,
            "ptopic": TOPIC, "qid": story.number, "min": 0, "max": highest, "t": t,
        }  # fmt: skip


def _run_document(plan: Plan) -> dict[str, Any]:
    return {
        "schema": "failback.run/1", "run": plan.run, "experiment": "bench", "scenario": "bench",
        "arm": plan.dup_shape, "repetition": 0, "seed": str(plan.seed), "rule_set": "4.9.8",
        "engine": "failback", "time_scale": 1.0, "log_mode": "full",
        "zero": {"wall_ns": ZERO_WALL_NS, "mono_ns": 0}, "warmup_end_ns": None,
        "topics": [{"name": TOPIC, "queues": plan.queues, "ordered": False}],
        "groups": [
            {"name": f"g{group}", "topic": TOPIC, "members": plan.members, "model": "push",
             "messageModel": "CLUSTERING"}
            for group in range(plan.groups)
        ],
    }  # fmt: skip


def _closed_document(writer: Writer, last: int) -> dict[str, Any]:
    return {
        "schema": "failback.closed/1", "drained": True, "scan": True,
        "procs": {str(proc): seq for proc, seq in sorted(writer.seq.items())},
        "exits": {}, "gaps": [], "clock": {"steps": 0, "hosts": []},
        "phases": {"end_ns": last},
    }  # fmt: skip
