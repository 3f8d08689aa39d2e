"""Writes ``report.html``: one file that opens offline, from ``report.json`` and its points.

Nothing is fetched: plotly.js is inlined, a Content-Security-Policy forbids connections, and every
text from outside is escaped. What happened and all tables are in the HTML itself, so that they can
be read without scripts; the figures are drawn from embedded JSON, those in closed parts when they
are opened or printed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup

from failback.analytics.report.measures.point_rows import Point, Report
from failback.analytics.report.outcome import evidence_badge, outcome_badge
from failback.analytics.report.page import answers, plotly_bundle, time_series
from failback.analytics.report.page.figures import bars, curves, over_time
from failback.analytics.report.page.figures.theme import DARK, LIGHT, Theme
from failback.analytics.report.page.tables import (
    advice,
    costs,
    incidents,
    observed,
    redeliveries,
    run_card,
)
from failback.analytics.report.page.tables.over_time import report_tables
from failback.analytics.report.page.tables.registry import MAX_TABLE_ROWS, Table
from failback.analytics.report.page.words import TERMS
from failback.analytics.report.wording import number
from failback.common.text import visible
from failback.common.times import zone

LONG_TABLE_ROWS: Final = 30
"""A longer table scrolls in a frame of its own."""

CONTENTS: Final = (
    ("answer", "What happened"),
    ("why", "Why"),
    ("change", "What to change"),
    ("groups", "Groups"),
    ("compare", "Compare"),
    ("timeline", "Timeline"),
    ("staircase", "Offsets of every queue"),
    ("causes", "Causes"),
    ("intervals", "Which messages were re-consumed"),
    ("rto", "Recovery time"),
    ("bounds", "Bound and prediction"),
    ("harm", "What the repeats cost"),
    ("loss", "Losses and order"),
    ("evidence", "Evidence"),
    ("words", "Words"),
    ("run-card", "Run card"),
)
"""Anchor and heading of each part: the links at the top, in this order.

The template ``report.html.j2`` has the parts themselves, and has to keep the same order.
"""
OBSERVED: Final = (
    ("answer", "What happened"),
    ("why", "What was re-consumed"),
    ("change", "What to change"),
    ("seen", "What was seen"),
    ("staircase", "Offsets of every queue"),
    ("evidence", "Evidence"),
    ("words", "Words"),
    ("run-card", "Run card"),
)
"""The same of a cluster that Failback did not run."""
MECHANISMS: Final = frozenset({"staircase", "bounds"})
"""Parts that a report of another engine than RocketMQ does not have."""
FIRST_LINKS: Final = frozenset({"why", "change", "timeline", "seen", "staircase", "evidence"})
"""The links that are not folded; a page has five of them."""


def render_html(report: Report, points: Sequence[Point], theme: Theme = LIGHT) -> str:
    """Return the page; raises ``KeyError`` only for a report that fails its schema."""
    drawn = {name: draw(theme) for name, draw in report_figures(report, points).items()}
    titles = {name: figure.layout.title.text for name, figure in drawn.items()}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("failback.analytics.report.page", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _with_code
    placed: list[str] = []

    def place(name: str) -> str:
        """Note that the page has a place for a figure."""
        placed.append(name)
        return ""

    environment.globals.update(number=number, long_table=LONG_TABLE_ROWS, terms=TERMS)
    return environment.get_template("report.html.j2").render(
        report=report,
        observed="observation" in report,
        foreign="foreign" in report,
        contents=[
            each
            for each in (OBSERVED if "observation" in report else CONTENTS)
            if "foreign" not in report or each[0] not in MECHANISMS
        ],
        headings=dict(CONTENTS),
        heading=answers.heading(report),
        banner=answers.banner(report),
        badges=(evidence_badge(report), outcome_badge(report)),
        tiles=answers.answer_tiles(report),
        further=answers.further_tiles(report),
        explained=answers.explained_causes(report),
        first_links=FIRST_LINKS,
        zone=zone(observed.zero_of(report)),
        causes=answers.cause_lines(report),
        carry=answers.carry_advice(report),
        worst=answers.worst_figure(titles),
        findings=answers.findings(report, titles),
        figures=titles,
        named=lambda prefix: [name for name in titles if name.startswith(f"{prefix}-")],
        thinned=_thinned(report, points),
        most_points=time_series.MAX_POINTS_PER_TRACE,
        place=place,
        figures_json=lambda: Markup(
            figures_json({name: drawn[name] for name in placed}, observed.zero_of(report))
        ),
        swaps_json=Markup(json.dumps(dict(DARK.colours))),
        plotly_js=Markup(plotly_bundle.script()),
        most_rows=MAX_TABLE_ROWS,
        tables=page_tables(report, points),
    )


def shown(value: object) -> object:
    """What an expression puts on a page: text of strangers has escapes for what cannot be seen."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _with_code(text: str) -> Markup:
    """Text of ours with what stands between backticks as code; all of it is escaped."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(visible(part)) if place % 2 else visible(part)
        for place, part in enumerate(parts)
    )


def page_tables(report: Report, points: Sequence[Point]) -> dict[str, Table]:
    """All tables of the page: those of the files, and those that only it has."""
    only = (redeliveries.resets, redeliveries.resumed, costs.harm, costs.fates, advice.arms,
            run_card.card, run_card.switches, run_card.evidence, run_card.resumes,
            observed.came_again, observed.others, observed.canaries)  # fmt: skip
    events = time_series.timeline_data(report, points).events
    made = {table.name: table for table in (each(report) for each in only)}
    return report_tables(report) | made | {"events": incidents.events(report, list(events))}


def _thinned(report: Report, points: Sequence[Point]) -> frozenset[str]:
    """The figures of which some trace has more points than are drawn."""
    curves = {"timeline": time_series.timeline_data(report, points).curves}
    for place, stairs in enumerate(time_series.staircases(report, points)):
        curves[f"staircase-{place}"] = list(stairs.series.values())
    return frozenset(name for name, found in curves.items() if any(each.is_long for each in found))


def plain_figure(text: str) -> dict[str, Any]:
    """Return a figure of Plotly's JSON whose texts are shown as they are.

    Plotly takes tags in a text for markup, links among them; no figure of ours has any.
    """
    found: dict[str, Any] = _without_markup(json.loads(text))
    return found


def _without_markup(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value).replace("<", "&lt;")
    if isinstance(value, list):
        return [_without_markup(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_markup(each) for key, each in value.items()}
    return value


def figures_json(drawn: Mapping[str, Any], zero: float) -> str:
    """Return the figures as JSON that is safe inside a script element.

    Titles are left out: the page has them as text, where they wrap. ``zero``: run zero in seconds
    since 1970.
    """
    plain = {name: plain_figure(figure.to_json()) for name, figure in drawn.items()}
    for figure in plain.values():
        if figure["layout"]["xaxis"].get("title", {}).get("text") == over_time.SECONDS:
            _put_on_clock(figure, zero)
        for name in ("template", "title"):
            figure["layout"].pop(name, None)
        figure["layout"]["margin"] = {**figure["layout"]["margin"], "t": 14}
    return json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")


def _put_on_clock(figure: dict[str, Any], zero: float) -> None:
    """Give a figure over seconds an axis in time of day, in this machine's zone.

    Plotly shows dates, which are ms, in UTC: so they are moved by the zone's offset.
    """
    offset = datetime.fromtimestamp(zero).astimezone().utcoffset() or timedelta()
    begin = zero + offset.total_seconds()

    def at(second: float) -> float:
        return round((begin + second) * 1000, 3)

    for trace in figure["data"]:
        if "base" in trace:  # its x is how long a bar is
            trace["base"] = [at(each) for each in trace["base"]]
            trace["x"] = [each * 1000 for each in trace["x"]]
        else:
            trace["x"] = [at(each) for each in trace.get("x", ())]
    layout = figure["layout"]
    for mark in [*layout.get("shapes", ()), *layout.get("annotations", ())]:
        mark.update({name: at(mark[name]) for name in ("x", "x0", "x1") if name in mark})
    axis = layout["xaxis"]
    axis |= {
        "type": "date",
        "tickformat": "%H:%M:%S",
        "hoverformat": "%H:%M:%S.%L",
        "title": {"text": zone(zero)},
    }
    if "range" in axis:
        axis["range"] = [at(each) for each in axis["range"]]


Draw = Callable[[Theme], go.Figure]


def report_figures(report: Report, points: Sequence[Point]) -> dict[str, Draw]:
    """All figures by name, in the order of the page; those without data are left out."""
    found: dict[str, Draw] = {}

    def add(name: str, draw: Callable[..., go.Figure], *data: Any, has: object) -> None:
        if has:
            found[name] = partial(draw, *data)

    for place, stairs in enumerate(time_series.staircases(report, points)):
        add(f"staircase-{place}", over_time.offset_staircase, stairs, has=True)
    timeline = time_series.timeline_data(report, points)
    add("timeline", over_time.timeline, timeline, has=timeline.has_data)
    by_time = time_series.cause_time_data(report, points)
    add("causes-time", over_time.causes_over_time, by_time, has=by_time.seconds)
    heat = time_series.heat_data(report, points)
    add("heatmap", over_time.interval_heatmap, heat, has=heat.queues)
    windows = redeliveries.windows(report).rows
    add("intervals", bars.interval_map, windows, redeliveries.left_out(report), has=windows)
    predicted = [row for row in advice.prediction(report).rows if "p5" in row]
    add("prediction", bars.prediction_band, predicted, has=predicted)
    exposure, faults = time_series.exposures(points), time_series.fault_bands(report)
    add("exposure", over_time.exposure, exposure, faults, has=exposure)
    groups = curves.groups_with_memory(report)
    by_keys = any(curves.shares(group, "by_keys") for group in groups)
    add("dedupe-seconds", curves.dedupe, "by_seconds", groups, has=groups)
    add("dedupe-keys", curves.dedupe, "by_keys", groups, has=by_keys)
    ages = costs.repeat_age(report).rows
    add("repeat-age", curves.repeat_age, ages, curves.median_age(report), has=ages)
    add("compare", curves.compare_arms, report.get("compare"), has=report.get("compare"))
    return found
