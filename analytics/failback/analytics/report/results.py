"""The result of a run: its tables as Parquet, and what a report is made of, in a folder or a store.

``result/run=ID/`` has a file per table (copy_depth, msg_depth, rollback, windows, loss, order, rto,
counters), a folder ``class`` of files with the repeated deliveries one by one, and ``report.json``
and ``points.parquet``, the points of the plots. ``report.json`` is written last: with it the result
is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.results import Analysis
from failback.analytics.lake.lake import parquet_bytes
from failback.analytics.lake.store import StoreAddress, open_store
from failback.analytics.report.measures.numbers import Row
from failback.analytics.report.schema import report_bytes
from failback.client.consumelog.schema import schema_of


@dataclass(frozen=True, slots=True)
class RowsInFiles:
    """A folder of Parquet files, one per part of the rows: an ``engines.repeats.RowsTo``."""

    store: StoreAddress
    folder: str
    """Below the store's root."""
    group: str | None = None
    """Only the rows of this group; of all groups by default."""

    def clear(self) -> None:
        """Remove what an earlier analysis has left there."""
        self.store.open().delete_folder(self.folder)

    def write(self, part: pa.Table) -> None:
        """Write the rows of a part (``tables.ATTRIBUTED``), which no other part has.

        A task that is repeated writes the same file again.
        """
        if self.group is not None:
            part = part.filter(pc.equal(part.column("grp"), self.group))
        if not part.num_rows:
            return
        first = pc.min(part.column("did")).as_py()
        name = f"{self.folder}/part-{first & (1 << 64) - 1:016x}.parquet"
        self.store.open().write(name, parquet_bytes(part))


_WINDOWS: Final = schema_of(
    """grp s, broker s, ptopic s, cause s, fid s, qid l, assignment l, lo l, hi l, size l,
    from_proc l, to_proc l, t l"""
)
_ROLLBACK: Final = schema_of(
    """grp s, broker s, topic s, src s, explained_by s, explained_rows s, fid s, qid l, t_ns l,
    start l, src_bid l, src_binc l, committed l, confirmed l, processed l, d_commit l, d_proc l,
    redelivered l, age_seconds d"""
)
_RTO: Final = schema_of(
    """fid s, broker s, consume_ms s, phases s, phase_rows s, queues_never l, produce_ms d,
    second_stall_ms d, ttfr_kill_ms d, ttfr_accept_ms d"""
)
"""What is nested is JSON text: a table has columns, not trees."""


@dataclass(frozen=True, slots=True)
class ResultsTo:
    """Where the results of runs go."""

    root: str
    """A folder or the URI of an object store."""
    group: str | None = None
    """Only the rows of this group; of all groups by default."""
    keep_rows: bool = True
    """With the repeated deliveries one by one."""

    def check(self) -> None:
        """Raises ``ReportInputError`` where nothing can be written."""
        open_store(self.root).check()

    def rows(self, run: str) -> RowsInFiles | None:
        """Where the repeated deliveries of a run go; those of an earlier result are gone."""
        address = StoreAddress.of(open_store(self.root))
        found = RowsInFiles(address, f"{result_of(run)}/class", self.group)
        found.clear()
        return found if self.keep_rows else None

    def write(self, analysis: Analysis, document: Row, points: pa.Table) -> None:
        """Write the tables and then the report."""
        content = report_bytes(document)
        store, where = open_store(self.root), result_of(analysis.folder.run_id)
        found = result_tables(analysis, document, self.group) | {"points": points}
        for name, table in found.items():
            store.write(f"{where}/{name}.parquet", parquet_bytes(table))
        store.write(f"{where}/report.json", content)


def result_of(run: str) -> str:
    """Where the result of a run is, below the root of the results."""
    return f"result/run={run}"


def result_tables(
    analysis: Analysis, document: Mapping[str, Any], group: str | None = None
) -> dict[str, pa.Table]:
    """The result tables of an analysed run, as far as they are of ``group``."""
    values, depths = analysis.counts.values, analysis.counts.depths
    counters = [values[family] for family in sorted(values)]
    found = {
        "copy_depth": depths.get(families.COPY.name, tables.DEPTHS.empty_table()),
        "msg_depth": depths.get(families.MESSAGE.name, tables.DEPTHS.empty_table()),
        "order": analysis.order.rename_columns(["grp", *analysis.order.column_names[1:]]),
        "counters": pa.concat_tables(counters) if counters else tables.VALUES.empty_table(),
        "windows": _windows(analysis),
        "rollback": _rows(document["rollbacks"], _ROLLBACK),
        "loss": _losses(document),
        "rto": _rows(document["rto"], _RTO),
    }
    if group is None:
        return found
    return {
        name: table.filter(pc.equal(table.column("grp"), group))
        if "grp" in table.column_names
        else table
        for name, table in found.items()
    }


def _windows(analysis: Analysis) -> pa.Table:
    rows = [
        {name: getattr(window, name, None) for name in _WINDOWS.names} | window.key._asdict()
        for window in analysis.windows.kept
    ]
    return pa.Table.from_pylist(rows, _WINDOWS)


def _rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of the report as a table, its ``group`` under the name that the other tables have."""
    return pa.Table.from_pylist([_flat({"grp": row.get("group"), **row}) for row in rows], schema)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        for key, value in row.items()
    }


def _losses(document: Mapping[str, Any]) -> pa.Table:
    by_group = document["loss"].get("groups") or {}
    rows = [
        {"grp": group, "fate": fate, "messages": count}
        for group, fates in sorted(by_group.items())
        for fate, count in sorted(fates.items())
    ]
    return pa.Table.from_pylist(rows, schema_of("grp s, fate s, messages l"))
