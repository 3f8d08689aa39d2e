"""What brokers held: offsets of groups and ends of queues, around the instants that matter."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.run.align import Clocks
from failback.analytics.run.history import GroupQueue, OffsetSample, Polls, Samples, row_id
from failback.analytics.run.small_tables.columns import Columns, changes, slots, telling
from failback.analytics.run.small_tables.sample_instants import SampleInstants
from failback.client.consumelog.schema import schema_of

OFFSETS: Final = schema_of(
    """addr s, broker s, bid l, binc l, source s, grp s, ptopic s, qid l, off l, t l, proc_no l,
    seq l"""
)
OFFSET_COLUMNS: Final = ("host", *OFFSETS.names)
QUEUES: Final = schema_of("addr s, broker s, bid l, binc l, ptopic s, qid l, max l, t l")
QUEUE_COLUMNS: Final = ("host", *QUEUES.names)
LOOK: Final = -2
"""``qid`` of a row that says that a table was looked into, and nothing else."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of samples, whose times are put on one clock."""

    clocks: Clocks
    asked: SampleInstants

    def placed(self, chunk: pa.Table) -> tuple[Columns, np.ndarray]:
        """The rows of a chunk, and their times."""
        c = Columns(chunk)
        return c, c.ints("t") + c.shifts(self.clocks)


@dataclass(frozen=True, slots=True)
class OffsetSamples(_Kept):
    """Keeps offsets at the ends of stretches, the highest ones, falls, and looks around instants.

    A stretch is of one copy of an offset, in one life of its process, between two instants.
    """

    schema: ClassVar[pa.Schema] = OFFSETS

    def __call__(self, chunk: pa.Table) -> pa.Table:
        c, t = self.placed(chunk)
        of, _ = c.key("addr", "source", "binc")
        looks = changes(of, t)  # the rows of one look into a table lie together
        marked = c.rows(looks, OFFSETS, t=t, qid=np.full(c.count, LOOK, np.int64))
        offsets = np.flatnonzero(c.ints("qid") >= 0)  # -1 only tells how many there were
        return pa.concat_tables([self._looks(marked), self._offsets(c, t, offsets)])

    def again(self, kept: pa.Table) -> pa.Table:
        look = pc.equal(kept.column("qid"), LOOK)
        offsets = Columns(kept.filter(pc.invert(look)))
        every = np.arange(offsets.count)
        return pa.concat_tables(
            [self._looks(kept.filter(look)), self._offsets(offsets, offsets.ints("t"), every)]
        )

    def _looks(self, looks: pa.Table) -> pa.Table:
        c = Columns(looks)
        addr, at = c.key("addr")
        names = c.array("addr").take(pa.array(at)).to_pylist()
        t, nothing = c.ints("t"), np.zeros(c.count, np.int64)
        slot = slots(addr, [self.asked.at_addr(name) for name in names], t)
        of, _ = c.key("addr", "source")
        kept = telling(of, slot, c.ints("binc"), t, nothing, falls=False)
        return c.rows(kept, OFFSETS)

    def _offsets(self, c: Columns, t: np.ndarray, rows: np.ndarray) -> pa.Table:
        queue, at = c.key("grp", "broker", "ptopic", "qid")
        of, _ = c.key("source", "grp", "broker", "ptopic", "qid", "bid", "addr")
        keys = c.rows(at, OFFSETS).select(GroupQueue._fields).to_pylist()
        slot = slots(queue, [self.asked.at_queue(GroupQueue(**key)) for key in keys], t)
        binc, off = c.ints("binc"), c.ints("off")
        chosen = telling(of[rows], slot[rows], binc[rows], t[rows], off[rows], falls=True)
        return c.rows(rows[chosen], OFFSETS, t=t)


@dataclass(frozen=True, slots=True)
class QueueSamples(_Kept):
    """Keeps ends of queues at the ends of stretches, and the furthest ones.

    A stretch is of one queue at one address, in one life of its process, between two instants.
    """

    schema: ClassVar[pa.Schema] = QUEUES

    def __call__(self, chunk: pa.Table) -> pa.Table:
        return self._kept(*self.placed(chunk))

    def again(self, kept: pa.Table) -> pa.Table:
        c = Columns(kept)
        return self._kept(c, c.ints("t"))

    def _kept(self, c: Columns, t: np.ndarray) -> pa.Table:
        broker, at = c.key("broker")
        names = c.array("broker").take(pa.array(at)).to_pylist()
        slot = slots(broker, [self.asked.at_broker(name) for name in names], t)
        of, _ = c.key("broker", "ptopic", "qid", "bid", "addr")
        kept = telling(of, slot, c.ints("binc"), t, c.ints("max"), falls=False)
        return c.rows(kept, QUEUES, t=t)


def samples_of(kept: pa.Table) -> Samples:
    """Offsets per (queue, source, broker id), ascending in time."""
    found: Samples = defaultdict(list)
    for row in kept.filter(pc.greater_equal(kept.column("qid"), 0)).to_pylist():
        key = GroupQueue(row["grp"], row["broker"], row["ptopic"], row["qid"])
        name = row_id("broker_offset_sample", row["proc_no"], row["seq"])
        sample = OffsetSample(row["t"], row["off"], row["binc"], row["addr"], name)
        found[key, row["source"], row["bid"]].append(sample)
    return {key: sorted(samples) for key, samples in sorted(found.items())}


def polls_of(kept: pa.Table) -> Polls:
    """Looks per (address, source), ascending in time: when, and which incarnation answered."""
    found: dict[tuple[str, str], set[tuple[int, int | None]]] = defaultdict(set)
    for row in kept.filter(pc.equal(kept.column("qid"), LOOK)).to_pylist():
        found[row["addr"], row["source"]].add((row["t"], row["binc"]))
    return {key: sorted(polls, key=lambda poll: poll[0]) for key, polls in found.items()}
