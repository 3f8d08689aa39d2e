"""Which figures a report has: one list for the page, the dashboard and anybody else.

Each is a function of the theme, so that nothing is drawn that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go

from failback.analytics.report.page import figure_data, figures
from failback.analytics.report.page.figure_data import Point, Report

Draw = Callable[[figures.Theme], go.Figure]


def report_figures(report: Report, points: Sequence[Point]) -> dict[str, Draw]:
    """All figures by name, in the order of the page; those without data are left out."""
    found: dict[str, Draw] = {}

    def add(name: str, draw: Callable[[Any, figures.Theme], go.Figure], data: Any) -> None:
        found[name] = partial(_drawn, draw, data)

    add("timeline", figures.timeline, figure_data.timeline_data(report, points))
    for number, stairs in enumerate(figure_data.staircases(report, points)):
        add(f"staircase-{number}", figures.offset_staircase, stairs)
    causes = figure_data.cause_data(report)
    if causes.rows:
        add("causes", figures.dup_by_cause, causes)
    over_time = figure_data.cause_time_data(report, points)
    if over_time.seconds:
        add("causes-time", figures.causes_over_time, over_time)
    intervals = figure_data.interval_data(report)
    if intervals.windows:
        add("intervals", figures.interval_map, intervals)
    heat = figure_data.heat_data(report, points)
    if heat.queues:
        add("heatmap", figures.interval_heatmap, heat)
    for number, waterfall in enumerate(figure_data.waterfalls(report)):
        if waterfall.phases:
            add(f"rto-{number}", figures.rto_waterfall, waterfall)
    bounds = figure_data.bound_data(report)
    if bounds.rows:
        add("bounds", figures.bound_vs_observed, bounds)
    prediction = figure_data.prediction_data(report)
    if prediction.rows:
        add("prediction", figures.prediction_band, prediction)
    exposure = figure_data.exposure_data(report, points)
    if exposure.series:
        add("exposure", figures.exposure, exposure)
    dedupe = figure_data.dedupe_data(report)
    if dedupe.by_seconds:
        add("dedupe", figures.dedupe_curve, dedupe)
    age = figure_data.age_data(report)
    if age.bins:
        add("repeat-age", figures.repeat_age, age)
    waste = figure_data.waste_data(report)
    if waste.rows:
        add("wasted", figures.wasted_seconds, waste)
    counts = figure_data.count_data(report)
    if counts.rows:
        add("redelivery", figures.redelivery_counts, counts)
    loss = figure_data.loss_data(report)
    if loss.rows:
        add("loss", figures.loss_and_order, loss)
    knobs = figure_data.knob_data(report)
    if knobs.rows:
        add("knobs", figures.knobs, knobs)
    arms = figure_data.arm_data(report)
    if arms is not None:
        add("compare", figures.compare_arms, arms)
    clock = figure_data.clock_data(report)
    if len(clock.rows) > 1:
        add("clock", figures.clock_quality, clock)
    return found


def _drawn(
    draw: Callable[[Any, figures.Theme], go.Figure], data: Any, theme: figures.Theme
) -> go.Figure:
    return draw(data, theme)
