"""Rows of the page's tables, from ``report.json``. Pure.

Cells are plain values; :func:`show` makes their text, and the template escapes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from failback.analytics.live.reset import reset_command
from failback.analytics.report.measures.point_rows import Report
from failback.analytics.report.page.figure_data import outcomes
from failback.analytics.report.page.figure_types import NS_PER_SECOND
from failback.analytics.report.status_summary import rule_set_of
from failback.analytics.run.definitions import words_of

MAX_TABLE_ROWS = 500
METRIC_WORDS = {
    "dup": ("duplicates", 1),
    "dup_ratio": ("duplicates in 100 messages", 100),
    "dup_after_success": ("useless repeats", 1),
    "wasted_seconds": ("work done twice (s)", 1),
    "lost": ("lost messages", 1),
    "produce_rto_ms": ("produce RTO (s)", 0.001),
    "consume_rto_ms": ("consume RTO (s)", 0.001),
}

Row = Sequence[object]


def show(value: object) -> str:
    """Return a cell's text: thousands separated, one decimal, a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if math.isfinite(value) else "–"
    return str(value)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numeric_columns(rows: Sequence[Row]) -> frozenset[int]:
    """Return the columns of numbers only, gaps allowed: those that stand at the right."""
    columns = list(zip(*rows, strict=True))
    return frozenset(
        index
        for index, cells in enumerate(columns)
        if any(is_number(cell) for cell in cells)
        and all(cell is None or is_number(cell) for cell in cells)
    )


def tiles(report: Report) -> list[tuple[str, str]]:
    totals = report["totals"]
    return [
        (show(totals["distinct"]), "messages consumed"),
        (show(totals["delivered"]), "deliveries"),
        (show(totals["dup"]), "consumed again"),
        (percent(totals["dup_ratio"]), "of all messages"),
        (show(totals["dup_after_success"]), "provably useless repeats"),
        (show(totals["lost"]), "lost"),
        (show(totals["wasted_seconds"]), "seconds of work done twice"),
    ]


def percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{100 * ratio:.2f} %"


def check_rows(report: Report) -> list[Row]:
    """Those that are not Pass first."""
    worst = {"Fail": 0, "Inconclusive": 1}
    checks = sorted(report.get("checks", []), key=lambda each: worst.get(each["value"], 2))
    return [
        (check.get("title") or check["id"], check["value"], check["expected"], check["observed"])
        for check in checks
    ]


def act_now(report: Report) -> str | None:
    """What an operator has to do at once: queues whose stored offset lies below a safe one."""
    behind = [
        row
        for row in report.get("queues", [])
        if row.get("safe_offset") is not None
        and row.get("master_offset") is not None
        and row["master_offset"] < row["safe_offset"]
    ]
    if not behind:
        return None
    messages = sum(row["safe_offset"] - row["master_offset"] for row in behind)
    groups = ", ".join(sorted({row["group"] for row in behind})[:5])
    queues = "1 queue stands" if len(behind) == 1 else f"{len(behind)} queues stand"
    return (
        f"{queues} below a safe offset, group {groups}: a consumer that starts now repeats "
        f"{messages:,} messages. The commands are under Offsets."
    )


def card_rows(report: Report) -> list[Row]:
    system, source = report["system"], report["source"]
    rows: list[Row] = [
        (
            "experiment",
            f"{report['experiment']}, arm {report['arm']}, repetition {report['repetition']}",
        ),
        ("seed", report["seed"]),
        ("engine", f"{system['engine']} {system['version']}"),
        ("rule set", rule_set_of(report)),
        ("failback", report["failback_version"]),
        ("time scale", f"{source['time_scale']:g}"),
        *(("counted otherwise", words) for words in words_of(report.get("definitions"))),
    ]
    labels = {
        "slave_read_enable": "slaveReadEnable",
        "flush_interval_ms": "flushConsumerOffsetInterval (ms)",
        "slave_sync_interval_ms": "slave sync interval (ms)",
        "client_commit_interval_ms": "persistConsumerOffsetInterval (ms)",
    }
    rows += [("brokers", line) for line in topology_lines(report)]
    rows += [(label, compact(system.get(key))) for key, label in labels.items()]
    rows += [("workload", text) for text in workload_lines(report)]
    digests = system.get("image_digests") or {}
    rows += [(f"image {name}", digest) for name, digest in sorted(digests.items())]
    return rows


def switch_rows(report: Report) -> list[Row]:
    """Every switch of the clients, for those who look for one."""
    switches = report["system"].get("switches") or {}
    return [(name, compact(value)) for name, value in sorted(switches.items())]


def topology_lines(report: Report) -> list[str]:
    """``demo-0: 0 master 127.0.0.1:10911, 1 slave 127.0.0.1:10921``, one per pair."""
    lines = []
    for pair in (report["system"].get("topology") or {}).get("pairs") or []:
        members = [
            " ".join(
                str(part)
                for part in (each.get("broker_id"), each.get("role"), each.get("address"))
                if part is not None
            )
            for each in pair.get("members") or []
        ]
        lines.append(f"{pair.get('broker') or pair.get('name')}: {', '.join(members) or '–'}")
    return lines


def workload_lines(report: Report) -> list[str]:
    """What was sent and who consumed it, one line per topic and group."""
    workload = report["system"].get("workload") or {}
    lines = []
    for topic in workload.get("topics") or []:
        rate, size = topic.get("ratePerSecond"), topic.get("bodyBytes")
        text = f"topic {topic.get('name')}: {_plain(rate)}/s, "
        text += f"{_many(topic.get('queues'), 'queue')}, {_plain(size)} bytes"
        if topic.get("preloadMessages"):
            text += f", {topic['preloadMessages']:,} waiting at the start"
        lines.append(text)
    for group in workload.get("groups") or []:
        handler = group.get("handler") or {}
        lines.append(
            f"group {group.get('name')}: {_many(group.get('members'), 'member')}, "
            f"{_many(group.get('threads'), 'thread')}, handler {_plain(handler.get('meanMs'))} ms"
        )
    return lines


def _plain(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, float) else "–"


def _many(value: object, noun: str) -> str:
    return f"{_plain(value)} {noun}" if value == 1 else f"{_plain(value)} {noun}s"


def compact(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return show(value)


def seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_SECOND


def fault_rows(report: Report) -> list[Row]:
    return [
        (
            fault["fid"],
            fault.get("kind") or fault.get("name"),
            seconds(fault.get("intended_ns")),
            seconds(fault.get("effect_ns")),
            seconds(fault.get("heal_ns")),
            fault.get("down_seconds"),
            fault.get("proved"),
            fault.get("peer_saw"),
        )
        for fault in report.get("faults", [])
    ]


def queue_rows(report: Report) -> list[Row]:
    return [
        (
            f"{row['topic']} {row['broker']}/{row['qid']}",
            row["group"],
            row["dup"],
            row.get("master_offset"),
            row.get("slave_offset"),
            row.get("safe_offset"),
            reset_hint(row),
        )
        for row in report.get("queues", [])[:MAX_TABLE_ROWS]
    ]


def reset_hint(row: Report) -> str:
    """What to type so that the group goes on at the safe offset; a dash when it stands there."""
    safe, held = row.get("safe_offset"), row.get("master_offset")
    if safe is None or held is None or held >= safe:
        return "–"
    return reset_command(row["group"], row["topic"], row["broker"], row["qid"], safe) or "–"


def rollback_rows(report: Report) -> list[Row]:
    return [
        (
            f"{row['topic']} {row['broker']}/{row['qid']}",
            seconds(row["t_ns"]),
            row["start"],
            row["src_bid"],
            row["committed"],
            row["processed"],
            row["d_commit"],
            row["redelivered"],
        )
        for row in report.get("rollbacks", [])[:MAX_TABLE_ROWS]
    ]


def rto_rows(report: Report) -> list[Row]:
    return [
        (
            row["fid"],
            row["produce_ms"],
            (row.get("consume_ms") or {}).get("p50"),
            (row.get("consume_ms") or {}).get("max"),
            row.get("ttfr_kill_ms"),
        )
        for row in report.get("rto", [])
    ]


def phase_rows(report: Report) -> list[Row]:
    """The waterfall in words: one row per kill and phase, in order, what was never seen last."""
    return [
        (waterfall.title.partition(":")[0], phase.replace("_", " "), seconds(at_ns))
        for waterfall in outcomes.waterfalls(report)
        for phase, at_ns in sorted(
            waterfall.phases, key=lambda each: (each[1] is None, each[1] or 0)
        )
    ]


def bound_rows(report: Report) -> list[Row]:
    return [
        (
            row["fid"],
            row["group"],
            row["mechanism"],
            row["formula"],
            row["bound"],
            row["observed"],
            row["exceeded"],
        )
        for row in report.get("bounds", [])
    ]


def harm_rows(report: Report) -> list[Row]:
    rows: list[Row] = []
    for group in report.get("groups", []):
        age = group.get("repeat_age_seconds") or {}
        rows.append(
            (
                group["group"],
                group["wasted_seconds"],
                group["max_redelivery"],
                age.get("p50"),
                age.get("max"),
            )
        )
    return rows


def evidence_rows(report: Report) -> list[Row]:
    evidence = report["evidence"]
    rows: list[Row] = [
        ("run sha256", evidence.get("run_sha256")),
        ("journal", "journal.json of the run folder"),
        ("segments", evidence.get("segments")),
    ]
    rows += [
        (f"rows in {name}", count) for name, count in sorted((evidence.get("rows") or {}).items())
    ]
    rows.append(("torn records", evidence.get("torn")))
    rows.append(("gaps", len(evidence.get("gaps") or [])))
    return rows


def difference_rows(report: Report) -> list[Row]:
    """Block 12: each arm against the baseline, with the interval of the difference."""
    compare = report.get("compare") or {"difference": []}
    words = {True: "yes", False: "no", None: "too few runs"}
    rows: list[Row] = []
    for row in compare["difference"]:
        name, factor = METRIC_WORDS.get(row["metric"], (row["metric"], 1))
        cells = [
            None if row[part] is None else row[part] * factor
            for part in ("median", "ci_low", "ci_high")
        ]
        rows.append((row.get("arm"), name, *cells, words[row["significant"]]))
    return rows


def arm_rows(report: Report) -> list[Row]:
    """Block 12: each arm with the median and range of what was compared."""
    compare = report.get("compare") or {"arms": [], "baseline": None}

    def shown(spread: dict[str, Any], scale: float = 1) -> str:
        if spread["median"] is None:
            return "–"
        low, middle, high = (spread[name] / scale for name in ("min", "median", "max"))
        return f"{middle:,.6g}" if low == high else f"{middle:,.6g} ({low:,.6g} to {high:,.6g})"

    return [
        (
            arm["name"] + (" (baseline)" if arm["name"] == compare["baseline"] else ""),
            arm["n"],
            shown(arm["dup"]),
            shown(arm["dup_ratio"]),
            shown(arm["produce_rto_ms"], 1000),
            shown(arm["consume_rto_ms"], 1000),
            ", ".join(f"{number} {verdict}" for verdict, number in arm["verdicts"].items()),
        )
        for arm in compare["arms"]
    ]


def resume_rows(report: Report) -> list[Row]:
    """Where start offsets came from, and the log's own contradictions."""
    points = report.get("resume_points") or {}
    divergence = report.get("divergence") or {}
    totals = report["totals"]
    return [
        ("start offsets checked", points.get("checked")),
        ("explained", points.get("explained")),
        ("cannot be told", points.get("unknown")),
        ("unexplained", points.get("unexplained_count")),
        ("sends of open outcome (never counted as lost)", totals.get("ambiguous_sends")),
        ("offsets that named two messages", divergence.get("conflicts")),
        ("times a log lost its tail", len(divergence.get("truncation_events") or [])),
    ]


def prediction_rows(report: Report) -> list[Row]:
    return [
        (row["fid"], row["group"], row["p5"], row["p50"], row["p95"], row.get("worst"),
         row["observed"], row["inside"], row["validated"])
        for row in report.get("prediction", [])
        if "p5" in row
    ]  # fmt: skip


def knob_rows(report: Report) -> list[Row]:
    return [
        (row["name"], compact(row["from"]), compact(row["to"]), row["predicted_reduction"],
         row.get("worst_reduction"), row["cost"])
        for row in report.get("knobs", [])
    ]  # fmt: skip


def exposure_rows(report: Report) -> list[Row]:
    return [
        (group, row.get("broker"), row["p50"], row["max"], row["at_kill"])
        for group, row in sorted(report.get("exposure", {}).items())
    ]
