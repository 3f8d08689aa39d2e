"""Columns of the large tables of a generated run, a block of rows at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.benchmarks.analytics.synthetic.plan import Plan
from tests.benchmarks.analytics.synthetic.story import (
    BLOCK,
    STORED_STRANGE,
    STRANGE,
    Ints,
    Story,
    blocks,
    foreign,
)
from tests.benchmarks.analytics.synthetic.writer import ZERO_WALL_NS, repeat

MS: Final = 1_000_000
WALL_MS: Final = ZERO_WALL_NS // MS
STEP_NS: Final = 10 * MS
"""From one message of a queue to the next."""
HANDLER_NS: Final = 2 * MS
PAUSE_STEPS: Final = 50
"""Between the last message of the first owner and the first of the second."""
REMOTE_OFFSET_NS: Final = 7_000 * MS
"""What the other host's clock lacks."""
TOPIC: Final = "orders"
SENDER: Final = 1
SCANNER: Final = 2
SAMPLER: Final = 3
_FIRST_OWNER: Final = 10
_RES: Final = {
    "SEND_TIMEOUT_DUP": ("TIMEOUT", "OK"),
    "APP_RESEND": ("OK", "OK"),
    "NOT_STORE_OK_RESEND": ("OK_DEGRADED", "OK"),
    "BROKER_COPY": ("OK", None),
}
"""Results of the first attempt and, if there was one, of the second."""


def owner_proc(plan: Plan, story: Story, group: int, owner: int) -> int:
    """Process number of a queue's first or second owner."""
    first = _FIRST_OWNER + group * 2 * plan.members
    return first + owner * plan.members + story.number % plan.members


def remote_procs(plan: Plan) -> set[int]:
    """Processes on the other host: the second owners, if clocks are to differ."""
    if not plan.clock_error_ms:
        return set()
    return {
        _FIRST_OWNER + group * 2 * plan.members + plan.members + member
        for group in range(plan.groups)
        for member in range(plan.members)
    }


def pqe_of(story: Story, owner: int) -> int:
    return 2 * story.number + owner


def boot_ms(story: Story) -> int:
    """When the master came back with a shorter log."""
    return WALL_MS + (story.frontier + 20) * STEP_NS // MS


def sends(plan: Plan, story: Story) -> Iterator[dict[str, Any]]:
    """Send attempts, block by block, and at last those of the four strange messages."""
    first, second = _RES[story.resend]
    for lseq in blocks(story.messages):
        twice = story.was_resent(lseq)
        att = np.ones(lseq.size, np.int32)
        res = pa.array(np.where(twice, first, "OK"))
        if second is not None and twice.any():
            again = lseq[twice]
            lseq = np.concatenate((lseq, again))
            att = np.concatenate((att, np.full(again.size, 2, np.int32)))
            res = pa.concat_arrays([res, pa.array([second] * again.size)])
        other_key = (att == 2) & (story.resend == "APP_RESEND")
        yield _send(plan, story, lseq, att, res, ukeys(story.number, lseq, other_key))
    strange = story.messages + np.arange(len(STRANGE))
    res = pa.array(["TIMEOUT" if name.startswith("UNACKED") else "OK" for name in STRANGE])
    one = np.ones(strange.size, np.int32)
    yield _send(plan, story, strange, one, res, ukeys(story.number, strange))


def _send(
    plan: Plan, story: Story, lseq: Ints, att: Any, res: pa.Array, ukey: pa.Array
) -> dict[str, Any]:
    t0 = lseq * STEP_NS
    return {
        **_identity(plan, story, lseq),
        "ukey": ukey,
        "att": att,
        "topic": repeat(TOPIC, lseq.size),
        "broker": repeat(story.broker, lseq.size),
        "qid": np.full(lseq.size, story.number, np.int32),
        "bid": np.zeros(lseq.size, np.int32),
        "due": t0,
        "t0": t0,
        "t1": t0 + MS,
        "res": res,
    }


def scanned(plan: Plan, story: Story) -> Iterator[dict[str, Any]]:
    """Copies that are stored at the end, the strange ones behind all others."""
    for qoff in blocks(story.last):
        lseq, phy, store_ms = copies(story, qoff, second_life=story.cut is not None)
        yield _scan(plan, story, qoff, lseq, phy, store_ms)
    lseq = story.messages + np.array(STORED_STRANGE, np.int64)
    qoff = story.last + np.arange(lseq.size)
    store_ms = np.full(lseq.size, WALL_MS + story.last * STEP_NS // MS)
    yield _scan(plan, story, qoff, lseq, (1 << 41) + qoff * 256, store_ms)


def _scan(
    plan: Plan, story: Story, qoff: Ints, lseq: Ints, phy: Ints, store_ms: Ints
) -> dict[str, Any]:
    return {
        "broker": repeat(story.broker, qoff.size),
        "bid": np.zeros(qoff.size, np.int32),
        "ptopic": repeat(TOPIC, qoff.size),
        "qid": np.full(qoff.size, story.number, np.int32),
        "qoff": qoff,
        "omid": omids(story.number, phy),
        **_identity(plan, story, lseq),
        "rt": np.zeros(qoff.size, np.int32),
        "store_ms": store_ms,
    }


def deliveries(plan: Plan, story: Story, group: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """(process, rows): two owners one after the other, shuffled within ``jumble`` neighbours."""
    spans = ((0, story.frontier, 0), (story.start, story.last, story.frontier + PAUSE_STEPS))
    remote = remote_procs(plan)
    for owner, (lo, hi, begin) in enumerate(spans):
        proc = owner_proc(plan, story, group, owner)
        behind = REMOTE_OFFSET_NS if proc in remote else 0
        for at in range(lo, hi, BLOCK):
            qoff = np.arange(at, min(at + BLOCK, hi))
            rng = np.random.default_rng([plan.seed, group, story.number, owner, at])
            bt = (begin + (at - lo) + _jumbled(rng, qoff.size, plan.jumble)) * STEP_NS - behind
            yield proc, _delivery(plan, story, group, owner, proc, qoff, bt)


def _jumbled(rng: np.random.Generator, count: int, jumble: int) -> Ints:
    """Places of ``count`` deliveries in time, each within ``jumble`` of its own."""
    whole = count - count % jumble
    places = np.arange(count)
    order = np.argsort(rng.random((whole // jumble, jumble)), axis=1)
    places[:whole] = (order + np.arange(0, whole, jumble)[:, None]).ravel()
    places[whole:] = whole + rng.permutation(count - whole)
    return places


def _delivery(
    plan: Plan, story: Story, group: int, owner: int, proc: int, qoff: Ints, bt: Ints
) -> dict[str, Any]:
    lseq, phy, store_ms = copies(story, qoff, second_life=bool(owner))
    first = (group * plan.queues + story.number) << 32 | owner << 31
    return {
        "did": (proc << 40) + first + qoff,
        "call_id": qoff,
        "grp": repeat(f"g{group}", qoff.size),
        "client_id": repeat(f"c{proc}", qoff.size),
        "inc": np.full(qoff.size, proc, np.int32),
        "pqe": np.full(qoff.size, pqe_of(story, owner), np.int32),
        "broker": repeat(story.broker, qoff.size),
        "ptopic": repeat(TOPIC, qoff.size),
        "qid": np.full(qoff.size, story.number, np.int32),
        "qoff": qoff,
        "phy": phy,
        "omid": omids(story.number, phy),
        **_identity(plan, story, lseq),
        "ukey": ukeys(story.number, lseq),
        "ltopic": repeat(TOPIC, qoff.size),
        "rt": np.zeros(qoff.size, np.int32),
        "born_ms": store_ms,
        "store_ms": store_ms,
        "crc": np.zeros(qoff.size, np.int64),
        "bt": bt,
        "et": bt + HANDLER_NS,
        "status": repeat("SUCCESS", qoff.size),
        "applied": np.ones(qoff.size, bool),
    }


def copies(story: Story, qoff: Ints, *, second_life: bool) -> tuple[Ints, Ints, Ints]:
    """Message, physical offset and store time behind queue offsets."""
    lseq, phy = qoff.copy(), qoff * 256
    store_ms = WALL_MS + qoff * STEP_NS // MS
    again = qoff >= story.end
    if again.any():
        lseq[again] = story.second_copies(qoff[again] - story.end)
    if second_life and story.cut is not None:
        reused = qoff >= story.cut
        lseq[reused] += story.frontier - story.cut
        phy[reused] += 1 << 40
        store_ms[reused] += boot_ms(story) - WALL_MS
    return lseq, phy, store_ms


def _identity(plan: Plan, story: Story, lseq: Ints) -> dict[str, Any]:
    unknown = foreign(plan, story, lseq)
    mask = unknown if unknown.any() else None
    return {
        "lane": pa.array(np.full(lseq.size, story.number), mask=mask),
        "lseq": pa.array(lseq, mask=mask),
    }


def ukeys(number: int, lseq: Ints, other: Any = None) -> pa.Array:
    """UNIQ_KEYs as long as RocketMQ's; ``other`` names rows that were sent with another one."""
    text = pc.utf8_lpad(pa.array(lseq).cast(pa.utf8()), width=24, padding="0")
    made = pc.binary_join_element_wise(f"7F00{number:04d}", text, "")
    if other is None or not other.any():
        return made
    return pc.if_else(pa.array(other), pc.binary_join_element_wise(made, "x", ""), made)


def omids(number: int, phy: Ints) -> pa.Array:
    """Offset message ids: address and physical offset."""
    raw = np.zeros((phy.size, 16), np.uint8)
    raw[:, 3] = number % 256
    raw[:, 8:] = phy.astype(">i8").view(np.uint8).reshape(-1, 8)
    offsets = pa.array(np.arange(0, 16 * phy.size + 1, 16, dtype=np.int32))
    buffers = [None, offsets.buffers()[1], pa.py_buffer(raw.tobytes())]
    return pa.Array.from_buffers(pa.binary(), phy.size, buffers)
