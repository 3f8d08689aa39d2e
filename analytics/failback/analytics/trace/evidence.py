"""What a trace can't tell, said where a report would otherwise say more than was seen. Pure.

A trace has no assignments, no commits and no send-backs, so no rule that names a cause has its
inputs, and nothing follows from a handling that isn't there: its trace may have been dropped. A
report from a trace therefore never passes; its counts of repeats stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from failback.analytics.report.checks import Check

SOURCE: Final = "trace"
MAX_NAMED: Final = 20
_MISSING: Final[dict[str, tuple[str, str]]] = {
    "drained": ("NO_DRAIN", "a trace says what was handled, not what was left over"),
    "no_loss": ("NO_DRAIN", "a handling without a trace looks like a lost message"),
    "no_client_bug": ("RECORDER_GAP", "a trace doesn't tell one holding of a queue from the next"),
    "resume_points": ("RECORDER_GAP", "a trace has no start offsets"),
}
"""Checks that need rows which a trace doesn't have: reason code and words."""


def is_trace(run: Mapping[str, Any]) -> bool:
    """Whether a run (``run.json``) was made from a trace."""
    return run.get("source") == SOURCE


def unattributed(classified: pa.Table) -> pa.Table:
    """Classified deliveries (``tables.CLASSIFIED``) with every cause null.

    Commits and assignments alone prove a cause of a copy delivered again, send-backs one in a retry
    topic, and all attempts, the failed ones too, one of a message stored twice. The brokers'
    offsets do not make up for them: an offset above a copy proves that it was committed, not that
    this was before the queue was taken again, and just that tells a rollback from an overlap.
    """
    at = classified.schema.get_field_index("cause")
    nothing = pa.nulls(classified.num_rows, pa.utf8())
    return classified.set_column(at, "cause", nothing)


def without_inputs(checks: Sequence[Check]) -> list[Check]:
    """The checks, with those that a trace can't answer Inconclusive; what was found stays Fail."""
    found = []
    for check in checks:
        missing = _MISSING.get(check.id)
        if missing is not None and check.value != "Fail":
            code, why = missing
            found.append(replace(check, value="Inconclusive", observed=None, code=code, detail=why))
        else:
            found.append(check)
    return found
