"""Inputs of figures of recovery, bounds, predictions and comparisons. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.analytics.report.measures.point_rows import Report
from failback.analytics.report.page.figure_types import (
    ArmData,
    BoundData,
    PredictionData,
    WaterfallData,
)
from failback.analytics.report.wording import number, seconds


def bound_data(report: Report) -> BoundData:
    return BoundData(
        [
            (
                f"{row['fid']} {row['group']}: {row['mechanism']}",
                row["observed"],
                row["bound"],
                bool(row["exceeded"]),
            )
            for row in report.get("bounds", [])
        ]
    )


def waterfalls(report: Report) -> list[WaterfallData]:
    kills = {fault["fid"]: fault.get("effect_ns") for fault in report.get("faults", [])}
    found = []
    for row in report.get("rto", []):
        start = kills.get(row["fid"]) or 0
        phases = [
            (name, None if at is None else max(at - start, 0))
            for name, at in (row.get("phases") or {}).items()
        ]
        found.append(WaterfallData(_rto_title(row), phases))
    return found


def _rto_title(row: Mapping[str, Any]) -> str:
    produce, consume = row.get("produce_ms"), (row.get("consume_ms") or {}).get("max")
    said = []
    for what, value in (("sends", produce), ("pulls", consume)):
        if value is not None:
            said.append(
                f"{what} back after {seconds(value / 1000)}" if value else f"no {what} failed"
            )
    finding = ", ".join(said) or "nothing was measured"
    return f"{row['fid']}: {finding} from the loss of {row.get('broker') or 'the master'}"


def prediction_data(report: Report) -> PredictionData:
    rows = [row for row in report.get("prediction", []) if "p5" in row]
    return PredictionData(
        [
            (f"{row['fid']} {row['group']}", row["p5"], row["p50"], row["p95"],
             row.get("worst", row["max"]), row["observed"])
            for row in rows
        ],
        validated=bool(rows) and all(row.get("validated") for row in rows),
    )  # fmt: skip


METRIC_TITLES: Final[Mapping[str, tuple[str, float]]] = {
    "dup": ("duplicates", 1),
    "produce_rto_ms": ("recovery of sends (s)", 1000),
    "consume_rto_ms": ("recovery of pulls (s)", 1000),
}


def arm_data(report: Report) -> ArmData | None:
    """Repetitions by arm; ``None`` where nothing was compared."""
    compare = report.get("compare")
    if not compare:
        return None
    metrics = {
        title: {
            arm["name"]: [
                run[metric] / scale for run in arm.get("runs", []) if run[metric] is not None
            ]
            for arm in compare["arms"]
        }
        for metric, (title, scale) in METRIC_TITLES.items()
    }
    return ArmData(metrics, _arm_title(compare))


def _arm_title(compare: Mapping[str, Any]) -> str:
    found = [row for row in compare["difference"] if row["metric"] == "dup"]
    known = [row for row in found if row["median"] is not None]
    if not known:
        return f"All runs are of arm {compare['baseline']}"
    row = max(known, key=lambda each: abs(each["median"]))
    more = "more" if row["median"] > 0 else "fewer"
    much = (
        f"{number(abs(row['median']))} {more} duplicates" if row["median"] else "as many duplicates"
    )
    sure = {True: "significant", False: "within chance"}.get(
        row["significant"], "too few runs to judge chance"
    )
    return f"{row.get('arm', '?')}: {much} than {compare['baseline']} ({sure})"
