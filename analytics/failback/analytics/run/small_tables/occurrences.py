"""What members saw of their groups, changes of routes, and resets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.lake.row_groups import RowGroup
from failback.analytics.run.align import Clocks
from failback.analytics.run.history import RouteChange
from failback.analytics.run.small_tables.columns import Columns, slots, telling
from failback.analytics.run.small_tables.sample_instants import SampleInstants
from failback.client.consumelog.schema import schema_of

MEMBER_COLUMNS: Final = ("host", "grp", "inc", "t", "members")
MEMBERS: Final = schema_of("grp s, inc l, t l, seen l")
ROUTE_COLUMNS: Final = ("host", "proc_no", "mono_ns", "before", "after", "trigger")
ROUTES: Final = schema_of("second l, entry s, proc_no l")
MAX_ROUTE_SECONDS: Final = 200
"""Seconds in which a route changed; figures show no more."""
WITNESS: Final = "WITNESS:"
"""How triggers of route rows begin that a watcher of name servers wrote."""
RESET_KIND: Final = "ADMIN_RESET"
_NS: Final = 1_000_000_000
Seen = Mapping[tuple[str, int], Sequence[tuple[int, int]]]
"""Per (group, process) when it saw how many members, ascending in time."""


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """Keeps how many members a process saw at the last rebalances before it was assigned queues."""

    schema: ClassVar[pa.Schema] = MEMBERS
    clocks: Clocks
    asked: SampleInstants

    def __call__(self, chunk: pa.Table) -> pa.Table:
        seen = pc.fill_null(pc.list_value_length(chunk.column("members")), 0)
        c = Columns(chunk.append_column("seen", seen).filter(pc.greater(seen, 0)))
        return self._kept(c, c.ints("t") + c.shifts(self.clocks))

    def again(self, kept: pa.Table) -> pa.Table:
        c = Columns(kept)
        return self._kept(c, c.ints("t"))

    def _kept(self, c: Columns, t: np.ndarray) -> pa.Table:
        of, at = c.key("grp", "inc")
        keys = c.rows(at, MEMBERS).select(["grp", "inc"]).to_pylist()
        slot = slots(of, [self.asked.at_member(key["grp"], key["inc"]) for key in keys], t)
        nothing = np.zeros(c.count, np.int64)
        return c.rows(telling(of, slot, nothing, t, c.ints("seen"), falls=False), MEMBERS, t=t)


def members_of(kept: pa.Table) -> Seen:
    """The rebalances that are kept, as members saw them."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row in kept.to_pylist():
        found[row["grp"], row["inc"]].append((row["t"], row["seen"]))
    return {key: sorted(seen) for key, seen in found.items()}


@dataclass(frozen=True, slots=True)
class RouteChanges:
    """Keeps which brokers came and went per second, and which clients took a new route then.

    The first :data:`MAX_ROUTE_SECONDS` seconds that have any. The first route that was seen is no
    change.
    """

    schema: ClassVar[pa.Schema] = ROUTES
    clocks: Clocks

    def __call__(self, chunk: pa.Table) -> pa.Table:
        chunk = chunk.filter(chunk.column("before").is_valid())
        c = Columns(chunk)
        second = (c.ints("mono_ns") + c.shifts(self.clocks)) // _NS
        triggers, names = c.named("trigger")
        shown = np.array([(name or "").startswith(WITNESS) for name in names], bool)[triggers]
        taken = pa.table(
            {"second": second[~shown], "proc_no": c.ints("proc_no")[~shown]}
        ).append_column("entry", pa.repeat("", int((~shown).sum())))
        found = [taken.select(ROUTES.names).cast(ROUTES)]
        change, at = c.key("before", "after")
        texts = chunk.take(pa.array(at)).select(["before", "after"]).to_pylist()
        for number, text in enumerate(texts):
            when = np.unique(second[shown & (change == number)])
            for entry in _differences(text["before"], text["after"]) if when.size else ():
                columns = [when, pa.repeat(entry, when.size), np.full(when.size, -1)]
                found.append(pa.table(columns, names=ROUTES.names).cast(ROUTES))
        return self.again(pa.concat_tables(found))

    def again(self, kept: pa.Table) -> pa.Table:
        seconds = np.unique(kept.column("second").to_numpy())[:MAX_ROUTE_SECONDS]
        early = kept.filter(pc.is_in(kept.column("second"), pa.array(seconds)))
        return early.group_by(ROUTES.names).aggregate([]).select(ROUTES.names)


def _differences(before: str, after: str | None) -> Iterator[str]:
    """Which brokers came to a route and which went, as ``+broker-a/0`` and ``-broker-a/0``."""
    old, new = (set((text or "").split(",")) - {""} for text in (before, after))
    for sign, entries in (("-", old - new), ("+", new - old)):
        for entry in entries:
            yield f"{sign}{entry.partition('=')[0]}"


def routes_of(kept: pa.Table) -> list[RouteChange]:
    """The changes, in the order of time."""
    rows = kept.sort_by([(name, "ascending") for name in ROUTES.names]).to_pylist()
    return [RouteChange(row["second"], row["entry"] or None, row["proc_no"]) for row in rows]


def may_hold_resets(group: RowGroup) -> bool:
    """Whether a row group of ``commit`` may hold a reset, as far as its statistics tell."""
    span = group.span("kind")
    if span is None or not all(isinstance(end, str) for end in span):
        return True
    return bool(span[0] <= RESET_KIND <= span[1])
