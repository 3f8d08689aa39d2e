"""The inputs of figures, from ``report.json`` and the points of a run. Pure.

The figures are drawn in ``page.figures``.
"""

from failback.analytics.report.measures.point_rows import (
    Point,
    QueueKey,
    Report,
    points_of,
)
from failback.analytics.report.page.figure_data.outcomes import (
    arm_data,
    bound_data,
    clock_data,
    knob_data,
    loss_data,
    prediction_data,
    waterfalls,
)
from failback.analytics.report.page.figure_data.repeats import (
    age_data,
    cause_data,
    count_data,
    dedupe_data,
    interval_data,
    report_group,
    waste_data,
)
from failback.analytics.report.page.figure_data.time_series import (
    cause_time_data,
    events,
    exposure_data,
    fault_bands,
    heat_data,
    staircases,
    timeline_data,
)

__all__ = [
    "Point",
    "QueueKey",
    "Report",
    "age_data",
    "arm_data",
    "bound_data",
    "cause_data",
    "cause_time_data",
    "clock_data",
    "count_data",
    "dedupe_data",
    "events",
    "exposure_data",
    "fault_bands",
    "heat_data",
    "interval_data",
    "knob_data",
    "loss_data",
    "points_of",
    "prediction_data",
    "report_group",
    "staircases",
    "timeline_data",
    "waste_data",
    "waterfalls",
]
