"""Which figures a report's page has. Each is a function of the theme, drawn when it is asked for.

What is a few numbers is a table with bars there, and no figure.
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

    def add(name: str, draw: Callable[[Any, Theme], go.Figure], data: Any, *, has: object) -> None:
        if has:
            found[name] = partial(_drawn, draw, data)

    for number, stairs in enumerate(time_series.staircases(report, points)):
        add(f"staircase-{number}", over_time.offset_staircase, stairs, has=True)
    timeline = time_series.timeline_data(report, points)
    add("timeline", over_time.timeline, timeline, has=True)
    by_time = time_series.cause_time_data(report, points)
    add("causes-time", over_time.causes_over_time, by_time, has=by_time.seconds)
    heat = time_series.heat_data(report, points)
    add("heatmap", over_time.interval_heatmap, heat, has=heat.queues)
    intervals = repeats.interval_data(report)
    add("intervals", bars.interval_map, intervals, has=intervals.windows)
    prediction = outcomes.prediction_data(report)
    add("prediction", bars.prediction_band, prediction, has=prediction.rows)
    exposure = time_series.exposure_data(report, points)
    add("exposure", over_time.exposure, exposure, has=exposure.series)
    dedupe = repeats.dedupe_data(report)
    add("dedupe-seconds", curves.dedupe_seconds, dedupe, has=dedupe.by_seconds)
    add("dedupe-keys", curves.dedupe_keys, dedupe, has=any(dedupe.by_keys.values()))
    age = repeats.age_data(report)
    add("repeat-age", curves.repeat_age, age, has=age.bins)
    arms = outcomes.arm_data(report)
    add("compare", curves.compare_arms, arms, has=arms)
    return found


def _drawn(draw: Callable[[Any, Theme], go.Figure], data: Any, theme: Theme) -> go.Figure:
    return draw(data, theme)
