"""Figures of a report: one pure function each, from a frozen data class to a Plotly figure.

The same functions serve the self-contained ``report.html`` and the dashboard. No I/O and no
globals besides the palette. Every figure has a title that states its finding, units on its axes and
a table twin beside it in the page, so that colour alone says nothing: each report group has
its own colour (Okabe-Ito) *and* its own hatch.
"""

from __future__ import annotations

from failback.analytics.report.page.figures.bars import (
    bound_vs_observed,
    dup_by_cause,
    interval_map,
    knobs,
    loss_and_order,
    prediction_band,
    redelivery_counts,
    rto_waterfall,
    wasted_seconds,
)
from failback.analytics.report.page.figures.curves import (
    clock_quality,
    compare_arms,
    dedupe_curve,
    repeat_age,
)
from failback.analytics.report.page.figures.over_time import (
    causes_over_time,
    exposure,
    interval_heatmap,
    offset_staircase,
    timeline,
)
from failback.analytics.report.page.figures.theme import (
    DARK,
    GROUP_COLOURS,
    GROUP_HATCHES,
    LIGHT,
    Theme,
    swaps,
)

__all__ = [
    "DARK",
    "GROUP_COLOURS",
    "GROUP_HATCHES",
    "LIGHT",
    "Theme",
    "bound_vs_observed",
    "causes_over_time",
    "clock_quality",
    "compare_arms",
    "dedupe_curve",
    "dup_by_cause",
    "exposure",
    "interval_heatmap",
    "interval_map",
    "knobs",
    "loss_and_order",
    "offset_staircase",
    "prediction_band",
    "redelivery_counts",
    "repeat_age",
    "rto_waterfall",
    "swaps",
    "timeline",
    "wasted_seconds",
]
