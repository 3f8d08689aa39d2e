"""Every table behind a figure, as CSV and Parquet, and as the twin of the figure in the page. Pure.

A column is written ``name:type``; types are ``s`` text, ``i`` integer, ``f`` float, ``b`` flag. A
name ends in its unit: ``_s`` seconds after run zero or long, ``_ms`` milliseconds; other numbers
are messages or counts. What was not measured is empty.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from failback.analytics.report.measures.point_rows import Point
from failback.analytics.report.page.figure_data.outcomes import waterfalls
from failback.analytics.report.page.figure_data.repeats import age_data, cause_data
from failback.analytics.report.page.figure_data.time_series import events
from failback.analytics.report.page.figure_types import NS_PER_SECOND, OFFSET_SERIES

Report = Mapping[str, Any]
Cells = Sequence[object]

_TYPES: Final = {"s": pa.utf8(), "i": pa.int64(), "f": pa.float64(), "b": pa.bool_()}
_UNITS: Final = {"_s": " (s)", "_ms": " (ms)"}
_QUEUE: Final = "group:s broker:s topic:s qid:i"


@dataclass(frozen=True, slots=True)
class Table:
    """Columns as ``name:type`` and rows of as many cells."""

    columns: tuple[str, ...]
    rows: tuple[Cells, ...]

    @property
    def names(self) -> list[str]:
        return [column.split(":")[0] for column in self.columns]

    @property
    def headings(self) -> list[str]:
        """Names for people: words, and the unit in brackets."""
        return [heading(name) for name in self.names]

    def to_arrow(self) -> pa.Table:
        """The same with types; one type per column whatever the run."""
        kinds = [_TYPES[column.split(":")[1]] for column in self.columns]
        cells = zip(*self.rows, strict=True) if self.rows else [() for _ in kinds]
        arrays = [
            pa.array([_typed(cell, kind) for cell in column], kind)
            for column, kind in zip(cells, kinds, strict=True)
        ]
        return pa.table(arrays, names=self.names)


def heading(name: str) -> str:
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    return name.replace("_", " ")


def _typed(cell: object, kind: pa.DataType) -> object:
    if cell is None:
        return None
    if pa.types.is_string(kind):
        return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
    return float(cell) if pa.types.is_floating(kind) else cell  # type: ignore[arg-type]


def csv_bytes(table: Table) -> bytes:
    """UTF-8 with a line of names; empty cells for what was not measured."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(table.names)
    for row in table.to_arrow().to_pylist():
        writer.writerow(["" if cell is None else cell for cell in row.values()])
    return sink.getvalue().encode()


def figure_tables(report: Report, points: Sequence[Point]) -> dict[str, Table]:
    """All tables of a report by the name of their files."""
    return {**_over_time(report, points), **_tables(report)}


def _table(columns: str, rows: Any) -> Table:
    return Table(tuple(columns.split()), tuple(tuple(row) for row in rows))


def _picked(columns: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    names = [column.split(":")[0] for column in columns.split()]
    return _table(columns, ([row.get(name) for name in names] for row in rows))


def _s(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_SECOND


def _over_time(report: Report, points: Sequence[Point]) -> dict[str, Table]:
    rates = ("produce_rate", "deliver_rate", "dup_rate")
    place = f"at_s:f {_QUEUE}"

    def of(*kinds: str) -> list[Point]:
        return [point for point in points if point.kind in kinds]

    return {
        "rates": _table(
            "at_s:f what:s messages_per_second:f",
            ((_s(p.t_ns), p.kind, p.value) for p in of(*rates)),
        ),
        "send_latency": _table(
            "at_s:f result:s latency_ms:f",
            ((_s(p.t_ns), p.label, p.value) for p in of("send_latency")),
        ),
        "offsets": _table(
            f"{place} copy:s offset:i",
            (
                (_s(p.t_ns), p.group, p.broker, p.topic, p.qid, p.kind, int(p.value))
                for p in of(*OFFSET_SERIES)
            ),
        ),
        "duplicates_by_second": _table(
            "at_s:f group:s report_group:s messages:i",
            ((_s(p.t_ns), p.group, p.label, int(p.value)) for p in of("dup_by_group")),
        ),
        "duplicates_by_queue": _table(
            f"{place} messages:i",
            (
                (_s(p.t_ns), p.group, p.broker, p.topic, p.qid, int(p.value))
                for p in of("dup_by_queue")
            ),
        ),
        "exposure_by_second": _table(
            "at_s:f group:s broker:s messages:i",
            ((_s(p.t_ns), p.group, p.broker, int(p.value)) for p in of("exposure")),
        ),
        "events": _table("at_s:f event:s", ((_s(at), text) for at, text in events(report, points))),
    }


def _tables(report: Report) -> dict[str, Table]:
    return {**_story(report), **_again(report), **_harm(report), **_advice(report)}


def _story(report: Report) -> dict[str, Table]:
    return {
        "checks": _picked("id:s title:s value:s expected:s observed:s unit:s",
                          report.get("checks", [])),
        "faults": _table(
            "fid:s name:s kind:s intended_s:f intended_end_s:f effect_s:f healed_s:f away_s:f "
            "proved:b peer_saw:s",
            (
                (f["fid"], f.get("name"), f.get("kind"), _s(f.get("intended_ns")),
                 _s(f.get("intended_end_ns")), _s(f.get("effect_ns")), _s(f.get("heal_ns")),
                 f.get("down_seconds"), f.get("proved"), f.get("peer_saw"))
                for f in report.get("faults", [])
            ),
        ),
        "rto": _table(
            "fid:s broker:s produce_ms:f consume_median_ms:f consume_worst_ms:f "
            "second_stall_ms:f queues_never:i first_repeat_ms:f",
            (
                (r["fid"], r.get("broker"), r.get("produce_ms"),
                 (r.get("consume_ms") or {}).get("p50"), (r.get("consume_ms") or {}).get("max"),
                 r.get("second_stall_ms"), r.get("queues_never"), r.get("ttfr_kill_ms"))
                for r in report.get("rto", [])
            ),
        ),
        "phases": _table(
            "fid:s phase:s after_the_kill_s:f",
            (
                (waterfall.title.partition(":")[0], phase, _s(at))
                for waterfall in waterfalls(report)
                for phase, at in waterfall.phases
            ),
        ),
        "clock": _picked("host:s offset_ns:i error_ns:i",
                         (report.get("clock") or {}).get("hosts", [])),
    }  # fmt: skip


def _again(report: Report) -> dict[str, Table]:
    queues = report.get("queues", [])
    return {
        "queues": _picked(
            f"{_QUEUE} epochs:i delivered:i distinct:i dup:i master_offset:i slave_offset:i "
            "safe_offset:i",
            queues,
        ),
        "causes": _table(
            "cause:s report_group:s after_success:i before_success:i unknown_order:i",
            cause_data(report).rows,
        ),
        "causes_by_group": _table(
            "group:s cause:s messages:i",
            (
                (group["group"], cause, number)
                for group in report.get("groups", [])
                for cause, number in [
                    *group.get("causes", {}).items(),
                    *([(None, group["unattributed"])] if group.get("unattributed") else []),
                ]
            ),
        ),
        "causes_by_broker": _table(
            "group:s broker:s topic:s report_group:s messages:i",
            _by_broker(queues),
        ),
        "windows": _table(
            f"{_QUEUE} lo:i hi:i size:i cause:s from_proc:i to_proc:i at_s:f fid:s",
            (
                (q["group"], q["broker"], q["topic"], q["qid"], w["lo"], w["hi"], w["size"],
                 w.get("cause"), w.get("from_proc"), w.get("to_proc"), _s(w.get("t_ns")),
                 w.get("fid"))
                for q in queues
                for w in q.get("windows", [])
            ),
        ),
        "rollbacks": _table(
            f"{_QUEUE} at_s:f start:i src:s src_bid:i committed:i confirmed:i processed:i "
            "d_commit:i d_proc:i redelivered:i age_s:f explained_by:s fid:s",
            (
                (r["group"], r["broker"], r["topic"], r["qid"], _s(r["t_ns"]), r["start"],
                 r.get("src"), r.get("src_bid"), r.get("committed"), r.get("confirmed"),
                 r.get("processed"), r.get("d_commit"), r.get("d_proc"), r.get("redelivered"),
                 r.get("age_seconds"), r.get("explained_by"), r.get("fid"))
                for r in report.get("rollbacks", [])
            ),
        ),
        "offset_drops": _table(
            "addr:s bid:i source:s group:s topic:s qid:i at_s:f from:i to:i label:s",
            (
                (d.get("addr"), d.get("bid"), d.get("source"), d["group"], d["topic"], d["qid"],
                 _s(d["t_ns"]), d["from"], d["to"], d["label"])
                for d in report.get("offset_drops", [])
            ),
        ),
    }  # fmt: skip


def _by_broker(queues: Sequence[Mapping[str, Any]]) -> list[Cells]:
    found: dict[tuple[str, str, str, str], int] = {}
    for queue in queues:
        for group, number in (queue.get("report_groups") or {}).items():
            key = (queue["group"], queue["broker"], queue["topic"], group)
            found[key] = found.get(key, 0) + number
    return [(*key, number) for key, number in sorted(found.items())]


def _harm(report: Report) -> dict[str, Table]:
    groups = report.get("groups", [])
    loss = report.get("loss") or {}
    return {
        "groups": _picked(
            "group:s topic:s members:i model:s delivered:i distinct:i dup:i dup_after_success:i "
            "retry:i lost:i dup_ratio:f wasted_seconds:f handler_seconds:f max_redelivery:i",
            groups,
        ),
        "dedupe_by_seconds": _table(
            "group:s window_s:f share:f",
            (
                (group["group"], row["window"], row["share"])
                for group in groups
                for row in (group.get("dedupe") or {}).get("by_seconds", [])
            ),
        ),
        "dedupe_by_keys": _table(
            "group:s keys:i share:f error:f",
            (
                (group["group"], row["keys"], row["share"], row["error"])
                for group in groups
                for row in (group.get("dedupe") or {}).get("by_keys", [])
            ),
        ),
        "repeat_age": _table("above_s:f at_most_s:f repeats:i", age_data(report).bins),
        "redelivery_counts": _table(
            "group:s deliveries:i messages:i",
            (
                (group["group"], int(times), number)
                for group in groups
                for times, number in (group.get("redelivery_counts") or {}).items()
            ),
        ),
        "loss": _table(
            "group:s fate:s messages:i",
            (
                (group, fate, number)
                for group, fates in (loss.get("groups") or {}).items()
                for fate, number in fates.items()
            ),
        ),
        "order": _picked(
            "group:s topic:s ooo_first:i ooo_replay:i first_key:s", report.get("order", [])
        ),
    }


def _advice(report: Report) -> dict[str, Table]:
    compare = report.get("compare") or {"arms": [], "difference": []}
    return {
        "bounds": _picked(
            "fid:s group:s mechanism:s formula:s bound:f observed:i ratio:f exceeded:b",
            report.get("bounds", []),
        ),
        "prediction": _picked(
            "fid:s group:s p5:i p50:i p95:i max:i worst:i observed:i inside:b validated:b",
            report.get("prediction", []),
        ),
        "exposure": _table(
            "group:s broker:s p50:i max:i at_kill:i",
            (
                (group, row.get("broker"), row["p50"], row["max"], row["at_kill"])
                for group, row in report.get("exposure", {}).items()
            ),
        ),
        "knobs": _picked(
            "name:s from:s to:s fault:s predicted_reduction:f worst_reduction:i cost:s",
            report.get("knobs", []),
        ),
        "compare_runs": _table(
            "arm:s run:s repetition:i verdict:s dup:i dup_ratio:f wasted_seconds:f lost:i "
            "produce_rto_ms:f consume_rto_ms:f",
            (
                (arm["name"], run["run"], run["repetition"], run["verdict"], run["dup"],
                 run["dup_ratio"], run["wasted_seconds"], run["lost"], run["produce_rto_ms"],
                 run["consume_rto_ms"])
                for arm in compare["arms"]
                for run in arm.get("runs", [])
            ),
        ),
        "compare_arms": _table(
            "arm:s runs:i metric:s median:f least:f most:f",
            (
                (arm["name"], arm["n"], metric, row["median"], row["min"], row["max"])
                for arm in compare["arms"]
                for metric, row in arm.items()
                if isinstance(row, dict) and "median" in row
            ),
        ),
        "compare_difference": _picked(
            "arm:s metric:s median:f ci_low:f ci_high:f significant:b", compare["difference"]
        ),
    }  # fmt: skip
