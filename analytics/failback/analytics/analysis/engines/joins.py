"""Adds up partial rows: sums and extremes by key, interval rows to depths. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns, packed_of
from failback.analytics.analysis.arrays.intervals import IntervalSet, Ints, sweep
from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.counting.partials.sends import DOUBTFUL_RESULTS
from failback.analytics.analysis.counting.partials.sums import SCHEMA

_JOINED_BY: Final = {families.SUM: np.add, families.MAX: np.maximum, families.MIN: np.minimum}


def join_values(parts: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """Join value rows of equal key by their operation; one table per family, sorted."""
    return {family: table for (_, family), table in _joined_values(parts).items()}


def _joined_values(parts: Sequence[pa.Table]) -> dict[tuple[int, str], pa.Table]:
    batches: dict[tuple[int, str], list[pa.RecordBatch]] = defaultdict(list)
    for part in parts:
        for batch in part.to_batches():
            for (op, family), rows in _by_family(batch):
                if op in _JOINED_BY:
                    batches[op, family].append(rows)
    found = {}
    for op, family in sorted(batches):
        found[op, family] = _joined(pa.Table.from_batches(batches.pop((op, family))), op)
    return found


def _by_family(batch: pa.RecordBatch) -> Iterator[tuple[tuple[int, str], pa.RecordBatch]]:
    """Rows by operation and family; nearly all batches have one of each."""
    if not batch.num_rows:
        return
    op, family = batch.column("op")[0], batch.column("fam")[0]
    same = pc.and_(pc.equal(batch.column("op"), op), pc.equal(batch.column("fam"), family))
    if pc.all(same).as_py():
        yield (op.as_py(), family.as_py()), batch
        return
    yield (op.as_py(), family.as_py()), batch.filter(same)
    yield from _by_family(batch.filter(pc.invert(same)))


def _joined(rows: pa.Table, op: int) -> pa.Table:
    """Rows of one family, joined (``tables.VALUES``)."""
    c = Columns(rows)
    key = packed_of([_ranks(c, name) for name in tables.KEY])
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] - 1))
    values = _JOINED_BY[op].reduceat(c.ints("lo")[order], starts)
    keys = rows.select(list(tables.KEY)).take(pa.array(order[starts]))
    return pa.table([*keys.columns, values], names=tables.VALUES.names).cast(tables.VALUES)


def _ranks(c: Columns, name: str) -> Ints:
    """A key column as numbers in the order of its values."""
    if name in families.NUMBERS:
        return c.ints(name)
    codes, names = c.named(name)
    return np.asarray(pc.rank(names).to_numpy(), np.int64)[codes]


def join_depths(parts: Sequence[pa.Table]) -> tuple[dict[str, pa.Table], int]:
    """Add interval rows up to depths; one table per family. Also how many rows there were."""
    rows = pa.concat_tables(parts) if parts else SCHEMA.empty_table()
    runs = rows.filter(pc.equal(rows.column("op"), families.INTERVAL))
    if not runs.num_rows:
        return {}, 0
    return by_family(swept_runs(runs), tables.DEPTHS), runs.num_rows


def swept_runs(runs: pa.Table) -> pa.Table:
    """Interval rows of any number of histories as depths, unsorted (``tables.DEPTHS``)."""
    c = Columns(runs)
    number = c.dense(*tables.KEY)
    swept = sweep(number, c.ints("lo"), c.ints("hi"), c.ints("weight"), c.ints("figure"))
    example = np.empty(int(number.max()) + 1, np.int64)
    example[number] = np.arange(number.size)
    keys = runs.select(list(tables.KEY)).take(pa.array(example[swept.number]))
    columns = [*keys.columns, swept.lo, swept.hi, swept.depth, swept.figure_depth]
    return pa.table(columns, names=tables.DEPTHS.names).cast(tables.DEPTHS)


def condensed(parts: Sequence[pa.Table]) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Values and depths of partial rows that were condensed."""
    depths, _ = join_depths(parts)
    return join_values(parts), depths


def compacted(parts: Sequence[pa.Table]) -> pa.Table:
    """Partial rows that join as ``parts`` do, and are fewer (``sums.SCHEMA``)."""
    found = [_partial(table, op, ("value",)) for (op, _), table in _joined_values(parts).items()]
    depths, _ = join_depths(parts)
    columns = ("lo", "hi", "depth", "figure")
    found += [_partial(table, families.INTERVAL, columns) for table in depths.values()]
    return pa.concat_tables([SCHEMA.empty_table(), *found])


def _partial(table: pa.Table, op: int, values: Sequence[str]) -> pa.Table:
    """Joined rows of one operation as partial ones; what they lack is 0."""
    count = table.num_rows
    nothing = np.zeros(count, np.int64)
    columns = [table.column(name) for name in values]
    filled = [*columns, *[nothing] * (4 - len(columns))]
    keys = [table.column(name) for name in tables.KEY]
    return pa.table([np.full(count, op, np.int8), *keys, *filled], schema=SCHEMA)


def by_family(whole: pa.Table, schema: pa.Schema) -> dict[str, pa.Table]:
    """Split by family, each sorted."""
    families = pc.unique(whole.column("fam")).to_pylist()
    return {
        family: tables.sorted_table(whole.filter(pc.equal(whole.column("fam"), family)), schema)
        for family in sorted(families)
    }


def interval_sets(depths: pa.Table, *names: str) -> dict[Any, IntervalSet]:
    """The ranges of a depth table as sets, per key of ``names``."""
    if not depths.num_rows:
        return {}
    grouped = depths.group_by(list(names), use_threads=False)
    grouped = grouped.aggregate([("lo", "list"), ("hi", "list")])
    lists = zip(grouped.column("lo_list"), grouped.column("hi_list"), strict=True)
    keys = zip(*(grouped.column(name).to_pylist() for name in names), strict=True)
    return {
        key: IntervalSet.of(np.asarray(lo.values.to_numpy()), np.asarray(hi.values.to_numpy()))
        for key, (lo, hi) in zip(keys, lists, strict=True)
    }


def produced_of(attempts: pa.Table) -> pa.Table:
    """Send attempts summed up per message."""
    res = attempts.column("res")
    degraded = pc.equal(res, "OK_DEGRADED")
    attempts = pa.table(
        {
            "lane": attempts.column("lane"),
            "lseq": attempts.column("lseq"),
            "ukey": attempts.column("ukey"),
            "doubtful": pc.is_in(res, pa.array(sorted(DOUBTFUL_RESULTS))),
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
    more = pc.fill_null(pc.less(joined.column("degraded_att_min"), joined.column("att_max")), False)
    return pa.table(
        {
            "grp": pa.nulls(joined.num_rows, pa.utf8()),
            "lane": joined.column("lane"),
            "lseq": joined.column("lseq"),
            "ukeys": joined.column("ukey_count_distinct"),
            "doubtful": joined.column("doubtful_any"),
            "degraded_then_more": more,
        }
    ).cast(tables.PRODUCED)
