"""Tables of the points of plots over time, and which tables the files of a report are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from failback.analytics.report.measures.point_rows import Point, Report
from failback.analytics.report.page.tables import advice, costs, incidents, observed, redeliveries
from failback.analytics.report.page.tables.registry import Table, files, seconds
from failback.analytics.report.page.time_series import OFFSET_SERIES, events

_RATES: Final = ("produce_rate", "deliver_rate", "dup_rate")
_PLACE: Final = f"at_s:f {redeliveries.QUEUE}"
_OF_REPORT: Final[tuple[Callable[[Report], Table], ...]] = (
    incidents.checks, incidents.faults, incidents.rto, incidents.phases, incidents.clock,
    redeliveries.queues, redeliveries.causes, redeliveries.causes_by_group,
    redeliveries.causes_by_broker, redeliveries.windows, redeliveries.rollbacks,
    redeliveries.offset_drops, redeliveries.groups,
    costs.dedupe_by_seconds, costs.dedupe_by_keys, costs.repeat_age, costs.redelivery_counts,
    costs.loss, costs.order,
    advice.bounds, advice.prediction, advice.exposure, advice.knobs, advice.compare_runs,
    advice.compare_arms, advice.compare_difference,
    observed.returns, observed.recovery, observed.safe_offsets, observed.seen, observed.unseen,
)  # fmt: skip


def file_tables(report: Report, points: Sequence[Point]) -> dict[str, Table]:
    """All tables that are files of a report, by name."""
    made = {table.name: table for table in _over_time(report, points)}
    return made | report_tables(report)


def report_tables(report: Report) -> dict[str, Table]:
    """Those that need no points, by name."""
    return {table.name: table for table in (each(report) for each in _OF_REPORT)}


def _over_time(report: Report, points: Sequence[Point]) -> list[Table]:
    def table(name: str, columns: str, row: Callable[[Point], Any], *kinds: str) -> Table:
        rows = [
            {"at_s": seconds(p.t_ns), "group": p.group, "broker": p.broker, "topic": p.topic,
             "qid": p.qid, "width_s": p.width_s, **row(p)}
            for p in points
            if p.kind in kinds
        ]  # fmt: skip
        return Table(name, files(columns), rows)

    def messages(point: Point) -> dict[str, object]:
        return {"messages": int(point.value)}

    return [
        table("rates", "at_s:f width_s:i what messages_per_second:f",
              lambda p: {"what": p.kind, "messages_per_second": p.value}, *_RATES),
        table("send_latency", "at_s:f result latency_ms:f",
              lambda p: {"result": p.label, "latency_ms": p.value}, "send_latency"),
        table("offsets", f"{_PLACE} copy offset:i",
              lambda p: {"copy": p.kind, "offset": int(p.value)}, *OFFSET_SERIES),
        table("duplicates_by_second", "at_s:f width_s:i group report_group messages:i",
              lambda p: {"report_group": p.label, **messages(p)}, "dup_by_group"),
        table("duplicates_by_queue", f"{_PLACE} width_s:i messages:i", messages, "dup_by_queue"),
        table("exposure_by_second", "at_s:f group broker messages:i", messages, "exposure"),
        incidents.events(report, events(report, points)),
    ]  # fmt: skip
