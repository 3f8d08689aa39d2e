"""Counting: what one batch of rows contributes to a run's history. Pure.

Both engines call these functions, on different batches of the same rows, and add the results up:
interval rows by :func:`failback.analytics.analysis.arrays.intervals.sweep`, value rows by sum, max
or min. All operations are associative and commutative, so the batches do not matter.
"""

from failback.analytics.analysis.counting.partials.commits import (
    COMMIT_COLUMNS,
    TAKEN_RESULTS,
    commit_partials,
)
from failback.analytics.analysis.counting.partials.context import Context, Outage, context_of
from failback.analytics.analysis.counting.partials.deliveries import (
    deliver_partials,
    known_partials,
)
from failback.analytics.analysis.counting.partials.phases import (
    PHASE_COLUMNS,
    PHASE_TABLES,
    PHASES,
    Phase,
    phase_partials,
)
from failback.analytics.analysis.counting.partials.pulls import PULL_COLUMNS, pull_partials
from failback.analytics.analysis.counting.partials.rows import NULL_NUMBER, Codes, Rows, buckets
from failback.analytics.analysis.counting.partials.sends import (
    DOUBTFUL_RESULTS,
    GOOD_RESULTS,
    LATENCY_POINT_NS,
    PRODUCE_COLUMNS,
    SCAN_COLUMNS,
    produce_partials,
    resumed_partials,
    scan_partials,
)
from failback.analytics.analysis.counting.partials.sums import NS, SCHEMA, Key, Partials

__all__ = [
    "COMMIT_COLUMNS",
    "DOUBTFUL_RESULTS",
    "GOOD_RESULTS",
    "LATENCY_POINT_NS",
    "NS",
    "NULL_NUMBER",
    "PHASES",
    "PHASE_COLUMNS",
    "PHASE_TABLES",
    "PRODUCE_COLUMNS",
    "PULL_COLUMNS",
    "SCAN_COLUMNS",
    "SCHEMA",
    "TAKEN_RESULTS",
    "Codes",
    "Context",
    "Key",
    "Outage",
    "Partials",
    "Phase",
    "Rows",
    "buckets",
    "commit_partials",
    "context_of",
    "deliver_partials",
    "known_partials",
    "phase_partials",
    "produce_partials",
    "pull_partials",
    "resumed_partials",
    "scan_partials",
]  # fmt: skip
