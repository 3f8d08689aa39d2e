"""Tables of bounds, predictions, settings and comparisons."""

from __future__ import annotations

import json
from typing import Any

from failback.analytics.report.page.tables.registry import (
    Report,
    Row,
    Table,
    alike,
    both,
    files,
    page,
    show,
)
from failback.analytics.report.page.words import METRICS, change_of, mechanism

_SIGNIFICANT = {True: "yes", False: "no", None: "too few runs"}
_RUN_METRICS = ("dup", "dup_ratio", "wasted_seconds", "lost", "produce_rto_ms", "consume_rto_ms")


def bounds(report: Report) -> Table:
    columns = [
        both("fid", "fault"),
        both("group", "group"),
        both("mechanism", "what can repeat", text=lambda row: mechanism(row["mechanism"])),
        both("formula", "formula", term="bound"),
        both("bound:f", "bound", term="bound", text=lambda row: _whole(row["bound"])),
        both("observed:i", "observed"),
        both("ratio:f", "share of the bound", unit="share"),
        both("exceeded:b", "exceeded"),
    ]
    return Table("bounds", columns, report.get("bounds", []), "No bound applies to this run.")


def _whole(value: float | None) -> float | None:
    return int(value) if value is not None and float(value).is_integer() else value


def prediction(report: Report) -> Table:
    columns = [
        both("fid", "fault"),
        both("group", "group"),
        both("p5:i", "5 %", term="predicted"),
        both("p50:i", "median"),
        both("p95:i", "95 %"),
        *files("max:i"),
        both("worst:i", "worst case"),
        *alike("observed:i inside:b validated:b"),
    ]
    note = (report.get("notes") or {}).get("prediction", "the report says nothing of it")
    rows = report.get("prediction", [])
    return Table("prediction", columns, rows, f"Nothing was predicted: {note}.")


def exposure(report: Report) -> Table:
    columns = [
        *alike("group broker"),
        both("p50:i", "median", term="exposure"),
        both("max:i", "most"),
        both("at_kill:i", "when the master died"),
    ]
    note = (report.get("notes") or {}).get("exposure", "no group consumed anything")
    rows = [{"group": group, **row} for group, row in report.get("exposure", {}).items()]
    return Table("exposure", columns, rows, f"Exposure is not known: {note}.")


def knobs(report: Report) -> Table:
    columns = [
        both("name", "setting"),
        both("from", "now", text=lambda row: setting(row["from"])),
        both("to", "change to", text=lambda row: setting(row["to"])),
        *files("fault"),
        both("predicted_reduction:f", "fewer duplicates, mean"),
        both("worst_reduction:i", "fewer at worst"),
        page("how", lambda row: change_of(row["name"], row["to"])),
        both("cost", "costs"),
    ]
    note = (report.get("notes") or {}).get("knobs", "nothing was predicted")
    return Table("knobs", columns, report.get("knobs", []), f"There is nothing to advise: {note}.")


def setting(value: object) -> str:
    """A value as a file of settings has it, with groups of three for people."""
    return str(value).lower() if isinstance(value, bool) else compact(value)


def compact(value: object) -> str:
    """A value of any kind on one line."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else show(value)


def compare_runs(report: Report) -> Table:
    columns = files(
        "arm run repetition:i verdict dup:i dup_ratio:f wasted_seconds:f lost:i "
        "produce_rto_ms:f consume_rto_ms:f"
    )
    rows = [
        {"arm": arm["name"], **{name: run[name] for name in ("run", "repetition", "verdict")},
         **{name: run[name] for name in _RUN_METRICS}}
        for arm in _compared(report)["arms"]
        for run in arm.get("runs", [])
    ]  # fmt: skip
    return Table("compare_runs", columns, rows)


def compare_arms(report: Report) -> Table:
    rows = [
        {"arm": arm["name"], "runs": arm["n"], "metric": metric, "median": row["median"],
         "least": row["min"], "most": row["max"]}
        for arm in _compared(report)["arms"]
        for metric, row in arm.items()
        if isinstance(row, dict) and "median" in row
    ]  # fmt: skip
    return Table("compare_arms", files("arm runs:i metric median:f least:f most:f"), rows)


def arms(report: Report) -> Table:
    """Only on the page: each arm with the median and range of what was compared."""
    compare = _compared(report)

    def name(row: Row) -> str:
        return f"{row['name']} (baseline)" if row["name"] == compare["baseline"] else row["name"]

    columns = [
        page("arm", name),
        both("n:i", "runs"),
        page("duplicates", lambda row: _spread(row["dup"])),
        page("ratio = duplicates/distinct", lambda row: _spread(row["dup_ratio"], "share")),
        page("send outage (s)", lambda row: _spread(row["produce_rto_ms"], scale=1000)),
        page("receive outage (s)", lambda row: _spread(row["consume_rto_ms"], scale=1000)),
    ]
    empty = "This run was reported on alone: name others behind --compare."
    return Table("arms", columns, compare["arms"], empty)


def _spread(spread: Row, unit: str = "", scale: float = 1) -> str:
    low, middle, high = (
        None if spread[name] is None else spread[name] if scale == 1 else spread[name] / scale
        for name in ("min", "median", "max")
    )
    said = show(middle, unit)
    return said if low == high else f"{said} ({show(low, unit)} to {show(high, unit)})"


def compare_difference(report: Report) -> Table:
    def of(part: str) -> Any:
        def cell(row: Row) -> str:
            factor = METRICS.get(row["metric"], ("", 1))[1]
            value = row[part] if row[part] is None or factor == 1 else row[part] * factor
            return show(value, "share" if row["metric"] == "dup_ratio" else "")

        return cell

    columns = [
        both("arm", "arm"),
        both("metric", "what", text=lambda row: METRICS.get(row["metric"], (row["metric"],))[0]),
        both("median:f", "difference of medians", text=of("median")),
        both("ci_low:f", "95 % from", text=of("ci_low")),
        both("ci_high:f", "to", text=of("ci_high")),
        both("significant:b", "significant", text=lambda row: _SIGNIFICANT[row["significant"]]),
    ]
    rows = _compared(report)["difference"]
    return Table("compare_difference", columns, rows, "All runs are of one arm.")


def _compared(report: Report) -> dict[str, Any]:
    return report.get("compare") or {"baseline": None, "arms": [], "difference": []}
