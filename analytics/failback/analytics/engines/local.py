"""The local engine: pyarrow reads, numpy counts, one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics import partials, tables
from failback.analytics.classify import CauseInputs, classify
from failback.analytics.columns import Columns
from failback.analytics.engines.base import Forbidden, StageA
from failback.analytics.intervals import IntervalSet, sweep
from failback.analytics.lake import Lake
from failback.analytics.normalise import (
    Dropped,
    Ends,
    deliver_columns,
    normalise,
    read_ends,
)
from failback.analytics.partials import Context, Rows

_JOINED_BY: Final = {partials.SUM: "sum", partials.MAX: "max", partials.MIN: "min"}
_PRODUCED_COLUMNS: Final = ("lane", "lseq", "att", "ukey", "res")
_DOUBTFUL: Final = pa.array(sorted(partials.DOUBTFUL_RESULTS))


class LocalEngine:
    """Works through the lake in chunks of a million rows."""

    name = "local"

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ends: Ends | None = None

    @property
    def _late_ends(self) -> Ends:
        if self._ends is None:
            self._ends = read_ends(self._lake)
        return self._ends

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        found = []
        for chunk in self._lake.chunks("deliver", ("broker", "ptopic", "qid", "qoff", "store_ms")):
            renamed = chunk.rename_columns(["broker", "ptopic", "qid", "qoff", "when_ms"])
            found.append(partials.known_partials(renamed, "qoff", "ptopic", boots))
        columns = ("broker", "topic", "qid", "queue_offset", "wall_ns", "res")
        for chunk in self._lake.chunks("produce", columns):
            stored = chunk.filter(pc.starts_with(chunk.column("res").cast(pa.utf8()), "OK"))
            when = pc.divide(stored.column("wall_ns"), 1_000_000)
            stored = stored.append_column("when_ms", when)
            found.append(partials.known_partials(stored, "queue_offset", "topic", boots))
        return join_values(found).get("known", tables.VALUES.empty_table())

    def stage_a(self, context: Context) -> StageA:
        dropped = Dropped()
        deliver = (
            partials.deliver_partials(chunk, context) for chunk in self.deliveries(context, dropped)
        )
        found = [*deliver]
        passes: Iterable[tuple[str, Sequence[str], Callable[[pa.Table, Context], pa.Table]]] = (
            ("produce", partials.PRODUCE_COLUMNS, partials.produce_partials),
            ("pull", partials.PULL_COLUMNS, partials.pull_partials),
            ("commit", partials.COMMIT_COLUMNS, partials.commit_partials),
            ("scan", partials.SCAN_COLUMNS, partials.scan_partials),
        )
        for table, columns, function in passes:
            found += [function(chunk, context) for chunk in self._lake.chunks(table, columns)]
        depths, runs = join_depths(found)
        return StageA(depths, join_values(found), dropped, self._orphan_ends(), runs)

    def deliveries(
        self, context: Context, dropped: Dropped, *, full: bool = False
    ) -> Iterable[pa.Table]:
        """Normalised deliveries, chunk by chunk; ``full`` with everything stage B needs."""
        columns = deliver_columns(self._lake, full=full)
        for chunk in self._lake.chunks("deliver", columns):
            yield normalise(chunk, context, self._late_ends, dropped)

    def _orphan_ends(self) -> int:
        ends = self._late_ends.did
        if not ends.size:
            return 0
        begun = np.zeros(ends.size, bool)
        for chunk in self._lake.chunks("deliver", ("did",)):
            begun |= np.isin(ends, chunk.column("did").to_numpy())
        return int((~begun).sum())

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        limits = [(each.first_bad, each.lo, each.hi) for each in forbidden]
        found = [
            partials.resumed_partials(chunk, context, limits)
            for chunk in self._lake.chunks("produce", ("host", "broker", "res", "t0", "t1"))
        ]
        return join_values(found).get("resumed", tables.VALUES.empty_table())

    def stage_b(
        self, context: Context, messages: pa.Table, copies: pa.Table, inputs: CauseInputs
    ) -> pa.Table:
        repeated = {
            (row["grp"], row["n1"]): IntervalSet.of(lo, hi)
            for row, lo, hi in ranges_by(messages, ("grp", "n1"))
        }
        copied = {
            tuple(row.values()): IntervalSet.of(lo, hi)
            for row, lo, hi in ranges_by(copies, ("grp", "broker", "topic", "n1", "n2"))
        }
        if not repeated and not copied:
            return tables.CLASSIFIED.empty_table()
        found = [
            _candidates(chunk, repeated, copied)
            for chunk in self.deliveries(context, Dropped(), full=True)
        ]
        candidates = pa.concat_tables(found).cast(tables.DELIVERY)
        return classify(
            candidates, replace(inputs, produced=self._produced(candidates)), context.clocks
        )

    def _produced(self, candidates: pa.Table) -> pa.Table:
        """Send attempts of the candidates' messages, summed up per message."""
        wanted: dict[int, np.ndarray[Any, Any]] = {}
        lane, lseq = candidates.column("lane").to_numpy(), candidates.column("lseq").to_numpy()
        for one in np.unique(lane[lane >= 0]).tolist():
            wanted[one] = np.unique(lseq[lane == one])
        rows = []
        for chunk in self._lake.chunks("produce", _PRODUCED_COLUMNS):
            c = Rows(chunk)
            chosen = np.zeros(c.count, bool)
            for one, members in wanted.items():
                here = np.flatnonzero(c.valid("lane") & (c["lane"] == one))
                chosen[here] = np.isin(c["lseq"][here], members)
            rows.append(chunk.filter(pa.array(chosen)))
        if not rows:
            return tables.PRODUCED.empty_table()
        attempts = pa.concat_tables(rows).unify_dictionaries()
        res = attempts.column("res").cast(pa.utf8())
        degraded = pc.equal(res, "OK_DEGRADED")
        attempts = pa.table(
            {
                "lane": attempts.column("lane"),
                "lseq": attempts.column("lseq"),
                "ukey": attempts.column("ukey"),
                "doubtful": pc.is_in(res, _DOUBTFUL),
                "degraded_att": pc.if_else(degraded, attempts.column("att"), None),
                "att": attempts.column("att"),
            }
        )
        joined = attempts.group_by(["lane", "lseq"]).aggregate(
            [
                ("ukey", "count_distinct"),
                ("doubtful", "any"),
                ("degraded_att", "min"),
                ("att", "max"),
            ]
        )
        more = pc.fill_null(
            pc.less(joined.column("degraded_att_min"), joined.column("att_max")), False
        )
        return pa.table(
            {
                "lane": joined.column("lane"),
                "lseq": joined.column("lseq"),
                "ukeys": joined.column("ukey_count_distinct"),
                "doubtful": joined.column("doubtful_any"),
                "degraded_then_more": more,
            }
        ).cast(tables.PRODUCED)

    def order(self, context: Context, topics: frozenset[str], classified: pa.Table) -> pa.Table:
        if not topics:
            return tables.ORDER.empty_table()
        columns = (
            "host", "did", "grp", "client_id", "ltopic", "okey", "kseq", "bt", "et", "qoff",
        )  # fmt: skip
        repeats = classified.filter(pc.not_equal(classified.column("cls"), "PRIMARY"))
        later = np.sort(repeats.column("did").to_numpy())
        found = []
        for chunk in self._lake.chunks("deliver", columns):
            rows = Rows(chunk)
            shift = rows.shifts(context.clocks)
            bt, et = rows["bt"] + shift, rows["et"] + shift
            rows.rename_broadcast(context.broadcasting)
            of_topic = np.logical_or.reduce(
                [rows.equals("ltopic", name) for name in sorted(topics)]
            )
            keep = of_topic & rows.valid("okey") & rows.valid("kseq") & (rows["qoff"] >= 0)
            keep &= ~(rows.valid("et") & (et < bt))
            grp, topic, okey = rows.codes("grp"), rows.codes("ltopic"), rows.codes("okey")
            found.append(
                pa.table(
                    {
                        "grp": pa.array(grp.names).take(pa.array(grp.codes)),
                        "topic": pa.array(topic.names).take(pa.array(topic.codes)),
                        "okey": pa.array(okey.names).take(pa.array(okey.codes)),
                        "kseq": rows["kseq"],
                        "bt": bt,
                        "did": rows["did"],
                        "later": np.isin(rows["did"], later),
                    }
                ).filter(pa.array(keep))
            )
        if not found:
            return tables.ORDER.empty_table()
        return inversions(pa.concat_tables(found), context.warmup_end_ns)


def inversions(rows: pa.Table, warmup_end_ns: int) -> pa.Table:
    """Deliveries whose key had a greater ``kseq`` begun before: of firsts, and of repeats."""
    c = Columns(rows)
    if not c.count:
        return tables.ORDER.empty_table()
    key = c.dense("grp", "topic", "okey")
    bt, did, kseq = c.ints("bt"), c.ints("did"), c.ints("kseq")
    order = np.lexsort((did, bt, key))
    # A running maximum per key: keys are ascending here, so lifting each key above all values of
    # the one before lets one running maximum serve them all.
    ranks = np.searchsorted(np.unique(kseq), kseq)
    lifted = ranks[order] + key[order] * (int(ranks.max()) + 1)
    before = np.concatenate(([-1], np.maximum.accumulate(lifted)[:-1]))
    late = np.empty(c.count, bool)
    late[order] = lifted < before
    late &= bt >= warmup_end_ns
    repeat = np.asarray(rows.column("later").to_numpy(), bool)
    counted = rows.append_column("first", pa.array((late & ~repeat).astype(np.int64)))
    counted = counted.append_column("replay", pa.array((late & repeat).astype(np.int64)))
    okey = pa.array(c.texts("okey"), pa.utf8(), mask=~(late & ~repeat))
    counted = counted.append_column("late_key", okey)
    joined = counted.group_by(["grp", "topic"]).aggregate(
        [("first", "sum"), ("replay", "sum"), ("late_key", "min")]
    )
    found = joined.select(["grp", "topic", "first_sum", "replay_sum", "late_key_min"])
    return tables.sorted_table(found.rename_columns(tables.ORDER.names), tables.ORDER)


def ranges_by(depths: pa.Table, names: Sequence[str]) -> Iterable[tuple[dict[str, Any], Any, Any]]:
    """Groups of a depth table with equal ``names``: the key, and its ``lo`` and ``hi``."""
    if not depths.num_rows:
        return
    grouped = depths.group_by(list(names)).aggregate([("lo", "list"), ("hi", "list")])
    lists = zip(grouped.column("lo_list"), grouped.column("hi_list"), strict=True)
    for key, (lo, hi) in zip(grouped.select(list(names)).to_pylist(), lists, strict=True):
        yield key, np.asarray(lo.values.to_numpy()), np.asarray(hi.values.to_numpy())


def _candidates(
    chunk: pa.Table, repeated: Mapping[Any, IntervalSet], copied: Mapping[Any, IntervalSet]
) -> pa.Table:
    """Rows of messages, or of queue offsets, that occur more than once."""
    rows = Rows(chunk)
    chosen = np.zeros(rows.count, bool)
    lane = rows["lane"]
    grp = rows.codes("grp")
    for (group, one), members in repeated.items():
        if group not in grp.names:
            continue
        here = np.flatnonzero((lane == one) & (grp.codes == grp.names.index(group)))
        chosen[here] = members.contains(rows["lseq"][here])
    for key, where in rows.by_queue(("grp", "broker", "ptopic")) if copied else ():
        for epoch in np.unique(rows["epoch"][where]).tolist():
            again = copied.get((*key, epoch))
            if again is not None:
                here = where[rows["epoch"][where] == epoch]
                chosen[here] |= again.contains(rows["qoff"][here])
    kept = chunk.filter(pa.array(chosen)).select(tables.DELIVERY.names)
    return pa.table(
        [
            column.cast(field.type)
            for column, field in zip(kept.columns, tables.DELIVERY, strict=True)
        ],
        schema=tables.DELIVERY,
    )


def join_values(parts: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """Join value rows of equal key by their operation; one table per family."""
    found: dict[str, pa.Table] = {}
    rows = _rows(parts)
    for op, name in _JOINED_BY.items():
        chosen = rows.filter(pc.equal(rows.column("op"), op))
        if not chosen.num_rows:
            continue
        joined = chosen.group_by(list(tables.KEY)).aggregate([("lo", name)])
        joined = joined.select([*tables.KEY, f"lo_{name}"]).rename_columns(tables.VALUES.names)
        found |= by_family(joined, tables.VALUES)
    return found


def join_depths(parts: Sequence[pa.Table]) -> tuple[dict[str, pa.Table], int]:
    """Add interval rows up to depths; one table per family. Also how many rows there were."""
    rows = _rows(parts)
    runs = rows.filter(pc.equal(rows.column("op"), partials.INTERVAL))
    if not runs.num_rows:
        return {}, 0
    c = Columns(runs)
    number = c.dense(*tables.KEY)
    swept = sweep(number, c.ints("lo"), c.ints("hi"), c.ints("weight"), c.ints("figure"))
    example = np.empty(int(number.max()) + 1, np.int64)
    example[number] = np.arange(number.size)
    keys = runs.select(list(tables.KEY)).take(pa.array(example[swept.number]))
    whole = pa.table(
        [*keys.columns, swept.lo, swept.hi, swept.depth, swept.figure_depth],
        names=tables.DEPTHS.names,
    )
    return by_family(whole, tables.DEPTHS), runs.num_rows


def by_family(whole: pa.Table, schema: pa.Schema) -> dict[str, pa.Table]:
    """Split by family, each sorted."""
    families = pc.unique(whole.column("fam")).to_pylist()
    return {
        family: tables.sorted_table(whole.filter(pc.equal(whole.column("fam"), family)), schema)
        for family in sorted(families)
    }


def _rows(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts) if parts else partials.SCHEMA.empty_table()
