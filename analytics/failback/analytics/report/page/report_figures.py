"""Which figures a report has: one list for the page, the dashboard and anybody else.

Each is a function of the theme, so that nothing is drawn that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go

from failback.analytics.report.measures.point_rows import Point, Report
from failback.analytics.report.page.figure_data import outcomes, repeats, time_series
from failback.analytics.report.page.figures import bars, curves, over_time
from failback.analytics.report.page.figures.theme import Theme

Draw = Callable[[Theme], go.Figure]


def report_figures(report: Report, points: Sequence[Point]) -> dict[str, Draw]:
    """All figures by name, in the order of the page; those without data are left out."""
    found: dict[str, Draw] = {}

    def add(name: str, draw: Callable[[Any, Theme], go.Figure], data: Any) -> None:
        found[name] = partial(_drawn, draw, data)

    add("timeline", over_time.timeline, time_series.timeline_data(report, points))
    for number, stairs in enumerate(time_series.staircases(report, points)):
        add(f"staircase-{number}", over_time.offset_staircase, stairs)
    causes = repeats.cause_data(report)
    if causes.rows:
        add("causes", bars.dup_by_cause, causes)
    causes_by_time = time_series.cause_time_data(report, points)
    if causes_by_time.seconds:
        add("causes-time", over_time.causes_over_time, causes_by_time)
    intervals = repeats.interval_data(report)
    if intervals.windows:
        add("intervals", bars.interval_map, intervals)
    heat = time_series.heat_data(report, points)
    if heat.queues:
        add("heatmap", over_time.interval_heatmap, heat)
    for number, waterfall in enumerate(outcomes.waterfalls(report)):
        if waterfall.phases:
            add(f"rto-{number}", bars.rto_waterfall, waterfall)
    bounds = outcomes.bound_data(report)
    if bounds.rows:
        add("bounds", bars.bound_vs_observed, bounds)
    prediction = outcomes.prediction_data(report)
    if prediction.rows:
        add("prediction", bars.prediction_band, prediction)
    exposure = time_series.exposure_data(report, points)
    if exposure.series:
        add("exposure", over_time.exposure, exposure)
    dedupe = repeats.dedupe_data(report)
    if dedupe.by_seconds:
        add("dedupe", curves.dedupe_curve, dedupe)
    age = repeats.age_data(report)
    if age.bins:
        add("repeat-age", curves.repeat_age, age)
    waste = repeats.waste_data(report)
    if waste.rows:
        add("wasted", bars.wasted_seconds, waste)
    counts = repeats.count_data(report)
    if counts.rows:
        add("redelivery", bars.redelivery_counts, counts)
    loss = outcomes.loss_data(report)
    if loss.rows:
        add("loss", bars.loss_and_order, loss)
    knobs = outcomes.knob_data(report)
    if knobs.rows:
        add("knobs", bars.knobs, knobs)
    arms = outcomes.arm_data(report)
    if arms is not None:
        add("compare", curves.compare_arms, arms)
    clock = outcomes.clock_data(report)
    if len(clock.rows) > 1:
        add("clock", curves.clock_quality, clock)
    return found


def _drawn(draw: Callable[[Any, Theme], go.Figure], data: Any, theme: Theme) -> go.Figure:
    return draw(data, theme)
