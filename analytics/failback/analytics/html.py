"""Writes ``report.html``: one file that opens offline, from ``report.json`` and its points.

Nothing is fetched: plotly.js is inlined from the ``plotly`` package, a Content-Security-Policy
forbids connections, and every text from outside is escaped. The verdict and all tables are in the
HTML itself, so that they can be read without scripts; the figures are drawn from embedded JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

from failback.analytics import figure_data, figures
from failback.analytics.figure_data import Point, Report
from failback.analytics.status_summary import rule_set_of

NS_PER_SECOND = figures.NS_PER_SECOND
MAX_TABLE_ROWS = 500
LONG_TABLE_ROWS = 30
"""A longer table scrolls in a frame of its own."""

CONTENTS = (
    ("checks", "Checks"),
    ("run-card", "Run card"),
    ("timeline", "Timeline"),
    ("staircase", "Offsets"),
    ("causes", "Causes"),
    ("intervals", "Consumed again"),
    ("rollbacks", "Resume points"),
    ("rto", "Recovery time"),
    ("bounds", "Bounds"),
    ("loss", "Loss and order"),
    ("harm", "Harm"),
    ("evidence", "Evidence"),
)

Row = Sequence[object]


def render_html(
    report: Report, points: Sequence[Point], theme: figures.Theme = figures.LIGHT
) -> str:
    """Return the page; raises ``KeyError`` only for a report that fails its schema."""
    timeline = figure_data.timeline_data(report, points)
    drawn: dict[str, Any] = {"timeline": figures.timeline(timeline, theme)}
    staircase_ids, waterfall_ids = [], []
    for number, stairs in enumerate(figure_data.staircases(report, points)):
        identifier = f"staircase-{number}"
        drawn[identifier] = figures.offset_staircase(stairs, theme)
        staircase_ids.append((identifier, f"Offsets of {stairs.queue}, group {stairs.group}"))
    causes = figure_data.cause_data(report)
    if causes.rows:
        drawn["causes"] = figures.dup_by_cause(causes, theme)
    intervals = figure_data.interval_data(report)
    if intervals.windows:
        drawn["intervals"] = figures.interval_map(intervals, theme)
    bounds = figure_data.bound_data(report)
    if bounds.rows:
        drawn["bounds"] = figures.bound_vs_observed(bounds, theme)
    for number, waterfall in enumerate(figure_data.waterfalls(report)):
        if waterfall.phases:
            identifier = f"rto-{number}"
            drawn[identifier] = figures.rto_waterfall(waterfall, theme)
            waterfall_ids.append((identifier, waterfall.title))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("failback.analytics", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.globals.update(show=show, numeric=numeric_columns, long_table=LONG_TABLE_ROWS)
    return environment.get_template("report.html.j2").render(
        report=report,
        contents=CONTENTS,
        tiles=tiles(report),
        figures=drawn,
        figures_json=Markup(figures_json(drawn)),
        plotly_js=Markup(plotly.offline.get_plotlyjs()),
        staircase_ids=staircase_ids,
        waterfall_ids=waterfall_ids,
        check_rows=check_rows(report),
        card_rows=card_rows(report),
        fault_rows=fault_rows(report),
        event_rows=[(at / NS_PER_SECOND, text) for at, text in sorted(timeline.events)],
        queue_rows=queue_rows(report),
        cause_rows=causes.rows,
        window_rows=[
            (queue, lo, hi, size, cause, at / NS_PER_SECOND)
            for queue, lo, hi, size, cause, _, at in intervals.windows[:MAX_TABLE_ROWS]
        ],
        rollback_rows=rollback_rows(report),
        rto_rows=rto_rows(report),
        phase_rows=phase_rows(report),
        bound_rows=bound_rows(report),
        loss_rows=sorted(((report.get("loss") or {}).get("fates") or {}).items()),
        order_rows=[
            (row["group"], row["topic"], row["ooo_first"], row["ooo_replay"])
            for row in report.get("order", [])
        ],
        harm_rows=harm_rows(report),
        evidence_rows=evidence_rows(report),
    )


def figures_json(drawn: dict[str, Any]) -> str:
    """Return the figures as JSON that is safe inside a script element."""
    plain = {name: json.loads(figure.to_json()) for name, figure in drawn.items()}
    for figure in plain.values():
        figure["layout"].pop("template", None)
    return json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")


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
    return [
        (check.get("title") or check["id"], check["value"], check["expected"], check["observed"])
        for check in report.get("checks", [])
    ]


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
        ("time scale", f"{source['time_scale']:g}"),
    ]
    labels = {
        "topology": "topology",
        "slave_read_enable": "slaveReadEnable",
        "flush_interval_ms": "flushConsumerOffsetInterval (ms)",
        "slave_sync_interval_ms": "slave sync interval (ms)",
        "client_commit_interval_ms": "persistConsumerOffsetInterval (ms)",
    }
    rows += [(label, compact(system.get(key))) for key, label in labels.items()]
    switches = system.get("switches") or {}
    rows += [(f"client switch {name}", compact(value)) for name, value in sorted(switches.items())]
    return rows


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
            fault.get("honest"),
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
    safe, master = row.get("safe_offset"), row.get("master_offset")
    if safe is None or master is None or master >= safe:
        return "–"
    return (
        f"failback admin resetOffset --group {row['group']} --topic {row['topic']} "
        f"--queue {row['qid']} --offset {safe}"
    )


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
        for waterfall in figure_data.waterfalls(report)
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
    rows: list[Row] = [("run sha256", evidence.get("run_sha256"))]
    rows += [
        (f"rows in {name}", count) for name, count in sorted((evidence.get("rows") or {}).items())
    ]
    rows.append(("torn records", evidence.get("torn")))
    rows.append(("gaps", len(evidence.get("gaps") or [])))
    return rows
