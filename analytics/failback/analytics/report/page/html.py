"""Writes ``report.html``: one file that opens offline, from ``report.json`` and its points.

Nothing is fetched: plotly.js is inlined, a Content-Security-Policy
forbids connections, and every text from outside is escaped. The verdict and all tables are in the
HTML itself, so that they can be read without scripts; the figures are drawn from embedded JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from failback.analytics.report.measures.point_rows import Point, Report
from failback.analytics.report.page import plotly_bundle
from failback.analytics.report.page.figure_data import repeats, time_series
from failback.analytics.report.page.figure_tables import figure_tables
from failback.analytics.report.page.figure_types import MAX_POINTS_PER_TRACE, NS_PER_SECOND
from failback.analytics.report.page.figures.theme import LIGHT, Theme, swaps
from failback.analytics.report.page.html_rows import (
    MAX_TABLE_ROWS,
    Row,
    act_now,
    arm_rows,
    bound_rows,
    card_rows,
    check_rows,
    difference_rows,
    evidence_rows,
    exposure_rows,
    fault_rows,
    harm_rows,
    knob_rows,
    numeric_columns,
    phase_rows,
    prediction_rows,
    queue_rows,
    resume_rows,
    rollback_rows,
    rto_rows,
    show,
    switch_rows,
    tiles,
)
from failback.analytics.report.page.report_figures import report_figures

LONG_TABLE_ROWS = 30
"""A longer table scrolls in a frame of its own."""

CONTENTS = (
    ("verdict", "Verdict"),
    ("run-card", "Run card"),
    ("timeline", "Timeline"),
    ("staircase", "Offsets"),
    ("causes", "Causes"),
    ("intervals", "Consumed again"),
    ("rto", "Recovery time"),
    ("bounds", "Bounds"),
    ("harm", "Harm"),
    ("loss", "Loss and order"),
    ("change", "What to change"),
    ("compare", "Compare"),
)
"""The twelve blocks: anchor and heading of each."""


def render_html(report: Report, points: Sequence[Point], theme: Theme = LIGHT) -> str:
    """Return the page; raises ``KeyError`` only for a report that fails its schema."""
    drawn = {name: draw(theme) for name, draw in report_figures(report, points).items()}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("failback.analytics.report.page", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.globals.update(show=show, numeric=numeric_columns, long_table=LONG_TABLE_ROWS)
    return environment.get_template("report.html.j2").render(
        report=report,
        notes=report.get("notes") or {},
        contents=CONTENTS,
        tiles=tiles(report),
        act_now=act_now(report),
        figures={name: figure.layout.title.text for name, figure in drawn.items()},
        named=lambda prefix: [name for name in drawn if name.startswith(f"{prefix}-")],
        thinned=_thinned(report, points),
        most_points=MAX_POINTS_PER_TRACE,
        figures_json=Markup(figures_json(drawn)),
        swaps_json=Markup(json.dumps(dict(swaps()))),
        plotly_js=Markup(plotly_bundle.script()),
        tables=figure_tables(report, points),
        **_rows(report, points),
    )


def _rows(report: Report, points: Sequence[Point]) -> dict[str, Sequence[Row]]:
    """Rows of the tables that are made for people; the others are those of the files."""
    intervals = repeats.interval_data(report)
    return {
        "check_rows": check_rows(report),
        "card_rows": card_rows(report),
        "switch_rows": switch_rows(report),
        "fault_rows": fault_rows(report),
        "event_rows": [
            (at / NS_PER_SECOND, text) for at, text in time_series.events(report, points)
        ],
        "queue_rows": queue_rows(report),
        "cause_rows": repeats.cause_data(report).rows,
        "window_rows": [
            (queue, lo, hi, size, cause, at / NS_PER_SECOND)
            for queue, lo, hi, size, cause, _, at in intervals.windows[:MAX_TABLE_ROWS]
        ],
        "rollback_rows": rollback_rows(report),
        "rto_rows": rto_rows(report),
        "phase_rows": phase_rows(report),
        "bound_rows": bound_rows(report),
        "prediction_rows": prediction_rows(report),
        "exposure_rows": exposure_rows(report),
        "knob_rows": knob_rows(report),
        "arm_rows": arm_rows(report),
        "difference_rows": difference_rows(report),
        "resume_rows": resume_rows(report),
        "loss_rows": sorted(((report.get("loss") or {}).get("fates") or {}).items()),
        "order_rows": [
            (row["group"], row["topic"], row["ooo_first"], row["ooo_replay"])
            for row in report.get("order", [])
        ],
        "harm_rows": harm_rows(report),
        "evidence_rows": evidence_rows(report),
    }


def _thinned(report: Report, points: Sequence[Point]) -> frozenset[str]:
    """The figures of which some trace has more points than are drawn."""
    found = set()
    data = time_series.timeline_data(report, points)
    curves = [*data.rates.values(), data.send_latency, data.failed_sends]
    if any(len(curve.times_ns) > MAX_POINTS_PER_TRACE for curve in curves):
        found.add("timeline")
    for number, stairs in enumerate(time_series.staircases(report, points)):
        if any(len(curve.times_ns) > MAX_POINTS_PER_TRACE for curve in stairs.series.values()):
            found.add(f"staircase-{number}")
    return frozenset(found)


def figures_json(drawn: Mapping[str, Any]) -> str:
    """Return the figures as JSON that is safe inside a script element."""
    plain = {name: json.loads(figure.to_json()) for name, figure in drawn.items()}
    for figure in plain.values():
        figure["layout"].pop("template", None)
    return json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")
