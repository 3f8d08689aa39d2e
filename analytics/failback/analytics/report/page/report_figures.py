"""Which figures a report's page has. Each is a function of the theme, drawn when it is asked for.

What is a few numbers is a table with bars there, and no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go

from failback.analytics.report.measures.point_rows import Point, Report
from failback.analytics.report.page.figures import bars, curves, over_time, time_series
from failback.analytics.report.page.figures.theme import Theme
from failback.analytics.report.page.tables import advice, again, harm

Draw = Callable[[Theme], go.Figure]


def report_figures(report: Report, points: Sequence[Point]) -> dict[str, Draw]:
    """All figures by name, in the order of the page; those without data are left out."""
    found: dict[str, Draw] = {}

    def add(name: str, draw: Callable[..., go.Figure], *data: Any, has: object) -> None:
        if has:
            found[name] = partial(draw, *data)

    for number, stairs in enumerate(time_series.staircases(report, points)):
        add(f"staircase-{number}", over_time.offset_staircase, stairs, has=True)
    timeline = time_series.timeline_data(report, points)
    add("timeline", over_time.timeline, timeline, has=True)
    by_time = time_series.cause_time_data(report, points)
    add("causes-time", over_time.causes_over_time, by_time, has=by_time.seconds)
    heat = time_series.heat_data(report, points)
    add("heatmap", over_time.interval_heatmap, heat, has=heat.queues)
    windows = again.windows(report).rows
    add("intervals", bars.interval_map, windows, again.left_out(report), has=windows)
    predicted = [row for row in advice.prediction(report).rows if "p5" in row]
    add("prediction", bars.prediction_band, predicted, has=predicted)
    exposure = time_series.exposure_data(report, points)
    add("exposure", over_time.exposure, exposure, has=exposure.series)
    groups = curves.groups_with_memory(report)
    by_keys = any(curves.shares(group, "by_keys") for group in groups)
    add("dedupe-seconds", curves.dedupe_seconds, groups, has=groups)
    add("dedupe-keys", curves.dedupe_keys, groups, has=by_keys)
    ages = harm.repeat_age(report).rows
    add("repeat-age", curves.repeat_age, ages, curves.median_age(report), has=ages)
    add("compare", curves.compare_arms, report.get("compare"), has=report.get("compare"))
    return found
