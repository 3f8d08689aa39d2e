"""The story of every queue, and what has to be found in it. Pure.

Offsets ``[0, frontier)`` are handled by one owner, whose time then ends; a second owner starts at
``start`` and goes on to the end. Between them lies one of these, by the number of the queue:

* ``restart``: commits told the master ``low`` and, while it was down, the slave ``high``; the
  returned master answers. ROLLBACK_RESTART below low, ROLLBACK_SLAVE_ONLY_PROGRESS below high,
  TAIL_SHUTDOWN above.
* ``overwritten``: the same master was told ``high`` and then ``start``. ROLLBACK_OVERWRITTEN below
  high, TAIL_REBALANCE above.
* ``stale``: the master was told ``high``, a slave answers. ROLLBACK_STALE_SLAVE below,
  TAIL_SHUTDOWN above.
* ``reset``: a tool moved the group back. OFFSET_RESET.
* ``overlap``: the first owner had not let go. OVERLAP.
* ``crash``, ``shutdown``, ``rebalance``: the uncommitted tail of each. TAIL_*.

With ``scattered`` duplicates one owner hands over cleanly and some messages were sent twice:
SEND_TIMEOUT_DUP, APP_RESEND, NOT_STORE_OK_RESEND or BROKER_COPY.

Besides, every queue has four messages that nobody was given: stored nowhere, skipped, and two whose
sender never learned the outcome, one of them stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.analytics.synthetic.plan import Plan

Ints = NDArray[np.int64]

BLOCK: Final = 1 << 20
"""Rows of one file, and messages of which one seeded choice is made."""
WINDOWS: Final = ("restart", "overwritten", "stale", "reset", "overlap", "crash")
TAILS: Final = ("shutdown", "rebalance", "crash", "overlap")
RESENDS: Final = ("SEND_TIMEOUT_DUP", "APP_RESEND", "NOT_STORE_OK_RESEND", "BROKER_COPY")
END_REASONS: Final = {
    "restart": "SHUTDOWN",
    "overwritten": "REBALANCE",
    "stale": "SHUTDOWN",
    "reset": "RESET",
    "overlap": "REBALANCE",
    "crash": "CRASH",
    "shutdown": "SHUTDOWN",
    "rebalance": "REBALANCE",
    "clean": "SHUTDOWN",
    "truncation": "SHUTDOWN",
}
STRANGE: Final = ("STORE_LOST", "SKIPPED", "UNACKED_PRESENT", "UNACKED_ABSENT")
STORED_STRANGE: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Story:
    """The offsets at which things happen in one queue; all groups live the same."""

    number: int
    kind: str
    frontier: int
    start: int
    low: int
    high: int
    end: int
    """First offset behind the messages that were sent once."""
    resent: int
    """Messages of which a second copy lies behind the end."""
    cut: int | None
    """Where the master's log was cut; what lies behind it are other messages."""
    seed: int

    @property
    def broker(self) -> str:
        return f"broker-{self.number // 8}"

    @property
    def resend(self) -> str:
        """Why messages have a second copy."""
        return RESENDS[self.number % len(RESENDS)]

    @property
    def last(self) -> int:
        """End of the offsets that are delivered in the queue's last life."""
        return self.end + self.resent

    @property
    def messages(self) -> int:
        """Messages that are delivered at least once."""
        return self.end + (0 if self.cut is None else self.frontier - self.cut)

    @property
    def delivered(self) -> int:
        return self.frontier + self.last - self.start

    def windows(self) -> list[tuple[int, int, str]]:
        """What the second owner was given again, by cause."""
        parts = {
            "restart": [(self.start, self.low, "ROLLBACK_RESTART"),
                        (self.low, self.high, "ROLLBACK_SLAVE_ONLY_PROGRESS"),
                        (self.high, self.frontier, "TAIL_SHUTDOWN")],
            "overwritten": [(self.start, self.high, "ROLLBACK_OVERWRITTEN"),
                            (self.high, self.frontier, "TAIL_REBALANCE")],
            "stale": [(self.start, self.high, "ROLLBACK_STALE_SLAVE"),
                      (self.high, self.frontier, "TAIL_SHUTDOWN")],
            "reset": [(self.start, self.frontier, "OFFSET_RESET")],
            "overlap": [(self.start, self.frontier, "OVERLAP")],
            "truncation": [],
        }  # fmt: skip
        tail = [(self.start, self.frontier, f"TAIL_{END_REASONS[self.kind]}")]
        return [part for part in parts.get(self.kind, tail) if part[0] < part[1]]

    def resent_in(self, block: int) -> Ints:
        """The messages of a block that were sent twice, ascending."""
        return _resent_in(self.seed, self.number, self.end, self.resent, block)

    def second_copies(self, index: Ints) -> Ints:
        """Message behind the index-th second copy: block by block, as they were chosen."""
        found = np.empty(index.size, np.int64)
        before = 0
        for block in range(-(-self.end // BLOCK)):
            count = _resent_of_block(self.end, self.resent, block)
            here = (index >= before) & (index < before + count)
            if here.any():
                found[here] = self.resent_in(block)[index[here] - before]
            before += count
        return found

    def was_resent(self, lseq: Ints) -> NDArray[np.bool_]:
        """Which messages of one block were sent twice."""
        if not self.resent or not lseq.size:
            return np.zeros(lseq.size, bool)
        return np.isin(lseq, self.resent_in(int(lseq[0]) // BLOCK))


def _resent_of_block(end: int, resent: int, block: int) -> int:
    """Second copies of a block: in proportion, and exactly ``resent`` over all blocks."""
    lo, hi = block * BLOCK, min(end, (block + 1) * BLOCK)
    return resent * hi // end - resent * lo // end


@lru_cache(maxsize=8)
def _resent_in(seed: int, number: int, end: int, resent: int, block: int) -> Ints:
    lo, hi = block * BLOCK, min(end, (block + 1) * BLOCK)
    rng = np.random.default_rng([seed, number, block])
    count = _resent_of_block(end, resent, block)
    chosen: Ints = np.sort(rng.choice(hi - lo, count, replace=False)) + lo
    return chosen


def stories(plan: Plan) -> list[Story]:
    """The story of each queue."""
    weights = np.ones(plan.queues)
    if plan.zipf_exponent is not None:
        weights = 1 / np.arange(1, plan.queues + 1) ** plan.zipf_exponent
    per_group = plan.rows // plan.groups
    counts = np.maximum(10, (per_group * weights / weights.sum()).astype(np.int64))
    return [_story(plan, number, count) for number, count in enumerate(counts.tolist())]


def _story(plan: Plan, number: int, count: int) -> Story:
    dups = int(count * plan.dup_share)
    messages = count - dups
    frontier = messages * 2 // 3
    start, resent, cut = frontier, 0, None
    if number < plan.truncations:
        lost = frontier // 10 + 1
        start = cut = frontier - lost
        kind, messages = "truncation", messages - lost
    elif plan.dup_shape == "scattered":
        kind, resent = "clean", dups
    else:
        kinds = TAILS if plan.dup_shape == "tail" else WINDOWS
        kind, start = kinds[number % len(kinds)], max(0, frontier - dups)
    width = frontier - start
    return Story(
        number=number,
        kind=kind,
        frontier=frontier,
        start=start,
        low=start + width // 3,
        high=start + width * 2 // 3,
        end=messages,
        resent=resent,
        cut=cut,
        seed=plan.seed,
    )


def foreign(plan: Plan, story: Story, lseq: Ints) -> NDArray[np.bool_]:
    """A seeded choice of messages without LAB_ID, the same wherever the message turns up."""
    if not plan.foreign_share:
        return np.zeros(lseq.size, bool)
    mixed = (lseq * 0x9E3779B1 + story.number * 0x85EBCA77 + plan.seed) & 0xFFFFFFFF
    named: NDArray[np.bool_] = mixed < plan.foreign_share * (1 << 32)
    return named & (lseq < story.messages)  # the strange ones are told by their LAB_ID


def blocks(total: int) -> Iterator[Ints]:
    """``[0, total)`` in blocks."""
    for lo in range(0, total, BLOCK):
        yield np.arange(lo, min(lo + BLOCK, total))


def truth_of(plan: Plan, told: list[Story]) -> dict[str, Any]:
    """Per group and queue what every engine has to find."""
    queues = {str(story.number): _truth(plan, story) for story in told}
    causes: dict[str, int] = {}
    fates: dict[str, int] = {}
    for queue in queues.values():
        for total, part in ((causes, queue["causes"]), (fates, queue["fates"])):
            for name, count in part.items():
                total[name] = total.get(name, 0) + count
    group = {
        "delivered": sum(story.delivered for story in told),
        "dup": sum(queue["dup"] for queue in queues.values()),
        "repeated_offsets": sum(max(0, min(s.frontier, s.last) - s.start) for s in told),
        "causes": dict(sorted(causes.items())),
        "fates": dict(sorted(fates.items())),
        "queues": queues,
    }
    return {"run": plan.run, "groups": {f"g{number}": group for number in range(plan.groups)}}


def _truth(plan: Plan, story: Story) -> dict[str, Any]:
    windows = story.windows()
    causes: dict[str, int] = {}
    for lo, hi, cause in windows:
        causes[cause] = causes.get(cause, 0) + hi - lo
    known = 0
    named = 0
    for lseq in blocks(story.messages):
        named += lseq.size - int(foreign(plan, story, lseq).sum())
    for block in range(-(-story.end // BLOCK) if story.resent else 0):
        chosen = story.resent_in(block)
        # Sends of foreign messages are not known, so nothing can be said about their copies.
        known += chosen.size - int(foreign(plan, story, chosen).sum())
    if known:
        causes[story.resend] = causes.get(story.resend, 0) + known
    return {
        "dup": sum(hi - lo for lo, hi, _ in windows) + story.resent,
        "repeated_offsets": max(0, min(story.frontier, story.last) - story.start),
        "causes": dict(sorted(causes.items())),
        "windows": [{"lo": lo, "hi": hi, "cause": cause} for lo, hi, cause in windows],
        "epochs": 1 if story.cut is None else 2,
        "cut": story.cut,
        "fates": {"OK": named, **dict.fromkeys(STRANGE, 1)},
    }
