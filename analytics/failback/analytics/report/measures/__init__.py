"""Figures per group and queue, from result tables. Pure.

Integers go in; ratios are formed at the very end.
"""

from failback.analytics.report.measures.groups import group_figures, totals_of
from failback.analytics.report.measures.lookups import (
    Figures,
    declared_group,
    group_names,
    topics_of,
)
from failback.analytics.report.measures.loss import FATES, LOST_FATES, losses_of
from failback.analytics.report.measures.numbers import NS, Row, millis, quantile, ratio, seconds
from failback.analytics.report.measures.queues import queue_figures
from failback.analytics.report.measures.sends import producer_figures, send_figures

__all__ = [
    "FATES",
    "LOST_FATES",
    "NS",
    "Figures",
    "Row",
    "declared_group",
    "group_figures",
    "group_names",
    "losses_of",
    "millis",
    "producer_figures",
    "quantile",
    "queue_figures",
    "ratio",
    "seconds",
    "send_figures",
    "topics_of",
    "totals_of",
]
